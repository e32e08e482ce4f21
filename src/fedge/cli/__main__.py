"""`python -m fedge.cli` is `fedge`."""

from fedge.__main__ import main

main()
