"""`python -m stoker` is `stoker`, for when no script is on PATH."""

import sys

from stoker.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
