"""`python -m dpjax` is the command `dpjax`."""

import sys


def main() -> int:
    """Run the command; an interruption while it is still being imported is answered like a later one."""
    try:
        from dpjax.cli.app import main as command
    except KeyboardInterrupt:
        return 130
    return command()


if __name__ == "__main__":
    sys.exit(main())
