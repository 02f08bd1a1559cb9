"""Types that client and daemon exchange; the OpenAPI document is generated from them.

Times are seconds of the Unix epoch. One module for each topic; this package exports the names of all.
"""

from stoker.wire.allocations import *
from stoker.wire.changes import *
from stoker.wire.daemon import *
from stoker.wire.events import *
from stoker.wire.forecast import *
from stoker.wire.gpus import *
from stoker.wire.jobs import *
from stoker.wire.submission import *
from stoker.wire.sweeps import *
from stoker.wire.values import *
