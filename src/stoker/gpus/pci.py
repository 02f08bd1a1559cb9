"""Facts about PCI devices from sysfs."""

from __future__ import annotations

import os

_ROOT_VARIABLE = "STOKER_SYS_ROOT"
DEVICES = "sys/bus/pci/devices"


def address_of(bus_id: str | bytes) -> str:
    """Return the address of a device as sysfs writes it: 0000:3b:00.0."""
    text = bus_id.decode("ascii", "replace") if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:].zfill(4)}:{rest}"


def find_root() -> str:
    """Return the folder above `sys`: that of this machine, or a tree of files in tests."""
    return os.environ.get(_ROOT_VARIABLE) or "/"


def read_numa_node(address: str, root: str | None = None) -> int | None:
    """Return the NUMA node of a device; None if it is unknown, as on a machine with one node."""
    number = read_number(os.path.join(root or find_root(), DEVICES, address, "numa_node"))
    return None if number is None or number < 0 else number


def read_number(path: str) -> int | None:
    """Read a whole number from a file of sysfs; None if there is none."""
    text = read_text(path)
    try:
        return None if text is None else int(text)
    except ValueError:
        return None


def read_text(path: str) -> str | None:
    """Read a file of sysfs; None if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return None
