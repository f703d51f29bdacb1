"""The simulated EngineCore process: it holds GPU memory in the ledger and dies with its parent. Nothing else.

Run as a script with `python -I -S worker.py OPTIONS-JSON`, so it imports only what it needs (about 10 MB resident).
It obeys lines on standard input, {"gpus": {"0": 20000}} in MiB, and answers "ok" to each. The end of input means that
the API server is gone.

What must not live here: scheduling, HTTP, printing. The reader of the ledger is `ledger`.
"""

import contextlib
import fcntl
import json
import os
import signal
import sys
import time

WIDTH = 512  # bytes; one fixed-width write replaces the whole entry


def _entry(gpus: dict[str, int]) -> bytes:
    return json.dumps({"pid": os.getpid(), "gpus": gpus}).ljust(WIDTH).encode() + b"\n"


class Holding:
    """This process's locked ledger file."""

    def __init__(self, directory: str) -> None:
        os.makedirs(directory, exist_ok=True)
        self.path = os.path.join(directory, f"{os.getpid()}.json")
        hidden = os.path.join(directory, f".{os.getpid()}.new")
        self.descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        fcntl.flock(self.descriptor, fcntl.LOCK_EX)
        os.pwrite(self.descriptor, _entry({}), 0)
        os.rename(hidden, self.path)  # visible only once locked and complete

    def set(self, gpus: dict[str, int]) -> None:
        """Hold so many MiB on each GPU from now on."""
        os.pwrite(self.descriptor, _entry(gpus), 0)

    def release(self) -> None:
        """Remove the entry; the lock falls with the process."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)


def main() -> None:
    """Hold memory until the parent is gone (or, as an orphan, for the stated time longer)."""
    options = json.loads(sys.argv[1])
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # the group's SIGTERM is the API server's business
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as name:
        name.write("VLLM::EngineCor")
    holding = Holding(options["ledger"]) if options["ledger"] else None
    sys.stdout.write("ok\n")
    sys.stdout.flush()
    for line in sys.stdin:
        if holding is not None:
            holding.set(json.loads(line)["gpus"])
        sys.stdout.write("ok\n")
        sys.stdout.flush()
    if options["orphan_s"]:
        time.sleep(options["orphan_s"])
    if holding is not None:
        holding.release()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError):
        main()
