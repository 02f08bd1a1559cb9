"""`python -m stoker.daemon`: what `stoker daemon start` and the first `stoker add` start."""

import sys

from stoker.daemon.main import main

sys.exit(main())
