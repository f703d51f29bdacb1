"""Serving: uvicorn with the application, the engine's loop, statistics lines, the EngineCore's watch, shutdown.

What must not live here: the command line and the boot.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import Iterator

import uvicorn
import uvloop

from audition.simulated.app import DEAD, Application, stop_everything
from audition.simulated.arguments import ServeArguments
from audition.simulated.boot import Booted
from audition.simulated.console import UvicornHandler, log
from audition.simulated.engine import Engine
from audition.simulated.faults import find
from audition.simulated.injection import Injector
from audition.simulated.park import Park
from audition.simulated.protocol import Limits
from audition.simulated.settings import Settings
from audition.simulated.statlog import StatLog


class _Server(uvicorn.Server):
    """uvicorn's server without its own signal handling: vLLM has its own, and exits 0."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signals alone."""
        yield


def prefix_caching(arguments: ServeArguments, settings: Settings) -> bool:
    """As asked, else vLLM's default for this hybrid model: off up to 0.27.1, on from 0.28.0."""
    return settings.release >= (0, 28) if arguments.prefix_caching is None else arguments.prefix_caching


class Serving:
    """A booted server, until it ends."""

    def __init__(
        self, arguments: ServeArguments, settings: Settings, rates: tuple[float, ...], max_model_len: int, booted: Booted
    ) -> None:
        wrong = find(settings.faults, "wrong-model-name")
        names = (wrong.text("name"),) if wrong is not None else arguments.served_names
        self.arguments = arguments
        self.settings = settings
        self.rates = rates
        self.booted = booted
        self.limits = Limits(names, max_model_len, settings.release)
        self.ending = False

    def run(self) -> int:
        """Serve until a signal or the death of the EngineCore; returns the exit code, 0 in both cases."""
        self._logging()
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(self._serve())
        self.booted.core.let_go()
        return 0

    def _logging(self) -> None:
        handler = UvicornHandler(self.settings.release)
        for name in ("uvicorn.error", "uvicorn.access"):
            logger = logging.getLogger(name)
            logger.setLevel(logging.INFO)
            logger.addHandler(handler)
            logger.propagate = False

    async def _serve(self) -> None:
        injector = Injector(self.settings)
        self.engine = Engine(
            self.settings, injector, rates=self.rates, max_num_seqs=self.arguments.max_num_seqs,
            budget=self.arguments.max_num_batched_tokens, prefix_caching=prefix_caching(self.arguments, self.settings),
            die=self._die,
        )  # fmt: skip
        park = Park(self.settings, self.engine, self.booted.core)
        self.app = Application(self.arguments, self.settings, limits=self.limits, engine=self.engine, injector=injector, park=park)
        config = uvicorn.Config(
            self.app, log_config=None, access_log=self.arguments.access_log, http="httptools", ws="none",
            lifespan="on", interface="asgi3", proxy_headers=False, backlog=2048, timeout_keep_alive=5,
        )  # fmt: skip
        self.server = _Server(config)
        loop = asyncio.get_running_loop()
        if find(self.settings.faults, "ignore-sigterm") is None:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, self._on_signal)
        watch = self.booted.core.watch()
        loop.add_reader(watch, self._on_core_death, watch)
        tasks = [loop.create_task(self.engine.run())]
        if self.arguments.log_stats:
            tasks.append(loop.create_task(StatLog(self.engine, self.settings).run()))
        await self.server.serve(sockets=[self.booted.socket])
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _die(self, mode: str) -> None:
        """The fault die-mid-leg strikes."""
        os.kill(os.getpid() if mode == "kill" else self.booted.core.pid, signal.SIGKILL)

    def _on_signal(self) -> None:
        if self.ending:
            return
        self.ending = True
        if self.arguments.shutdown_timeout <= 0 or not self.engine.jobs():
            self._end()
            return
        task = asyncio.get_running_loop().create_task(self._drain())
        task.add_done_callback(lambda _: self._end())

    async def _drain(self) -> None:
        """Let requests finish for at most --shutdown-timeout seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.arguments.shutdown_timeout):
                await self.engine.drained.wait()

    def _end(self) -> None:
        stop_everything(self.engine, "abort")
        self.server.should_exit = True

    def _on_core_death(self, watch: int) -> None:
        """The EngineCore died: fail everything in flight, then shut down (exit code 0, as in vLLM #48966)."""
        asyncio.get_running_loop().remove_reader(watch)
        os.close(watch)
        if self.ending:
            return
        self.ending = True
        core, own = self.booted.core.pid, os.getpid()
        log("EngineCore", core, "ERROR", "multiproc_executor.py:296",
            "Worker proc VllmWorker-0 died unexpectedly (exit code: -9), shutting down executor.")  # fmt: skip
        log("EngineCore", core, "ERROR", "core.py:1371", "EngineCore encountered a fatal error.")
        log("APIServer", own, "ERROR", "async_llm.py:744", "AsyncLLM output_handler failed.")
        log("APIServer", own, "ERROR", "async_llm.py:744", f"vllm.v1.engine.exceptions.EngineDeadError: {DEAD}")
        self.app.dead = True
        self.engine.pause()
        stop_everything(self.engine, "error")
        asyncio.get_running_loop().call_later(0.3, self._shut)

    def _shut(self) -> None:
        self.server.should_exit = True
