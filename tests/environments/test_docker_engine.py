"""The private Docker engine itself: containers by compose, a crash of the daemon, nothing left behind."""

import http.client
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from environments.docker_engine import IMAGE, DockerEngine

pytestmark = [pytest.mark.docker, pytest.mark.slow]


def write_profile(folder: Path, port: int, *, restart: str) -> None:
    (folder / "compose.yml").write_text(
        f"""\
services:
  web:
    image: {IMAGE}
    pull_policy: never
    container_name: audition-smoke-{port}
    network_mode: host
    restart: "{restart}"
    stop_grace_period: 1s
    command: ["python3", "-m", "http.server", "--bind", "127.0.0.1", "{port}"]
"""
    )


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def wait_until(condition: Callable[[], bool], limit_s: float = 30) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True


def test_a_compose_service_is_started_observed_and_stopped(
    docker: DockerEngine, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    port = free_port()
    write_profile(tmp_path, port, restart="no")
    docker.compose("up", "--detach", "--pull", "never", cwd=tmp_path)
    assert wait_until(lambda: answers(port))
    seen = docker.inspect(f"audition-smoke-{port}")
    assert seen["State"]["Status"] == "running"
    assert seen["HostConfig"]["NetworkMode"] == "host"
    assert seen["Config"]["Labels"]["com.docker.compose.service"] == "web"
    assert Path(f"/proc/{seen['State']['Pid']}").exists()

    docker.compose("stop", cwd=tmp_path)
    assert docker.inspect(f"audition-smoke-{port}")["State"]["Status"] == "exited"
    assert not answers(port)


def test_a_published_port_answers_until_the_daemon_dies(docker: DockerEngine, tmp_path: Path, free_port: Callable[[], int]) -> None:
    port = free_port()
    (tmp_path / "compose.yml").write_text(
        f"""\
services:
  web:
    image: {IMAGE}
    pull_policy: never
    container_name: audition-smoke-{port}
    ports: ["127.0.0.1:{port}:8000"]
    stop_grace_period: 1s
    command: ["python3", "-m", "http.server", "8000"]
"""
    )
    docker.compose("up", "--detach", cwd=tmp_path)
    assert wait_until(lambda: answers(port))
    process = Path(f"/proc/{docker.inspect(f'audition-smoke-{port}')['State']['Pid']}")
    docker.kill()
    assert wait_until(lambda: not answers(port))
    assert process.exists(), "the container lives on, only its port is closed"


@pytest.mark.parametrize(("restart", "afterwards"), [("always", "running"), ("unless-stopped", "exited")])
def test_a_killed_daemon_is_restarted(
    docker: DockerEngine, tmp_path: Path, free_port: Callable[[], int], restart: str, afterwards: str
) -> None:
    port = free_port()
    write_profile(tmp_path, port, restart=restart)
    docker.compose("up", "--detach", "--pull", "never", cwd=tmp_path)
    assert wait_until(lambda: answers(port))

    docker.kill()
    assert docker.pid is None
    assert docker.run("ps", check=False).returncode != 0
    assert answers(port), "a container on the host's network outlives its daemon"

    docker.restart()
    name = f"audition-smoke-{port}"
    assert wait_until(lambda: docker.inspect(name)["State"]["Status"] == afterwards)
    assert wait_until(lambda: answers(port) is (afterwards == "running"))


def test_live_restore_keeps_a_container_through_a_crash_of_the_daemon(
    docker: DockerEngine, tmp_path: Path, free_port: Callable[[], int]
) -> None:
    port = free_port()
    write_profile(tmp_path, port, restart="no")
    docker.restart(live_restore=True)
    docker.compose("up", "--detach", "--pull", "never", cwd=tmp_path)
    assert wait_until(lambda: answers(port))
    name = f"audition-smoke-{port}"
    before = docker.inspect(name)["State"]
    docker.kill()
    docker.start(live_restore=True)
    after = docker.inspect(name)["State"]
    assert (after["Status"], after["Pid"], after["StartedAt"]) == ("running", before["Pid"], before["StartedAt"])
    docker.clean()
    docker.restart()


def test_tear_down_leaves_nothing_even_when_the_daemon_is_dead(tmp_path: Path, docker: DockerEngine) -> None:
    folder = Path(f"/tmp/aud-{os.getpid()}")
    folder.mkdir()
    second = DockerEngine(folder)
    try:
        second.start()
        second.run("run", "--detach", "--network", "none", IMAGE, "sleep", "600")
        second.kill()
        assert any("shim" in line for line in second.leftovers())
    finally:
        second.tear_down()
    assert second.leftovers() == []
    assert docker.containers() == []
