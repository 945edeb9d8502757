"""The first lines of the command `kitae`, and of `python -m kitae`."""

import sys


def run() -> int:
    """Run the command line of the process; an interrupt while the verbs are still being read ends it, too."""
    try:
        from kitae.cli.main import main
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return main()


if __name__ == "__main__":
    sys.exit(run())
