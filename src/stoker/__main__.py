"""`python -m stoker`: the command line without a script on PATH."""

import sys

from stoker.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
