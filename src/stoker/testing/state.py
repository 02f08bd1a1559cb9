"""State folder of the fake GPUs, which both fake NVMLs and the fake training job read.

    gpus         a line per GPU: uuid, bytes of memory, name, flags; separated by tabs
    procs/<pid>  the GPU's line (from 0), bytes, flags; the file of a dead pid is ignored
    xid          faults in order: the GPU's line and the XID, or 0 for a memory error
    links        how pairs of cards are joined, one per line: two cards (from 0), the level of their common
                 ancestor, and the statuses of peer to peer by PCIe and by NVLink; others are 30, 0, 5
    missing      C functions that the fake driver does not have, one per line
    cuda/<pid>   a locked (1), suspended (2) or failed (3) process: the state, then as in procs
    driver       calls of libcuda that fail or hang, one per line: `cuCheckpointProcessLock hang`
    lock         flocked for every change

Flags of a GPU: `lost`; `nomem` (the memory of processes is unknown); `nolist` (processes are unknown); `mig`
(an instance of the nearest card above). Flags of a process: `host` (its pid is outside our namespace), `sm70`
(it uses 70% of the GPU; without it, processes use equal shares).
Files are replaced, never rewritten, so readers need no lock. Imports only the standard library.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GIB = 1 << 30


_OK, _NOT_SUPPORTED = 0, 5  # of peer to peer
_SWITCH, _HOST_BRIDGE, _SYSTEM = 10, 30, 50  # levels of a common ancestor
USUAL_LINK = (_HOST_BRIDGE, _OK, _NOT_SUPPORTED)
MATRICES: dict[str, Callable[[int, int], tuple[int, int, int]]] = {
    "equal": lambda _a, _b: USUAL_LINK,
    "nvswitch": lambda _a, _b: (_SYSTEM, _OK, _OK),
    # Two switches, each at a processor of its own.
    "pcie-2x4": lambda a, b: (
        (_SWITCH, _OK, _NOT_SUPPORTED)
        if a // 4 == b // 4
        else (_SYSTEM, _NOT_SUPPORTED, _NOT_SUPPORTED)
    ),
    # NVLink bridges between neighbours; two pairs at each processor.
    "pairs": lambda a, b: (
        (_HOST_BRIDGE, _OK, _OK)
        if a // 2 == b // 2
        else (_HOST_BRIDGE if a // 4 == b // 4 else _SYSTEM, _OK, _NOT_SUPPORTED)
    ),
}
"""How two cards are joined: the level of their common ancestor, and peer to peer by PCIe and by NVLink."""


class FakeGpu(NamedTuple):
    """A line of `gpus`."""

    uuid: str
    mem_bytes: int
    name: str
    flags: frozenset[str]


class FakeProcess(NamedTuple):
    """A file of `procs`."""

    pid: int
    gpu: int
    mem_bytes: int
    flags: frozenset[str]


class FakeGpus:
    """A state folder. `library` is the folder of the C fake; None for the Python fake."""

    def __init__(self, folder: str | os.PathLike[str], library: str | None = None) -> None:
        self.folder = os.fspath(folder)
        self.library = library

    def create(
        self, count: int, mem_bytes: int = 8 * GIB, name: str = "Stoker Fake GPU"
    ) -> FakeGpus:
        """Create or reset a machine with this many idle GPUs, whose UUIDs are unique."""
        os.makedirs(os.path.join(self.folder, "procs"), exist_ok=True)
        os.makedirs(os.path.join(self.folder, "cuda"), exist_ok=True)
        for kind in ("procs", "cuda"):
            for process in os.listdir(os.path.join(self.folder, kind)):
                os.unlink(os.path.join(self.folder, kind, process))
        self._save(
            [FakeGpu(_uuid("GPU"), mem_bytes, name, frozenset()) for _ in range(count)],
        )
        return self

    def env(self) -> dict[str, str]:
        """Return the variables that make a process see these GPUs instead of real ones."""
        if self.library is None:
            module = "stoker.testing.fake_pynvml"
            return {"STOKER_FAKE_NVML": self.folder, "STOKER_NVML_MODULE": module}
        inherited = os.environ.get("LD_LIBRARY_PATH")
        return {
            "STOKER_FAKE_NVML": self.folder,
            "STOKER_NVML_MODULE": "",  # pynvml itself, with the C library
            "LD_LIBRARY_PATH": f"{self.library}:{inherited}" if inherited else self.library,
        }

    def gpus(self) -> list[FakeGpu]:
        """Return every line of `gpus`, including MIG instances."""
        with open(os.path.join(self.folder, "gpus"), encoding="utf-8") as file:
            rows = [line.rstrip("\n").split("\t") for line in file]
        return [
            FakeGpu(uuid, int(mem), name, _flags_from(flags)) for uuid, mem, name, flags in rows
        ]

    def processes(self, gpu: int | None = None) -> list[FakeProcess]:
        """Return the living processes, on one GPU or on all, oldest pid first."""
        folder = os.path.join(self.folder, "procs")
        pids = sorted(int(name) for name in os.listdir(folder) if name.isdigit())
        found = []
        for pid in pids:
            with (
                contextlib.suppress(FileNotFoundError),
                open(os.path.join(folder, str(pid)), encoding="utf-8") as file,
            ):
                line, mem, flags = file.read().split()
                process = FakeProcess(pid, int(line), int(mem), _flags_from(flags))
                if gpu in (None, process.gpu) and _is_alive(process):
                    found.append(process)
        return found

    def used_bytes(self, gpu: int) -> int:
        """Return the memory that living processes hold on one GPU."""
        return sum(process.mem_bytes for process in self.processes(gpu))

    def sm_pct(self, process: FakeProcess) -> int:
        """Return the share of its GPU that a process uses."""
        given = [int(flag[2:]) for flag in process.flags if flag.startswith("sm")]
        return given[0] if given else 100 // max(2, len(self.processes(process.gpu)))

    def missing(self) -> set[str]:
        """Return the C functions that this fake driver lacks."""
        try:
            with open(os.path.join(self.folder, "missing"), encoding="utf-8") as file:
                return set(file.read().split())
        except FileNotFoundError:
            return set()

    def faults(self) -> list[tuple[int, int]]:
        """Return every fault so far: the GPU's line and the XID."""
        try:
            with open(os.path.join(self.folder, "xid"), encoding="utf-8") as file:
                return [(int(gpu), int(xid)) for gpu, xid in map(str.split, file)]
        except FileNotFoundError:
            return []

    def fault(self, gpu: int, xid: int) -> None:
        """Let the driver report a fault."""
        with self.locked():
            lines = [f"{line} {number}\n" for line, number in [*self.faults(), (gpu, xid)]]
            _replace(os.path.join(self.folder, "xid"), "".join(lines))

    def use(
        self, pid: int, gpu: int, mem_bytes: int, *, host: bool = False, sm_pct: int | None = None
    ) -> None:
        """Let a process hold memory; a `host` process is not in our /proc."""
        flags = frozenset({"host"} if host else ()) | (
            {f"sm{sm_pct}"} if sm_pct is not None else set()
        )
        _replace(
            os.path.join(self.folder, "procs", str(pid)),
            f"{gpu} {mem_bytes} {_flags_text(flags)}\n",
        )

    def release(self, pid: int) -> None:
        """Free all memory of a process."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(os.path.join(self.folder, "procs", str(pid)))

    def is_locked(self, pid: int) -> bool:
        """Whether the CUDA calls of a process block: it is locked, suspended or failed."""
        return os.path.exists(os.path.join(self.folder, "cuda", str(pid)))

    def suspended_bytes(self) -> int:
        """Return the memory of living processes that is in host RAM."""
        found = 0
        for pid in os.listdir(os.path.join(self.folder, "cuda")):
            with (
                contextlib.suppress(FileNotFoundError),
                open(os.path.join(self.folder, "cuda", pid), encoding="utf-8") as file,
            ):
                words = file.read().split()
                if words[0] == "2" and _is_alive(FakeProcess(int(pid), 0, 0, frozenset())):
                    found += int(words[2])
        return found

    def let_calls(self, **modes: str) -> None:
        """Let calls of libcuda `fail`, `refuse` (as with MPS) or `hang`; the others work."""
        lines = [f"cuCheckpointProcess{call} {mode}\n" for call, mode in modes.items()]
        _replace(os.path.join(self.folder, "driver"), "".join(lines))

    def links(self) -> dict[tuple[int, int], tuple[int, int, int]]:
        """Return how pairs of cards are joined: the level of their ancestor, and statuses of peer to peer."""
        try:
            with open(os.path.join(self.folder, "links"), encoding="utf-8") as file:
                rows = [tuple(map(int, line.split())) for line in file]
        except FileNotFoundError:
            return {}
        return {(a, b): (level, pcie, nvlink) for a, b, level, pcie, nvlink in rows}

    def join(self, matrix: str) -> None:
        """Join all cards as in MATRICES."""
        level_of = MATRICES[matrix]
        cards = range(sum("mig" not in gpu.flags for gpu in self.gpus()))
        rows = [(a, b, *level_of(a, b)) for a in cards for b in cards if a != b]
        text = "".join(" ".join(map(str, row)) + "\n" for row in rows)
        _replace(os.path.join(self.folder, "links"), text)

    def lose(self, gpu: int) -> None:
        """Let a GPU fall off the bus."""
        self._flag(gpu, "lost")

    def find(self, gpu: int) -> None:
        """Bring a lost GPU back."""
        with self.locked():
            gpus = self.gpus()
            gpus[gpu] = gpus[gpu]._replace(flags=gpus[gpu].flags - {"lost"})
            self._save(gpus)

    def plug(self) -> None:
        """Add a GPU like the first one."""
        with self.locked():
            gpus = self.gpus()
            self._save([*gpus, gpus[0]._replace(uuid=_uuid("GPU"))])

    def hide_process_memory(self, gpu: int) -> None:
        """Let a GPU list its processes without their memory, as some drivers do."""
        self._flag(gpu, "nomem")

    def hide_processes(self, gpu: int) -> None:
        """Let a GPU refuse to list its processes, as some drivers do."""
        self._flag(gpu, "nolist")

    def lack(self, *functions: str) -> None:
        """Behave like an older driver without these functions; the C fake is built without them instead."""
        _replace(os.path.join(self.folder, "missing"), "\n".join(functions))

    def split(self, gpu: int, parts: int) -> None:
        """Divide a GPU into MIG instances, in the lines after its own."""
        with self.locked():
            gpus = self.gpus()
            whole = gpus[gpu]
            instance = whole.mem_bytes // parts
            gpus[gpu + 1 : gpu + 1] = [
                FakeGpu(_uuid("MIG"), instance, f"{whole.name} MIG 1g", frozenset({"mig"}))
                for _ in range(parts)
            ]
            self._save(gpus)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock this folder for a change."""
        with open(os.path.join(self.folder, "lock"), "a", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _flag(self, gpu: int, flag: str) -> None:
        with self.locked():
            gpus = self.gpus()
            gpus[gpu] = gpus[gpu]._replace(flags=gpus[gpu].flags | {flag})
            self._save(gpus)

    def _save(self, gpus: list[FakeGpu]) -> None:
        lines = [
            f"{gpu.uuid}\t{gpu.mem_bytes}\t{gpu.name}\t{_flags_text(gpu.flags)}\n" for gpu in gpus
        ]
        _replace(os.path.join(self.folder, "gpus"), "".join(lines))


def from_env() -> FakeGpus | None:
    """Return the fake GPUs of this process's environment, if any."""
    folder = os.environ.get("STOKER_FAKE_NVML")
    return FakeGpus(folder) if folder else None


def _is_alive(process: FakeProcess) -> bool:
    if "host" in process.flags:
        return True
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # the process of another user: alive
    return True


def _uuid(kind: str) -> str:
    digits = os.urandom(16).hex()
    return f"{kind}-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def _flags_text(flags: frozenset[str]) -> str:
    return ",".join(sorted(flags)) or "-"


def _flags_from(text: str) -> frozenset[str]:
    return frozenset(text.split(",")) - {"-"}


def _replace(path: str, text: str) -> None:
    folder, name = os.path.split(path)
    fresh = os.path.join(folder, f".{name}.{os.getpid()}")
    with open(fresh, "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(fresh, path)
