"""Runs one closed-loop workload with audition's client and prints what it cost, as JSON. For ``client.py``.

usage: one_workload.py URL USERS REQUESTS TOKENS FOLDER
"""

from __future__ import annotations

import json
import resource
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import uvloop

from audition.load.workload import run_workload
from audition.spike.model import Workload


@dataclass(frozen=True)
class Server:
    """Where it answers."""

    url: str
    model: str = "m"
    api_key: str | None = None


def main() -> None:
    """Run, then print CPU seconds of this process, its peak memory, and the record."""
    url, users, requests, tokens, folder = sys.argv[1], *map(int, sys.argv[2:5]), Path(sys.argv[5])
    workload = Workload(name="w", users=users, requests=requests, max_tokens=tokens, warmup=0, ignore_eos=True)
    salt = f"{time.time_ns()}"
    record = uvloop.run(
        run_workload(Server(url), workload, leg_salt=salt, seed=1, out_dir=folder, alive=lambda: True, give_up=lambda: False)
    )
    cpu, memory = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"cpu_s": cpu, "rss_mib": memory / 1024, "salt": salt, "record": asdict(record)}))


if __name__ == "__main__":
    main()
