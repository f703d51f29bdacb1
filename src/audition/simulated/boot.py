"""The boot: bind the port, print the log over the boot time, start the EngineCore, take memory; or fail as asked.

What must not live here: the texts (see `bootlog`, `bootfail`) and everything after the boot.
"""

from __future__ import annotations

import errno
import os
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from audition.simulated import bootfail
from audition.simulated.arguments import ServeArguments
from audition.simulated.bootlog import API, BootLine, boot_lines
from audition.simulated.console import emit, fail, log
from audition.simulated.core import EngineCore
from audition.simulated.faults import find
from audition.simulated.settings import Settings

CORE_AT = "Initializing a V1 LLM engine"
MEMORY_AT = "world_size="
KV_AT = "Available KV cache memory"
CONCURRENCY_AT = "Maximum concurrency for"
LOOPBACK = ("localhost", "::1")
HOLD_S = 3600.0 * 24  # a hanging boot sleeps in pieces of this length


class BootFailed(RuntimeError):
    """The boot ends here, everything printed; the process exits with this code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"boot failed with exit code {code}")
        self.code = code


@dataclass(slots=True)
class Booted:
    """What a boot leaves: the bound socket and the EngineCore process."""

    socket: socket.socket
    core: EngineCore


def bind(host: str, port: int) -> socket.socket:
    """Bind the port early, as vLLM does, without listening yet. Raises BootFailed when it is taken.

    The simulation is reachable from this machine only: any other address becomes 127.0.0.1.
    """
    host = host if host in LOOPBACK or host.startswith("127.") else "127.0.0.1"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        fail(bootfail.port_in_use(host, port))
        raise BootFailed(1) from error
    return listener


class Boot:
    """One boot in progress."""

    def __init__(self, arguments: ServeArguments, settings: Settings, max_model_len: int, started: float) -> None:
        self.arguments = arguments
        self.settings = settings
        self.max_model_len = max_model_len
        self.started = started
        self.core: EngineCore | None = None
        slow = find(settings.faults, "slow-boot")
        self.seconds = settings.boot_s
        if slow is not None:
            self.seconds = settings.boot_s * slow.number("factor") + slow.number("seconds")

    def run(self) -> Booted:
        """Boot to the point where uvicorn takes over. Raises BootFailed."""
        listener = bind(self.arguments.host, self.arguments.port)
        for line in boot_lines(self.arguments, self.settings, self.max_model_len):
            self._wait(line.at)
            self._before(line)
            self._print(line)
            self._after(line)
        self._wait(1.0)
        assert self.core is not None
        return Booted(listener, self.core)

    def _wait(self, share: float) -> None:
        time.sleep(max(0.0, self.started + share * self.seconds - time.monotonic()))

    def _print(self, line: BootLine) -> None:
        process, pid = self._who(line.process)
        log(process, pid, line.level, line.source, line.text)

    def _who(self, process: str) -> tuple[str, int]:
        if process == API or self.core is None:
            return process, os.getpid()
        if process == "Worker":
            process = "Worker_TP0" if self.arguments.tensor_parallel_size > 1 else "EngineCore"
        return process, self.core.pid

    def _before(self, line: BootLine) -> None:
        """What happens just before a line: the EngineCore starts, memory is checked, a fault strikes."""
        faults = self.settings.faults
        if CORE_AT in line.text:
            self.core = EngineCore(self.settings, self.arguments.tensor_parallel_size)
        hang = find(faults, "boot-hang")
        if hang is not None and hang.text("after") in line.text:
            self._print(line)
            while True:
                time.sleep(HOLD_S)
        crash = find(faults, "boot-crash")
        if crash is not None and crash.text("after") in line.text:
            text = Path(crash.text("log")).read_text(encoding="utf-8") if crash.text("log") else crash.text("text")
            emit(text or "RuntimeError: simulated boot crash")
            self._end(crash.count("exit_code"))
        if MEMORY_AT in line.text:
            self._check_free()

    def _after(self, line: BootLine) -> None:
        """What happens just after a line: memory is taken, and the KV cache may turn out too small."""
        settings = self.settings
        if line.memory is not None and self.core is not None:
            self.core.hold_share(line.memory)
        if line.text.startswith(KV_AT) and self.max_model_len > settings.kv_tokens:
            kv_gib = settings.gpu_memory_mib * 0.35 / 1024
            self._fail(bootfail.context_too_long(self.max_model_len, settings.kv_tokens, kv_gib))
        if CONCURRENCY_AT in line.text and find(settings.faults, "oom") is not None:
            self._fail(bootfail.out_of_memory(settings.gpu_total_mib, round(settings.gpu_memory_mib * 0.6)))

    def _check_free(self) -> None:
        assert self.core is not None
        full = self.core.first_full_gpu()
        if full is not None:
            gpu, free = full
            share = self.arguments.gpu_memory_utilization
            self._fail(bootfail.memory_taken(gpu, self.settings.gpu_total_mib, free, share))

    def _fail(self, lines: list[bootfail.Line]) -> None:
        for process, source, text in lines:
            name, pid = self._who(process)
            log(name, pid, "ERROR", source, text)
        self._end(1)

    def _end(self, code: int) -> None:
        if self.core is not None:
            self.core.let_go()
        raise BootFailed(code)
