"""Finding and loading the runs of a sweep, from any folder."""

from __future__ import annotations

import os

import msgspec

from stoker.client.client import Client
from stoker.client.transport import NoDaemonError
from stoker.errors import NotFoundError
from stoker.home import find_home
from stoker.store.foreground_runs import folders_of
from stoker.sweep_results.collect import SweepManifest, collect, find_root, read_manifest
from stoker.sweep_results.run_facts import add_facts
from stoker.sweep_results.run_record import RunRecord
from stoker.sweeps.earlier_runs import record_key


class LoadedSweep(msgspec.Struct, frozen=True, kw_only=True):
    """The runs of a sweep; `has_states` is False if the queue that knows their states cannot be asked."""

    root: str
    manifest: SweepManifest
    records: list[RunRecord]
    has_states: bool


def load_sweep(name: str) -> LoadedSweep:
    """Load a sweep by its name or by the folder of its runs."""
    root = locate(name)
    manifest = read_manifest(root)
    records = collect(root)
    has_states = add_facts(records, manifest.name, manifest.cwd or os.getcwd())
    return LoadedSweep(root=root, manifest=manifest, records=records, has_states=has_states)


def locate(name: str) -> str:
    """Return the folder of a sweep's runs: `results/NAME`, NAME, or where it was submitted last."""
    try:
        return find_root(name)
    except NotFoundError as error:
        queued = _queued_from(name)
        key = record_key("", name)["name"]
        for cwd in [*(queued or ()), *folders_of(find_home(), key)]:
            root = os.path.join(cwd, "results", name)
            if os.path.isdir(root):
                return root
        if queued is None and os.path.exists(os.path.join(find_home(), "stoker.db")):
            remedy = "or start the daemon, which knows other folders: stoker daemon start"
            raise NotFoundError(f"{error}; {remedy}") from None
        raise


def _queued_from(name: str) -> list[str] | None:
    """Return the folders from which a sweep was queued, the last one first; None without a daemon."""
    try:
        with Client(restart=False) as client:
            return client.sweep_folders(name)
    except NoDaemonError:
        return None
