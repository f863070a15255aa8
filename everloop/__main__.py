"""The command `everloop` where it is not installed: `python -m everloop`."""

from everloop.cli.app import main

if __name__ == "__main__":
    main()
