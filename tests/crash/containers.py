"""The crash world whose production is a container of docker compose, with the candidate's name and port, on a real engine."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

from crash.world import TAIL, TINY, World
from environments.docker_engine import IMAGE, DockerEngine

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
    command: ["python3", "-I", "-S", "-c", "{launch}", "/srv/tiny_engine.py", "--port", "${{PORT}}", "--model", "m"]
    network_mode: host
    environment: {{API_KEY: "${{API_KEY:?set it}}", ARM: {arm}}}
    volumes: ["{tiny}:/srv/tiny_engine.py:ro"]
    stop_grace_period: 2s
    restart: unless-stopped
"""

SPIKE = """\
audition: 1
name: crash
question: Does production come back?
arms:
  - name: prod
    role: production
    engine: {{kind: compose, files: [production.yml], env_files: [serving.env], service: engine}}
    endpoint: {{url: "http://127.0.0.1:{port}", model: m}}
    boot: {{limit: 60s, silence: 60s}}
    stop: {{grace: 5s}}
  - name: cand
    role: candidate
    engine: {{kind: compose, files: [candidate.yml], env_files: [serving.env], service: engine, container_name: production}}
    endpoint: {{url: "http://127.0.0.1:{port}", model: m}}
    boot: {{limit: 60s, silence: 60s}}
    stop: {{grace: 5s}}
""" + TAIL  # fmt: skip


class ContainerWorld(World):
    """One compose project a trial; ``docker`` is the engine that all trials share."""

    def __init__(self, folder: Path, docker: DockerEngine) -> None:
        self.docker = docker
        super().__init__(folder)
        self.env |= docker.env
        os.environ.update(docker.env)  # the forked runner inherits it
        self.name = f"llm-{self.port}"
        self.before: dict[str, Any] = {}

    def spike_text(self) -> str:
        for arm in ("production", "candidate"):
            text = PROFILE.format(image=IMAGE, name=f"llm-{self.port}", launch=LAUNCH, tiny=TINY, arm=arm)
            (self.folder / f"{arm}.yml").write_text(text)
        (self.folder / "serving.env").write_text(f"PORT={self.port}\nAPI_KEY=planted-secret-9f3c1b\n")
        return SPIKE.format(port=self.port)

    def start_production(self) -> None:
        up = ["-f", "production.yml", "--env-file", "serving.env", "up", "-d", "--pull", "never"]
        self.docker.compose(*up, cwd=self.folder)
        self.before = self.docker.inspect(self.name)
        self.wait(self.answers, 60, "production did not start")

    def containers(self) -> list[dict[str, Any]]:
        """Every container of this trial: production's project, and audition's with this trial's run."""
        listed = self.docker.run("ps", "-aq", "--no-trunc").stdout.split()
        inspected = json.loads(self.docker.run("inspect", *listed).stdout) if listed else []
        return [c for c in inspected if any(str(self.folder) in bind for bind in _origins(c))]

    def kill_engine(self) -> None:
        for container in self.containers():
            if container["State"]["Running"]:
                subprocess.run(
                    ["docker", "kill", "--signal", "KILL", container["Id"]],
                    env=self.env,
                    capture_output=True,
                    check=False,
                    timeout=60,
                )

    def server_problems(self) -> list[str]:
        out = []
        mine = self.containers()
        running = [c for c in mine if c["State"]["Running"]]
        if [c["Id"] for c in running] != [self.before["Id"]]:
            out.append(f"running: {[(c['Name'], c['Id'][:12]) for c in running]}, before: {self.before['Id'][:12]}")
        if len(mine) != 1:
            out.append(f"containers left: {[c['Name'] for c in mine]}")
        now = self.docker.inspect(self.before["Id"])
        for key in ("Name", "Image", "Path", "Args", "RestartCount"):
            if now[key] != self.before[key]:
                out.append(f"{key} was {self.before[key]!r}, is {now[key]!r}")
        for key in ("Env", "Labels", "Cmd"):
            if now["Config"][key] != self.before["Config"][key]:
                out.append(f"{key} changed")
        if now["HostConfig"]["RestartPolicy"] != self.before["HostConfig"]["RestartPolicy"]:
            out.append("the restart policy changed")
        return out

    def clean(self) -> None:
        super().clean()
        ids = [container["Id"] for container in self.containers()]
        if ids:
            self.docker.run("rm", "-f", *ids)


def _origins(container: dict[str, Any]) -> list[str]:
    labels = container["Config"]["Labels"] or {}
    return [labels.get("com.docker.compose.project.working_dir", ""), labels.get("com.docker.compose.project.config_files", "")]
