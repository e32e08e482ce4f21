"""`python -m fedge.cli` is `fedge`."""

from fedge.cli import main

main()
