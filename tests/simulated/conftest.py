"""Fixtures that start real simulated servers and make sure that none is left behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simulated.simserver import MTP3, Server, Start


def _starter(folder: Path) -> Iterator[Start]:
    servers: list[Server] = []

    def start(*args: str, ready: bool = True, env: dict[str, str] | None = None, **settings: Any) -> Server:
        server = Server(folder, args, settings, env or {})
        servers.append(server)
        return server.wait_ready() if ready else server

    try:
        yield start
    finally:
        for server in servers:
            server.kill_group()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start servers that end with the test: start("--flag", ..., ready=False, setting=value)."""
    yield from _starter(tmp_path)


@pytest.fixture(scope="session")
def start_shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    yield from _starter(tmp_path_factory.mktemp("simulated"))


@pytest.fixture(scope="session")
def plain(start_shared: Start) -> Server:
    """A shared server without speculative decoding, with thinking and tools."""
    return start_shared(
        "--reasoning-parser", "qwen3", "--enable-auto-tool-choice", "--tool-call-parser", "qwen3_coder", "--api-key", "key"
    )  # fmt: skip


@pytest.fixture(scope="session")
def mtp(start_shared: Start) -> Server:
    """A shared server with MTP, k = 3."""
    return start_shared("--reasoning-parser", "qwen3", *MTP3, version="0.24.0", stats_interval_s=0.3)
