"""The start of `fedge`: signals are handled before anything is imported that takes a while."""

import sys


def main() -> None:
    from fedge.runner import signals

    signals.install()
    try:
        from fedge.cli import main as command

        command()
    except signals.Leave as wish:
        print("fedge: stopped", file=sys.stderr, flush=True)
        sys.exit(wish.exit_code)


if __name__ == "__main__":
    main()
