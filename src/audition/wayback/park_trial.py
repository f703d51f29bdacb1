"""Whether the driver's checkpoint calls work on this machine, tried on a throw-away context and never on production first.

A child takes a CUDA context (a few hundred MiB of GPU memory, for seconds) and 16 MiB on it, is parked and resumed, and must find
its memory as it left it.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time

from audition.wayback.park import park, unpark
from audition.wayback.park_cuda import CudaParker
from audition.wayback.proctable import own_ref
from audition.wayback.server import WaybackError

LIMIT_S = 60.0
"""Of each wait: a context takes a second, the moves less."""

CHILD = """
import ctypes, sys
cuda = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
size = ctypes.c_size_t(16 << 20)
seen = (ctypes.c_ubyte * size.value)()
def do(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        print(f"{name} gave CUDA error {code}", flush=True)
        sys.exit(1)
do("cuInit", 0)
do("cuDeviceGet", ctypes.byref(device), int(sys.argv[1]))
do("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
do("cuCtxSetCurrent", context)
do("cuMemAlloc_v2", ctypes.byref(memory), size)
for turn in range(256):
    do("cuMemsetD8_v2", memory, turn, size)
    do("cuCtxSynchronize")
    print("ready", flush=True)
    if not sys.stdin.readline():
        break
    do("cuMemcpyDtoH_v2", seen, memory, size)
    if bytes(seen) != bytes([turn]) * size.value:
        print("memory was not as it had been left", flush=True)
        sys.exit(1)
"""
"""Also what the contract's tests park: it answers ``ready`` to each line, after work on the GPU and a look at its memory."""


def child_environment() -> dict[str, str]:
    """The environment in which a GPU's index means the same as for nvidia-smi."""
    env = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return {**env, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}


def try_out(gpu: int) -> str:
    """Why parking does not work on this machine; "" when a throw-away process on that GPU was parked and resumed. Never raises."""
    words = [sys.executable, "-I", "-S", "-c", CHILD, str(gpu)]
    try:
        child = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=child_environment()
        )
    except OSError as error:
        return f"the trial could not be started: {error}"
    try:
        if (said := _line(child)) != "ready":
            return f"no throw-away context could be had on GPU {gpu}: {said}"
        refs = [own_ref(child.pid)]
        parker = CudaParker(LIMIT_S)
        park(parker, refs, LIMIT_S)
        unpark(parker, refs)
        assert child.stdin is not None
        child.stdin.write(b"\n")
        child.stdin.flush()
        said = _line(child)
        return "" if said == "ready" else f"a throw-away process did not work after it was resumed: {said}"
    except (WaybackError, OSError) as error:
        return f"a throw-away process could not be parked: {error}"
    finally:
        child.kill()
        child.wait()


def _line(child: subprocess.Popen[bytes]) -> str:
    """The child's next line, or what there is instead, within the limit."""
    assert child.stdout is not None
    data, until = b"", time.monotonic() + LIMIT_S
    while not data.endswith(b"\n"):
        ready, _, _ = select.select([child.stdout], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return f"nothing within {LIMIT_S:.0f} s"
        part = os.read(child.stdout.fileno(), 4096)
        if not part:
            return data.decode("utf-8", "replace").strip() or "it ended without a word"
        data += part
    return data.decode("utf-8", "replace").strip()
