"""`python -m stoker.cluster.ray_probe ADDRESS`: asks a Ray cluster for its versions and nodes.

A separate process, because importing Ray takes a second and starts threads. It prints one JSON object:

    {"state": "silent"}                             no answer
    {"state": "open"}                               the cluster accepts clients without a token
    {"state": "refused"}                            the cluster has another token
    {"state": "ok", "ray": …, "python": …, "nodes": [{"address", "is_head", "alive", "labels"}, …]}
"""

from __future__ import annotations

import contextlib
import json
import sys

from stoker.cluster.ray_api import probe

if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):
        answer = probe(sys.argv[1])
    print(json.dumps(answer))
