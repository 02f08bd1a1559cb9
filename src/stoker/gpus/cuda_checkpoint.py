"""The driver's checkpoint calls: they move the GPU memory of a process to host RAM and back.

Drivers from version 570 on have them. A process is locked first: its CUDA calls block. Then its memory is
checkpointed and the GPU is free of it. Restore and unlock do the opposite. The calls can hang in the driver:
make them in a process that can be given up.
"""

from __future__ import annotations

import ctypes
import enum
import os

from stoker.errors import StokerError

_LIBRARY = "libcuda.so.1"
_NOT_SUPPORTED = 801
_ARGS_BYTES = 64
_TOO_OLD = "the NVIDIA driver cannot suspend jobs: install version 570 or later"
_CALLS = ("Lock", "Checkpoint", "Restore", "Unlock", "GetState")


class CheckpointError(StokerError):
    """A call of the driver failed, or the driver does not have it."""


class ProcessState(enum.IntEnum):
    """What the driver says of a process that uses CUDA."""

    RUNNING = 0
    LOCKED = 1
    CHECKPOINTED = 2
    FAILED = 3


class CheckpointDriver:
    """The five calls, by the pid of a process of this user."""

    def __init__(self) -> None:
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)  # the GPUs of the caller are not the job's
        try:
            self._library = ctypes.CDLL(_LIBRARY)
        except OSError:
            raise CheckpointError(
                f"cannot suspend jobs: {_LIBRARY} was not found; install the NVIDIA driver"
            ) from None
        if not all(hasattr(self._library, f"cuCheckpointProcess{name}") for name in _CALLS):
            raise CheckpointError(_TOO_OLD)
        code = self._library.cuInit(0)
        if code:
            raise CheckpointError(f"the NVIDIA driver cannot be used: {self._name_of(code)}")

    def state(self, pid: int) -> ProcessState | None:
        """The state of a process; None if it does not use CUDA."""
        state = ctypes.c_int(-1)
        code = self._library.cuCheckpointProcessGetState(pid, ctypes.byref(state))
        return None if code else ProcessState(state.value)

    def lock(self, pid: int, timeout_ms: int) -> None:
        """Let the CUDA calls of a process block; waits for those that are under way."""
        args = ctypes.create_string_buffer(_ARGS_BYTES)
        ctypes.cast(args, ctypes.POINTER(ctypes.c_uint))[0] = timeout_ms
        self._check("Lock", pid, args)

    def checkpoint(self, pid: int) -> None:
        """Move the GPU memory of a locked process to host RAM."""
        self._check("Checkpoint", pid)

    def restore(self, pid: int) -> None:
        """Move the memory of a checkpointed process back to its GPUs; it stays locked.

        Without enough free memory there, the process is lost.
        """
        self._check("Restore", pid)

    def unlock(self, pid: int) -> None:
        """Let the CUDA calls of a locked process go on."""
        self._check("Unlock", pid)

    def _check(self, call: str, pid: int, args: object = None) -> None:
        code = getattr(self._library, f"cuCheckpointProcess{call}")(pid, args)
        if code == _NOT_SUPPORTED:
            raise CheckpointError(
                f"the driver cannot suspend process {pid}: it uses MPS, or memory that processes share"
            )
        if code:
            raise CheckpointError(
                f"the driver could not {call.lower()} process {pid}: {self._name_of(code)}"
            )

    def _name_of(self, code: int) -> str:
        name = ctypes.c_char_p()
        if hasattr(self._library, "cuGetErrorName"):
            self._library.cuGetErrorName(code, ctypes.byref(name))
        return name.value.decode() if name.value else f"CUDA error {code}"
