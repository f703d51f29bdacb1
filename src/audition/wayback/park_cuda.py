"""The NVIDIA driver's process checkpoint calls through ctypes: the standard library alone, because the guard must unpark, too.

Signatures and structures are those of cuda.h 13.0 (CUDA driver API, section "CUDA Checkpointing"): every argument structure has 64
bytes, reserved ones are zero, and only the lock has a member that is used. The order of calls lives in ``park``.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from audition.wayback.park import State
from audition.wayback.plan import ProcessRef
from audition.wayback.proctable import is_alive
from audition.wayback.server import WaybackError

OLDEST_DRIVER = 570
"""First driver branch with these calls for another process (CUDA 12.8)."""
LIBRARY = "libcuda.so.1"
_STATES: tuple[State, ...] = ("running", "locked", "parked", "failed", "moving", "moving")
"""CUprocessState by value. 4 and 5 (checkpointing, restoring) are of drivers newer than those that were tried."""
_ARGS_BYTES = 64
_SUCCESS, _INVALID_VALUE = 0, 1
_ERRORS = {
    1: "invalid value", 3: "not initialized", 100: "no device", 304: "operating system error", 401: "illegal state",
    600: "not ready (time is over)", 800: "not permitted", 801: "not supported", 999: "unknown error",
}  # fmt: skip
_ASK_S = 20.0
_VERSION_FILES = ("/proc/driver/nvidia/version", "/sys/module/nvidia/version")


def driver_version() -> tuple[int, ...] | None:
    """The kernel driver's version, e.g. (580, 95, 5); None when there is no NVIDIA driver or it does not say."""
    for name in _VERSION_FILES:
        try:
            text = Path(name).read_text(encoding="ascii", errors="replace")
        except OSError:
            continue
        found = re.search(r"\b(\d{3,4})\.(\d+)(?:\.(\d+))?\b", text)
        if found:
            return tuple(int(part) for part in found.groups() if part is not None)
    return None


class CudaParker:
    """Parks processes that hold a CUDA context. ``move_s``: limit in seconds of one checkpoint or restore.

    Raises WaybackError, also when made, where the driver is missing, too old or refuses.
    """

    kind: Literal["cuda", "stop"] = "cuda"

    def __init__(self, move_s: float = 600.0) -> None:
        self._move_s = move_s
        self._cuda = _library()

    def state(self, ref: ProcessRef) -> State:
        """As the driver says. Raises WaybackError for a process without a CUDA context."""
        import ctypes  # noqa: PLC0415

        if not is_alive(ref):
            return "gone"
        value = ctypes.c_int(-1)
        _call(self._cuda, "cuCheckpointProcessGetState", ref, _ASK_S, ctypes.byref(value))
        if not 0 <= value.value < len(_STATES):
            raise WaybackError(f"the driver gives process {ref.pid} the unknown state {value.value}")
        return _STATES[value.value]

    def lock(self, ref: ProcessRef, limit_s: float) -> None:
        """cuCheckpointProcessLock with its own time-out: timeoutMs is the first member of CUcheckpointLockArgs."""
        self._move("cuCheckpointProcessLock", ref, limit_s + _ASK_S, timeout_ms=max(1, round(limit_s * 1000)))

    def checkpoint(self, ref: ProcessRef) -> None:
        """cuCheckpointProcessCheckpoint: GPU memory goes to host memory, and the GPU is let go."""
        self._move("cuCheckpointProcessCheckpoint", ref, self._move_s)

    def restore(self, ref: ProcessRef) -> None:
        """cuCheckpointProcessRestore onto the same GPUs."""
        self._move("cuCheckpointProcessRestore", ref, self._move_s)

    def unlock(self, ref: ProcessRef) -> None:
        """cuCheckpointProcessUnlock."""
        self._move("cuCheckpointProcessUnlock", ref, _ASK_S)

    def _move(self, name: str, ref: ProcessRef, limit_s: float, timeout_ms: int = 0) -> None:
        import ctypes  # noqa: PLC0415

        if not is_alive(ref):  # right before the call: the driver takes a pid, which alone is no identity
            raise WaybackError(f"process {ref.pid} is gone")
        arguments = (ctypes.c_uint32 * (_ARGS_BYTES // 4))()
        arguments[0] = timeout_ms
        _call(self._cuda, name, ref, limit_s, ctypes.byref(arguments))


_LOADED: dict[str, Any] = {}


def _library() -> Any:
    """The initialised driver library, once a process. Raises WaybackError."""
    if LIBRARY in _LOADED:
        return _LOADED[LIBRARY]
    try:
        import ctypes  # noqa: PLC0415 - not every Python has it, and the sleeping guard does not need it

        cuda = ctypes.CDLL(LIBRARY)
    except (ImportError, OSError) as error:
        raise WaybackError(f"{LIBRARY} cannot be loaded: {error}") from error
    version = driver_version()
    if version is not None and version[0] < OLDEST_DRIVER:
        shown = ".".join(map(str, version))
        raise WaybackError(f"the driver is {shown}; parking needs {OLDEST_DRIVER} or newer")
    for name in ("GetState", "Lock", "Checkpoint", "Restore", "Unlock"):
        try:
            function = getattr(cuda, f"cuCheckpointProcess{name}")
        except AttributeError as error:
            raise WaybackError(f"{LIBRARY} has no cuCheckpointProcess{name}: parking needs {OLDEST_DRIVER} or newer") from error
        function.argtypes, function.restype = [ctypes.c_int, ctypes.c_void_p], ctypes.c_int
    cuda.cuInit.argtypes, cuda.cuInit.restype = [ctypes.c_uint], ctypes.c_int
    code = _within(lambda: int(cuda.cuInit(0)), 60.0, "cuInit")
    if code != _SUCCESS:
        raise WaybackError(f"cuInit failed: {_words(code)}")
    _LOADED[LIBRARY] = cuda
    return cuda


def _call(cuda: Any, name: str, ref: ProcessRef, limit_s: float, argument: Any) -> None:
    code = _within(lambda: int(getattr(cuda, name)(ref.pid, argument)), limit_s, f"{name} of process {ref.pid}")
    if code == _INVALID_VALUE and name.endswith("GetState"):
        raise WaybackError(f"the driver knows no CUDA context of process {ref.pid}")
    if code != _SUCCESS:
        raise WaybackError(f"{name} of process {ref.pid} failed: {_words(code)}")


def _words(code: int) -> str:
    return f"CUDA error {code}" + (f" ({_ERRORS[code]})" if code in _ERRORS else "")


def _within(call: Callable[[], int], limit_s: float, what: str) -> int:
    """The call's answer, made in a thread: the driver knows no time-out of its own. Raises WaybackError when the limit is over; the
    call then goes on by itself, and the state of the process has to be asked for."""
    answer: list[int] = []
    thread = threading.Thread(target=lambda: answer.append(call()), daemon=True)
    thread.start()
    thread.join(limit_s)
    if not answer:
        raise WaybackError(f"{what} has not answered within {limit_s:.0f} s")
    return answer[0]
