"""`python -m blztable` is `blz`."""

import sys

from blztable.cli import main

if __name__ == "__main__":
    sys.exit(main())
