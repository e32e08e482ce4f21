"""`fedge` starts here: it handles signals before it imports anything that takes a while."""

import os
import sys


def main() -> None:
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:  # closed: the next file that is opened would be taken for it, and written into
            os.open(os.devnull, os.O_RDWR)
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  # for as long as this process lives
    os.environ.pop("MPLBACKEND", None)  # figures go to files; matplotlib refuses words it does not know, after the run
    from fedge.runner import signals

    request = signals.install()
    try:
        from fedge.cli import main as command

        request.started = True
        command()
    except BaseException as problem:
        if request.signal is None or isinstance(problem, SystemExit):
            raise
        print("fedge: stopped", file=sys.stderr, flush=True)  # whatever the signal's exception was made into
        os._exit(128 + request.signal)


if __name__ == "__main__":
    main()
