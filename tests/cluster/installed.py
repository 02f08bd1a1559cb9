"""A copy of Stoker that a host has for itself, to be upgraded there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import stoker
from cluster.netns_hosts import Hosts
from stoker.cluster.protocol import PROTOCOL


class Installed:
    """Stoker as it is installed on a host, at first in a version and a protocol before this one."""

    def __init__(self, hosts: Hosts, host: int, version: str) -> None:
        self._folder = hosts.hosts[host].folder / "site" / "stoker"
        source = Path(stoker.__file__).parent
        shutil.copytree(source, self._folder, ignore=shutil.ignore_patterns("__pycache__"))
        self.set_version(version, PROTOCOL - 1)
        hosts.hosts[host].env["PYTHONPATH"] = str(self._folder.parent)

    def set_version(self, version: str, protocol: int) -> None:
        """Replace the files in which versions differ, as pip does."""
        for name, line, by in (
            ("__init__.py", f'__version__ = "{stoker.__version__}"', f'__version__ = "{version}"'),
            ("cluster/protocol.py", f"PROTOCOL = {PROTOCOL}", f"PROTOCOL = {protocol}"),
        ):
            text = (Path(stoker.__file__).parent / name).read_text()
            assert line in text
            fresh = self._folder / f"{name}.new"
            fresh.write_text(text.replace(line, by))
            os.replace(fresh, self._folder / name)
