"""The start of `fedge`: signals are handled before anything is imported that takes a while."""

import os
import sys


def main() -> None:
    open_streams()
    from fedge.runner import signals

    signals.install()
    try:
        from fedge.cli import main as command

        command()
    except signals.Leave as wish:
        print("fedge: stopped", file=sys.stderr, flush=True)
        sys.exit(wish.exit_code)


def open_streams() -> None:
    """Lead what is written to a closed stream nowhere, rather than into the next file or socket that is opened."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != number:
                os.dup2(nowhere, number)
                os.close(nowhere)
            setattr(sys, name, open(number, "w"))  # noqa: SIM115  it stays open


if __name__ == "__main__":
    main()
