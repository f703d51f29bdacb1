"""Fixtures for all tests. Fixtures of one room belong into that room's own conftest."""

import socket
from collections.abc import Callable

import pytest

from environments import docker_engine as docker_environment
from environments import live_vllm as live_environment
from environments.docker_engine import docker, docker_engine
from environments.live_vllm import live_vllm

__all__ = ["docker", "docker_engine", "free_port", "live_vllm"]

LIVE_TIMEOUT_S = 1200  # a boot of real vLLM takes 50 to 90 s, and one test may need several


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, with the reason, and give real servers time."""
    no_vllm, no_docker = live_environment.why_not(), docker_environment.why_not()
    for item in items:
        if item.get_closest_marker("live"):
            if no_vllm:
                item.add_marker(pytest.mark.skip(reason=no_vllm))
            if not item.get_closest_marker("timeout"):
                item.add_marker(pytest.mark.timeout(LIVE_TIMEOUT_S))
        if item.get_closest_marker("docker") and no_docker:
            item.add_marker(pytest.mark.skip(reason=no_docker))


@pytest.fixture
def free_port() -> Callable[[], int]:
    """Gives loopback ports that nobody listens on, each one once in a test."""
    given: set[int] = set()

    def give() -> int:
        while True:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = int(probe.getsockname()[1])
            if port not in given:
                given.add(port)
                return port

    return give
