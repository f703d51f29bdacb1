"""Strangers are never touched: generated worlds of look-alike containers, and a check that shares no code with what it checks.

The engine is a fake that answers the few docker commands that are used; the same commands run against a real engine in
test_docker_server.py.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from audition.wayback.docker import ContainerServer
from audition.wayback.docker_cli import Docker, Ran
from audition.wayback.plan import ArmTarget, ContainerTarget
from audition.wayback.server import WaybackError

OWN_ID = "a" * 64
NAME, ASIDE, CANDIDATE = "llm-medium", "llm-medium-aside", "audition-run-1-mtp"
COMPOSE = {
    "com.docker.compose.project": "llm",
    "com.docker.compose.service": "engine",
    "com.docker.compose.project.working_dir": "/srv/llm",
    "com.docker.compose.oneoff": "False",
}
RUN = {"audition.run": "run-1", "audition.arm": "mtp"}


class FakeEngine(Docker):
    """Containers in memory. ``touched``: every container that a command changed, as it was before the command."""

    def __init__(self, containers: list[dict[str, Any]]) -> None:
        super().__init__(["docker"], {"PATH": "/nowhere"})
        self.containers = containers
        self.touched: list[tuple[str, dict[str, Any]]] = []
        self.networks: dict[str, dict[str, str]] = {}

    def endpoint(self) -> str:
        return "ssh://elsewhere"

    def call(self, argv: list[str], *, timeout_s: float, merge: bool = False) -> Ran:
        verb, words = argv[1], argv[2:]
        if verb == "container":
            found = [c for word in words[1:] for c in self.containers if word in (c["Id"], c["Name"][1:])]
            return Ran(0 if found else 1, json.dumps(found), "" if found else "Error: No such container: x")
        if verb == "ps":
            wanted = [w.removeprefix("label=").partition("=") for w in words if w.startswith("label=")]
            hits = [c["Id"] for c in self.containers if all(c["Config"]["Labels"].get(k) == v for k, _, v in wanted)]
            return Ran(0, "\n".join(hits), "")
        if verb in ("stop", "start", "rm", "rename", "unpause"):
            return self._change(verb, words)
        if verb == "network" and words[0] == "ls":
            wanted = [w.removeprefix("label=").partition("=") for w in words if w.startswith("label=")]
            return Ran(0, "\n".join(n for n, marks in self.networks.items() if all(marks.get(k) == v for k, _, v in wanted)), "")
        if verb == "network":
            self.networks.pop(words[1])
            return Ran(0, "", "")
        if verb == "image":
            return Ran(0, json.dumps([{"Id": "sha256:1"}]), "")
        return Ran(0, "", "")

    def _change(self, verb: str, words: list[str]) -> Ran:
        at = next((i for i, word in enumerate(words) if any(word == c["Id"] for c in self.containers)), None)
        assert at is not None, f"{verb} {words} names no container by its full id"
        container = next(c for c in self.containers if c["Id"] == words[at])
        self.touched.append((verb, json.loads(json.dumps(container))))
        if verb == "stop":
            container["State"].update(Running=False, Restarting=False, Pid=0, Status="exited")
        elif verb == "start":
            container["State"].update(Running=True, Pid=5, Status="running")
        elif verb == "rm":
            self.containers.remove(container)
        elif verb == "rename":
            if any(c["Name"] == f"/{words[at + 1]}" for c in self.containers):
                return Ran(1, "", f"Error response from daemon: Conflict. The container name {words[at + 1]} is already in use")
            container["Name"] = f"/{words[at + 1]}"
        return Ran(0, "", "")


@st.composite
def worlds(draw: st.DrawFn) -> list[dict[str, Any]]:
    others = st.lists(st.sampled_from([ASIDE, CANDIDATE, "watchdog", "x1", "x2"]), max_size=4, unique=True)
    names = draw(st.permutations([*draw(st.sampled_from([[NAME], [NAME], []])), *draw(others)]))
    made = []
    for number, name in enumerate(names):
        labels: dict[str, str] = {}
        for key, value in {**COMPOSE, **RUN}.items():
            labels |= draw(st.sampled_from([{}, {key: value}, {key: value}, {key: f"{value}x"}]))
        whole = [labels, labels, COMPOSE, RUN, {**COMPOSE, "audition.run": "another"}, {**labels, **COMPOSE}]
        labels = dict(draw(st.sampled_from(whole)))
        if draw(st.booleans()):
            labels.pop("audition.run", None)
        running = draw(st.booleans())
        state: dict[str, Any] = {
            "Running": running,
            "Restarting": running and draw(st.booleans()),
            "Paused": running and draw(st.booleans()),
        }
        state |= {
            "Pid": 7 if running else 0,
            "Status": "running" if running else "exited",
            "ExitCode": 0,
            "OOMKilled": False,
            "StartedAt": "t",
        }
        own = number == 0 and draw(st.booleans())
        identity = OWN_ID if own else f"{number + 1:064x}"
        config = {"Labels": labels, "Image": "img", "Env": [], "Cmd": []}
        host = {"NetworkMode": "host"}
        made.append(
            {
                "Id": identity,
                "Name": f"/{name}",
                "Created": str(number),
                "State": state,
                "RestartCount": 0,
                "Image": "sha256:1",
                "Config": config,
                "HostConfig": host,
            }
        )
    return made


def is_production(container: dict[str, Any]) -> bool:
    """The container that ran when the plan was made, or one that compose made of the same project, service and folder since."""
    labels = container["Config"]["Labels"]
    if "audition.run" in labels:
        return bool(container["Id"] == OWN_ID)
    return bool(container["Id"] == OWN_ID) or all(labels.get(key) == value for key, value in COMPOSE.items())


def is_candidate(container: dict[str, Any]) -> bool:
    labels = container["Config"]["Labels"]
    return bool(labels.get("audition.run") == "run-1" and labels.get("audition.arm") == "mtp")


def production(engine: FakeEngine) -> ContainerServer:
    recreate = [["docker", "compose", "up", "engine"]]
    server = ContainerServer(ArmTarget("v2g", 1, 0, container=ContainerTarget(["docker"], {}, OWN_ID, NAME, COMPOSE, recreate)))
    server.cli = engine
    return server


def candidate(engine: FakeEngine, *, takes_name: bool) -> ContainerServer:
    displaces = {"container_id": OWN_ID, "labels": COMPOSE, "name": NAME, "aside": ASIDE}
    name, snapshot = (NAME, {"displaces": displaces}) if takes_name else (CANDIDATE, {})
    start = [["docker", "compose", "up", "engine"]]
    server = ContainerServer(ArmTarget("mtp", 1, 0, container=ContainerTarget(["docker"], {}, "", name, RUN, [], start, snapshot)))
    server.cli = engine
    return server


VERBS = ["view", "start", "stop", "candidate-view", "candidate-start", "candidate-start", "candidate-stop"]
OPERATIONS = st.lists(st.sampled_from(VERBS), min_size=1, max_size=6)


@settings(max_examples=1500, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(), OPERATIONS, st.booleans())
def test_only_productions_and_the_candidates_own_containers_are_touched(
    containers: list[dict[str, Any]], operations: list[str], takes_name: bool
) -> None:
    engine = FakeEngine(containers)
    for operation in operations:
        server = candidate(engine, takes_name=takes_name) if operation.startswith("candidate") else production(engine)
        before = len(engine.touched)
        with contextlib.suppress(WaybackError):
            match operation.rpartition("-")[2]:
                case "view":
                    server.view()
                case "start":
                    server.start()
                case "stop":
                    server.stop(1)
        for verb, touched in engine.touched[before:]:
            if operation.startswith("candidate"):
                stepped_aside = verb == "rename" and takes_name and is_production(touched) and not touched["State"]["Running"]
                assert is_candidate(touched) or stepped_aside, (operation, verb, touched)
            else:
                assert is_production(touched), (operation, verb, touched)
                assert verb != "rm", "production's container is never removed"
        if operation.endswith("view"):
            assert len(engine.touched) == before


def test_the_generated_worlds_do_hold_targets_and_look_alikes() -> None:
    """The property above would hold for nothing but strangers, too; count that targets are really acted upon."""
    counts = {"production": 0, "candidate": 0, "stranger": 0, "acted": 0}

    @settings(max_examples=300, deadline=None, derandomize=True, database=None)
    @given(worlds())
    def count(containers: list[dict[str, Any]]) -> None:
        for container in containers:
            kind = "candidate" if is_candidate(container) else "production" if is_production(container) else "stranger"
            counts[kind] += 1
        engine = FakeEngine(containers)
        candidate(engine, takes_name=True).stop(1)
        with contextlib.suppress(WaybackError):
            production(engine).start()
        counts["acted"] += bool(engine.touched)

    count()
    assert min(counts.values()) >= 20, counts


def test_only_networks_of_the_run_and_arm_are_removed() -> None:
    engine = FakeEngine([])
    engine.networks = {"own": RUN, "of-another-arm": {**RUN, "audition.arm": "control"}, "productions": COMPOSE, "bare": {}}
    candidate(engine, takes_name=False).stop(1)
    assert sorted(engine.networks) == ["bare", "of-another-arm", "productions"]
    production(engine).stop(1)
    assert len(engine.networks) == 3
