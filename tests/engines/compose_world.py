"""A folder with compose profiles of tiny servers, and engines made of them, for tests against a real Docker engine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from audition.engines.compose import ComposeEngine
from audition.spike.model import Arm
from audition.wayback.docker import ContainerServer
from audition.wayback.plan import ArmTarget
from environments.docker_engine import IMAGE, DockerEngine

SECRET = "planted-secret-9f3c1b"
NAME = "llm-medium"
TINY = Path(__file__).with_name("tiny_engine.py")

# The first process of a container ignores SIGTERM unless it says otherwise; a real server does.
LAUNCH = (
    "import os,runpy,signal,sys; signal.signal(15, lambda *_: os._exit(0)); sys.argv=sys.argv[1:]; "
    "runpy.run_path(sys.argv[0], run_name='__main__')"
)

PROFILE = """\
services:
  engine:
    image: {image}
    container_name: {name}
    command: ["python3", "-c", "{launch}", "/srv/tiny_engine.py", "--port", "${{PORT:-1}}", "--answer", "{answer}"{more}]
    network_mode: host
    environment:
      - API_KEY=${{API_KEY}}
      - GREETING=hello $$world
    volumes:
      - {tiny}:/srv/tiny_engine.py:ro
      - compile-cache:/root/.cache
    shm_size: 64mb
    stop_grace_period: 2s
    restart: {restart}
volumes:
  compile-cache:
"""


class World:
    """Profiles in a folder of their own; the compose project is called after the folder."""

    def __init__(self, docker: DockerEngine, folder: Path, port: int) -> None:
        self.docker, self.port = docker, port
        self.folder = folder / f"site{port}"
        self.folder.mkdir()
        self.state = folder / "state"
        self.state.mkdir(mode=0o700)
        self.run_id = f"run-{port}"
        self.env = {**os.environ, **docker.env}
        self.write("production.yml")
        self.write("candidate.yml", answer="four five six", restart="always")
        (self.folder / "serving.env").write_text(f"PORT={port}\nAPI_KEY={SECRET}\n")

    def write(
        self,
        file: str,
        *,
        name: str = NAME,
        answer: str = "one two three",
        restart: str = "unless-stopped",
        more: str = "",
        image: str = IMAGE,
    ) -> None:
        """Write a profile. ``more``: further words of the command, as they stand in YAML, beginning with a comma."""
        text = PROFILE.format(image=image, name=name, launch=LAUNCH, answer=answer, more=more, tiny=TINY, restart=restart)
        (self.folder / file).write_text(text)

    def up(
        self, file: str = "production.yml", *, env_file: str | None = "serving.env", project: str | None = None
    ) -> dict[str, Any]:
        """Start a profile as an operator does; returns what inspect says."""
        words = [*(["-p", project] if project else []), "-f", file, *(["--env-file", env_file] if env_file else [])]
        self.docker.compose(*words, "up", "-d", "--pull", "never", cwd=self.folder)
        return self.docker.inspect(NAME)

    def arm(self, role: str, **engine: Any) -> Arm:
        """An arm over the profile of that role."""
        spec = {"kind": "compose", "files": [f"{role}.yml"], "env_files": ["serving.env"], "service": "engine", **engine}
        return Arm.model_validate(
            {
                "name": "v2g" if role == "production" else "mtp",
                "role": role,
                "engine": spec,
                "endpoint": {"url": f"http://127.0.0.1:{self.port}", "model": "tiny"},
                "boot": {"limit": 30, "silence": 20},
                "stop": {"grace": 5},
            }
        )

    def production(self, **engine: Any) -> ComposeEngine:
        """The engine of the production arm."""
        return ComposeEngine(
            self.arm("production", **engine), self.folder, self.state, self.run_id, production=True, environ=self.env
        )

    def candidate(self, **engine: Any) -> ComposeEngine:
        """The engine of the candidate arm."""
        return ComposeEngine(
            self.arm("candidate", **engine),
            self.folder,
            self.state,
            self.run_id,
            production=False,
            production_arm=self.arm("production"),
            fence=7,
            environ=self.env,
        )

    def server(self) -> ContainerServer:
        """Production as the way back sees it: from the plan's JSON form alone."""
        return again(self.production().target())


def again(target: ArmTarget) -> ContainerServer:
    """A server made of the target after a trip through JSON, as the guard makes it."""
    import json
    from dataclasses import asdict

    from audition.wayback.plan import ContainerTarget

    data = json.loads(json.dumps(asdict(target)))
    data["container"] = ContainerTarget(**data["container"])
    return ContainerServer(ArmTarget(**data))


def ready(engine: ComposeEngine) -> None:
    """Wait until the engine works."""
    outcome = engine.wait_ready(lambda: False, lambda _line: None)
    assert outcome.kind == "ready", outcome


def wait_until(condition: Callable[[], bool], limit_s: float = 30) -> bool:
    """Whether a condition comes true in time."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.1)
    return True
