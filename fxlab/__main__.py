"""``python -m fxlab``: the command line."""

import sys

from fxlab.command_line import main

if __name__ == "__main__":
    sys.exit(main())
