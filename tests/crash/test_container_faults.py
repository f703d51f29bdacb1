"""Whole runs on a real Docker engine, each with one fault from outside in it: production is back, or it is said loudly why not.

The runner is a fork; where the fault is one of the engine itself, a thread of the test makes it when the runner's file says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from audition.wayback import state
from audition.wayback.proctable import is_alive, own_ref, port_answers
from crash.containers import PROFILE, ContainerWorld
from crash.variants import Cli, EditedContainerWorld, Edits, longer, restore_record, run_record
from crash.world import TINY
from environments.docker_engine import IMAGE, DockerEngine

pytestmark = [pytest.mark.docker, pytest.mark.slow]

OnPoint = Callable[[str, str], None]
ALL_WELL = (0, 3, 4)
LISTEN = "import socket, sys, time; held = socket.create_server(('127.0.0.1', int(sys.argv[1]))); time.sleep(600)"
CRASHES = {'"--model", "m"]': '"--model", "m", "--exit-at-boot", "7"]', "restart: unless-stopped": "restart: always"}
DIES = {'"--model", "m"]': '"--model", "m", "--exit-after-s", "3"]', "restart: unless-stopped": "restart: always"}


def nothing(_step: str, _point: str) -> None: ...


def once(here: ContainerWorld, at: tuple[str, str], act: Callable[[], object]) -> OnPoint:
    """An observer that acts once, at one point, and leaves the file ``struck``."""

    def strike(step: str, point: str) -> None:
        if (step, point) == at and not (here.folder / "struck").exists():
            act()
            (here.folder / "struck").write_text(str(time.time()))

    return strike


def docker_later(here: ContainerWorld, seconds: float, *words: str) -> Callable[[], object]:
    """A docker command from outside, so many seconds from when it is called."""
    command = f"sleep {seconds}; exec docker {' '.join(words)}"
    return lambda: subprocess.Popen(["sh", "-c", command], env=here.env, start_new_session=True, stdout=subprocess.DEVNULL)


@contextmanager
def when_struck(here: ContainerWorld, act: Callable[[], None]) -> Iterator[None]:
    """A thread of the test that acts as soon as the runner has left the file ``struck``; its failure fails the test."""
    failed: list[BaseException] = []

    def wait_and_act() -> None:
        try:
            here.wait((here.folder / "struck").exists, 100, "the fault's moment did not come")
            act()
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failed.append(error)

    thread = threading.Thread(target=wait_and_act)
    thread.start()
    yield
    thread.join()
    assert not failed, failed


def log_of(here: ContainerWorld) -> str:
    return (here.folder / "runner.log").read_text()


def check_back(here: ContainerWorld) -> None:
    """Production as it was, nothing else left, the guard gone, and ``recover`` finds nothing to do."""
    assert (here.folder / "struck").exists(), "the moment of the fault was never reached"
    here.wait(here.quiet, 120, "the guard is still busy")
    assert here.problems() == [], log_of(here)
    recovered = here.audition("recover")
    assert recovered.returncode == 0, recovered.stderr
    assert restore_record(here)["verified"] is True


def world(folder: Path, docker: DockerEngine, edits: Edits, **profiles: dict[str, Edits]) -> EditedContainerWorld:
    return EditedContainerWorld(folder / "world", docker, edits, **profiles)


# ---- the engine


@pytest.mark.parametrize("dead_s", [1, 8], ids=["back within the leg", "back only while production is being restored"])
def test_dockerd_is_killed_in_the_candidates_leg(docker: DockerEngine, tmp_path: Path, dead_s: float) -> None:
    with world(tmp_path, docker, longer(5)) as here:

        def kill_and_restart() -> None:
            time.sleep(1)
            docker.kill()
            time.sleep(dead_s)
            docker.restart()

        with when_struck(here, kill_and_restart):
            code = here.run(once(here, ("leg-2.measure", "after-intent"), lambda: None))
        assert code in (1, 3, 4), log_of(here)
        check_back(here)
        assert run_record(here)["ended"] != "complete"


# ---- containers that die


def test_a_candidate_that_crashes_at_boot_is_a_no_go(docker: DockerEngine, tmp_path: Path) -> None:
    with world(tmp_path, docker, {}, profiles={"candidate.yml": CRASHES}) as here:
        assert here.run(once(here, ("leg-2.ready", "after-intent"), lambda: None)) == 3, log_of(here)
        check_back(here)
        assert "exit code 7" in run_record(here)["end_reason"]


def test_a_candidate_that_dies_by_itself_in_its_leg(docker: DockerEngine, tmp_path: Path) -> None:
    with world(tmp_path, docker, longer(5), profiles={"candidate.yml": DIES}) as here:
        assert here.run(once(here, ("leg-2.measure", "after-intent"), lambda: None)) in (3, 4), log_of(here)
        check_back(here)
        assert run_record(here)["ended"] == "early-end"


@pytest.mark.parametrize(("leg", "ended"), [(1, "failed"), (2, "early-end")])
def test_a_container_is_killed_from_outside_in_a_leg(docker: DockerEngine, tmp_path: Path, leg: int, ended: str) -> None:
    """In leg 1 it is production that dies, in leg 2 the candidate, which holds production's name."""
    with world(tmp_path, docker, longer(3)) as here:
        kill = docker_later(here, 1, "kill", here.name)
        assert here.run(once(here, (f"leg-{leg}.measure", "after-intent"), kill)) in (3, 4), log_of(here)
        check_back(here)
        record = run_record(here)
        assert record["ended"] == ended
        assert "died" in record["end_reason"]


# ---- what is needed to restore goes away


def own_image(docker: DockerEngine, tag: str) -> None:
    """An image of its own, of a container's files, so that removing it removes it."""
    docker.run("create", "--name", "seed", IMAGE)
    docker.run("commit", "--change", "LABEL made=here", "seed", tag)
    docker.run("rm", "seed")


def test_productions_image_tag_and_container_are_removed_and_it_is_made_again_of_the_same_image(
    docker: DockerEngine, tmp_path: Path
) -> None:
    docker.run("tag", IMAGE, "local/prod:1")
    with world(tmp_path, docker, longer(2), profiles={"production.yml": {IMAGE: "local/prod:1"}}) as here:

        def remove() -> None:
            docker.run("rm", "-f", here.before["Id"])
            docker.run("rmi", "local/prod:1")

        code = here.run(once(here, ("leg-2.measure", "after-intent"), remove))
        assert code in (0, 3, 4), log_of(here)
        here.wait(here.quiet, 120, "the guard is still busy")
        assert here.answers()
        now = docker.inspect(here.name)
        assert now["Id"] != here.before["Id"]
        assert now["Image"] == here.before["Image"], "the same image, found by its id"
        assert [c["Id"] for c in here.containers()] == [now["Id"]]
        for key in ("Cmd", "Entrypoint"):
            assert now["Config"][key] == here.before["Config"][key]
        assert sorted(now["Config"]["Env"]) == sorted(here.before["Config"]["Env"])  # their order is compose's, and chance
        assert restore_record(here)["verified"] is True
        assert here.audition("recover").returncode == 0


def test_productions_image_is_gone_for_good_which_is_said_with_what_to_type(docker: DockerEngine, tmp_path: Path) -> None:
    own_image(docker, "local/prod:2")
    saved = tmp_path / "prod.tar"
    docker.run("save", "-o", str(saved), "local/prod:2")
    with world(tmp_path, docker, {}, profiles={"production.yml": {IMAGE: "local/prod:2"}}) as here:

        def remove() -> None:
            docker.run("rm", "-f", here.before["Id"])
            docker.run("rmi", "-f", "local/prod:2")

        code = here.run(once(here, ("leg-2.measure", "after-intent"), remove))
        log = log_of(here)
        assert code == 7, log
        report = restore_record(here)
        assert report["verified"] is False
        text = "; ".join(report["problems"])
        assert "The image local/prod:2" in text
        assert "is gone. Type: docker load -i ARCHIVE" in text
        assert report["manual"][0] == "audition recover"
        assert not here.answers()
        assert list((here.folder / "state").glob(f"runs/*/{state.FAILED}"))
        docker.run("load", "-i", str(saved))
        recovered = here.audition("recover")
        assert recovered.returncode == 0, recovered.stderr
        assert here.answers()
        assert docker.inspect(here.name)["Image"] == here.before["Image"]
    docker.run("rm", "-f", here.name, check=False)
    docker.run("rmi", "-f", "local/prod:2")


# ---- strangers


def test_a_stranger_on_the_port_is_never_killed_and_named_and_recover_goes_on_when_it_has_left(
    docker: DockerEngine, tmp_path: Path
) -> None:
    with world(tmp_path, docker, {}) as here:
        stranger: list[int] = []
        note = here.folder / "stranger"

        def take_port() -> None:
            child = subprocess.Popen([sys.executable, "-c", LISTEN, str(here.port)], start_new_session=True)
            note.write_text(str(child.pid))
            here.wait(lambda: port_answers(here.port), 30, "the stranger does not listen")

        try:
            code = here.run(once(here, ("leg-3.stop", "after-effect"), take_port))
            stranger.append(int(note.read_text()))
            who = own_ref(stranger[0])
            log = log_of(here)
            assert code == 7, log
            text = "; ".join(restore_record(here)["problems"])
            assert f"port {here.port} is taken by something else" in text
            assert f"pid {stranger[0]}" in text
            again = here.audition("recover")
            assert again.returncode == 7
            assert "PRODUCTION IS NOT BACK" in again.stderr
            assert f"pid {stranger[0]}" in again.stderr
            assert is_alive(who), "a stranger is never ended"
        finally:
            for pid in stranger:
                subprocess.run(["kill", "-9", str(pid)], check=True)
        here.wait(lambda: not port_answers(here.port), 30, "the stranger's port is still open")
        recovered = here.audition("recover")
        assert recovered.returncode == 0, recovered.stderr
        assert here.problems() == []


def strangers_container(docker: DockerEngine, folder: Path, name: str) -> dict[str, Any]:
    """A running container of another compose project with that name; it listens nowhere."""
    folder.mkdir(exist_ok=True)
    text = PROFILE.format(image=IMAGE, name=name, launch="import time; time.sleep(600)", tiny=TINY, arm="stranger")
    (folder / "other.yml").write_text(text)
    (folder / "other.env").write_text("PORT=1\nAPI_KEY=other\n")
    docker.compose("-p", "stranger", "-f", "other.yml", "--env-file", "other.env", "up", "-d", "--pull", "never", cwd=folder)
    return docker.inspect(name)


def same_container(docker: DockerEngine, before: dict[str, Any]) -> bool:
    now = docker.inspect(before["Id"])
    return all(now[key] == before[key] for key in ("Name", "State", "RestartCount", "Config"))


def test_a_strangers_container_takes_productions_name_in_the_window_and_is_never_touched(
    docker: DockerEngine, tmp_path: Path
) -> None:
    """It appears after the candidate has given the name up and before production's container, renamed aside, gets it back."""
    with world(tmp_path, docker, {}) as here:
        note = tmp_path / "stranger.json"

        def take_name() -> None:
            note.write_text(json.dumps(strangers_container(docker, tmp_path / "elsewhere", here.name)))

        code = here.run(once(here, ("leg-3.stop", "after-effect"), take_name))
        stranger = json.loads(note.read_text())
        assert code == 7, log_of(here)
        assert f"the name {here.name} is held by another container ({stranger['Id'][:12]}" in "; ".join(
            restore_record(here)["problems"]
        )
        assert same_container(docker, stranger), "a stranger's container is never touched"
        docker.run("rename", stranger["Id"], "somebody-elses")
        recovered = here.audition("recover")
        assert recovered.returncode == 0, recovered.stderr
        assert here.problems() == []
        assert docker.inspect("somebody-elses")["State"] == stranger["State"]


def test_a_strangers_container_with_productions_name_before_the_run_refuses_it(docker: DockerEngine, tmp_path: Path) -> None:
    here = world(tmp_path, docker, {})
    stranger = strangers_container(docker, tmp_path / "elsewhere", here.name)
    run = Cli(here)
    assert run.end() == 5, run.said()
    assert "belongs to another container" in run.said()
    assert same_container(docker, stranger)
    assert here.containers() == []


# ---- sidecars


@pytest.mark.parametrize("victims", [[], ["runner"], ["guard", "runner"]], ids=["nobody", "runner", "guard and runner"])
def test_a_holder_of_the_docker_socket_stands_still_in_the_window_and_runs_again(
    docker: DockerEngine, tmp_path: Path, victims: list[str]
) -> None:
    path = docker.env["DOCKER_HOST"].removeprefix("unix://")
    docker.run("run", "-d", "--network", "none", "--name", "watchdog", "-v", f"{path}:/var/run/docker.sock", IMAGE, "sleep", "600")
    with world(tmp_path, docker, {}) as here:
        note = here.folder / "in-the-window"

        def look_and_strike() -> None:
            note.write_text(str(docker.inspect("watchdog")["State"]["Running"]))
            (here.folder / "struck").touch()
            if victims:
                here.strike(victims)

        code = here.run(once(here, ("leg-2.measure", "after-intent"), look_and_strike))
        assert code == (-9 if victims else code), log_of(here)
        assert code in (-9, *ALL_WELL)
        assert note.read_text() == "False"
        if "guard" in victims:
            assert not docker.inspect("watchdog")["State"]["Running"]
            assert here.audition("recover").returncode == 0
        here.wait(here.quiet, 120, "the guard is still busy")
        assert here.problems() == [], log_of(here)
        assert docker.inspect("watchdog")["State"]["Running"]
