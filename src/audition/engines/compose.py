"""The engine of docker compose profiles: production is observed as it runs, candidates run under audition's own project.

The user's files are never written. Starting and stopping is done by ``wayback.docker.ContainerServer``, the same object that brings
production back; reading profiles lives in ``compose_profile``, findings in ``compose_findings``.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from audition.engines import compose_findings as findings
from audition.engines.base import BootOutcome, Finding, Invocation, Observation, Should, StopOutcome
from audition.engines.compose_compare import Running, corrected_config
from audition.engines.compose_log import LogFile
from audition.engines.compose_observe import find_production, identity_labels, observation_of_production
from audition.engines.compose_profile import (
    Profile,
    candidate_config,
    config_hash,
    docker_command,
    docker_environment,
    project_name,
    resolve,
    run_labels,
    up_verb,
)
from audition.engines.parking import ParkBeside, about_parking
from audition.errors import AuditionError, InternalError, Refused
from audition.spike.model import Arm
from audition.spike.model import ComposeEngine as ComposeSpec
from audition.wayback import health
from audition.wayback.docker import ContainerServer, file_digest, in_container
from audition.wayback.docker_cli import Docker, is_running, name_of
from audition.wayback.docker_snapshot import COMPOSE, snapshot
from audition.wayback.files import write_atomic
from audition.wayback.plan import ArmTarget, ContainerTarget, EndpointPlan
from audition.wayback.proctable import read_proc
from audition.wayback.server import WaybackError

EXCERPT_LINES = 40


class ComposeEngine:
    """One arm that is a compose service; see ``base.Engine``.

    ``folder``: that of the spike file. ``state_dir``: this run's folder of secret working files. ``production_arm``: needed by a
    candidate that takes production's container name. ``fence``: the run's fencing number, put into a label.
    """

    def __init__(
        self,
        arm: Arm,
        folder: Path,
        state_dir: Path,
        run_id: str,
        *,
        production: bool,
        production_arm: Arm | None = None,
        fence: int | None = None,
        environ: Mapping[str, str] | None = None,
        secret_names: Sequence[str] = (),
        park_beside: ParkBeside | None = None,
    ) -> None:
        if not isinstance(arm.engine, ComposeSpec):
            raise InternalError(f"arm {arm.name} is not a compose engine")
        self._arm, self._spec, self._folder, self._state_dir, self._run_id = arm, arm.engine, folder, state_dir, run_id
        self._production, self._fence, self._secret_names = production, fence, list(secret_names)
        self._environ = dict(os.environ if environ is None else environ)
        self._cli = Docker(docker_command(arm.engine), docker_environment(self._environ))
        self._park_beside = park_beside
        self._peer: ComposeEngine | None = None
        if production_arm is not None and not production and isinstance(production_arm.engine, ComposeSpec):
            self._peer = ComposeEngine(production_arm, folder, state_dir, run_id, production=True, environ=self._environ)
        self._cached_profile: Profile | None = None
        self._cached_server: ContainerServer | None = None
        self._log = LogFile(state_dir / f"log-{arm.name}.txt", self._cli)
        self._boot, self._pid, self._started = "", (0, 0), time.monotonic()

    @property
    def arm(self) -> str:
        """Name of the arm."""
        return self._arm.name

    @property
    def endpoint(self) -> EndpointPlan:
        """Where the server answers; the API key comes from the shell, the env files or the service, in compose's order."""
        name, key = self._arm.endpoint.api_key_env, None
        if name is not None:
            key = self._environ.get(name)
            try:
                profile = self.profile()
                key = profile.variables.get(name) or (profile.service.get("environment") or {}).get(name) or key
            except (AuditionError, WaybackError):
                pass  # preflight tells; without a profile there is still the shell
        return EndpointPlan(self._arm.endpoint.url, self._arm.endpoint.model, key or None)

    @property
    def port(self) -> int:
        """The TCP port of the endpoint."""
        parts = urlsplit(self._arm.endpoint.url)
        return parts.port or (443 if parts.scheme == "https" else 80)

    def profile(self) -> Profile:
        """The resolved profile, read once. Raises BadInput, or WaybackError when the docker CLI cannot be run."""
        if self._cached_profile is None:
            self._cached_profile = resolve(self._spec, self._folder, self._environ)
            self._cli.env.update(docker_environment(self._environ, self._cached_profile.config))
        return self._cached_profile

    # ---- looking

    def preflight(self) -> list[Finding]:
        """What can be known before anything is touched. Touches nothing."""
        try:
            profile = self.profile()
            self._cli.text("version", "--format", "{{.Server.Version}}")
            found = findings.about_profile(profile, self.port) + findings.about_gpu_runtime(self._cli, profile)
            key = self._arm.endpoint.api_key_env
            if key and self.endpoint.api_key is None:
                advice = f"name the env file that sets it in `env_files` of arm {self.arm}, or set it in the shell"
                found.append(Finding("blocking", f"{key}, the API key of {self.arm}, is set nowhere", advice))
            if self._park_beside is not None:
                found += about_parking(self._arm, self._park_beside, None)
            return found + (self._about_production(profile) if self._production else self._about_candidate(profile))
        except (AuditionError, WaybackError) as fault:
            return [
                Finding("blocking", f"{self.arm}: {fault}", fault.next_step if isinstance(fault, AuditionError) else "docker info")
            ]

    def _about_production(self, profile: Profile) -> list[Finding]:
        container, foreign = self.find_production()
        if foreign:
            return [Finding("blocking", foreign, "correct `files`, `project` or `service` of the production arm")]
        if container is None:
            return [Finding("warning", f"no container of {self.arm} exists"), findings.about_image(self._cli, profile)]
        return findings.about_production(self._cli, profile, self._running(container))

    def _about_candidate(self, profile: Profile) -> list[Finding]:
        peer = self._peer.profile() if self._peer is not None else None
        found = [findings.about_image(self._cli, profile), *findings.about_mounts(self._cli, profile)]
        found += findings.about_candidate(self._cli, profile, peer)
        if self._spec.container_name == "production" and self._peer is None:
            found.append(Finding("blocking", "`container_name: production` needs a production arm that is a compose engine, too"))
        seen = self.observe()
        if seen.state == "foreign":
            found.append(Finding("blocking", seen.detail, "end it, or choose another port or name for the candidate"))
        return found

    def observe(self) -> Observation:
        """What runs now under this arm's name and port. Production itself is not foreign to its candidate. Touches nothing."""
        try:
            if self._production:
                return observation_of_production(self.arm, *self.find_production())
            return self._observe_candidate()
        except WaybackError as fault:
            raise InternalError(str(fault), tried=f"look at {self.arm}", next_step="docker info") from fault

    def find_production(self) -> tuple[dict[str, Any] | None, str]:
        """(production's container or None, why what is there is somebody else's or an empty text); see ``compose_observe``."""
        return find_production(self._cli, self.profile())

    def _running(self, container: dict[str, Any]) -> Running:
        return Running(container, self._cli.image(container["Image"]))

    def _observe_candidate(self) -> Observation:
        """The name and the port may be held by production, which makes room for its candidate."""
        name = project_name(self._run_id, self.arm)
        target = ContainerTarget(self._cli.docker, self._cli.env, "", name, run_labels(self._run_id, self.arm))
        view = ContainerServer(ArmTarget(self.arm, self._arm.stop.grace, self.port, container=target)).view()
        if view.state == "running":
            return Observation("running", view.detail, view.boot_id)
        if view.state == "foreign":
            peer = self._peer
            if (
                peer is not None
                and peer.port == self.port
                and peer.observe().state == "running"
                and self._cli.by_name(name) is None
            ):
                return Observation("absent", f"production holds port {self.port} and makes room for {self.arm}")
            return Observation("foreign", view.detail)
        return Observation("absent", view.detail)

    # ---- the plan

    def target(self) -> ArmTarget:
        """This arm as part of a restore plan. Writes working files (mode 0600) into the state folder.

        Raises Refused when production does not exist or is somebody else's, BadInput, InternalError.
        """
        try:
            container = self._production_target() if self._production else self._candidate_target()
        except WaybackError as fault:
            raise InternalError(str(fault), tried=f"make the restore plan of {self.arm}", next_step="docker info") from fault
        target = ArmTarget(self.arm, self._arm.stop.grace, self.port, container=container)
        self._cached_server = ContainerServer(target)
        return target

    def _production_target(self) -> ContainerTarget:
        profile = self.profile()
        container, foreign = self.find_production()
        if container is None:
            raise Refused(foreign or f"no container of {self.arm} exists", next_step=" ".join(profile.up))
        running = self._running(container)
        kept = snapshot(self._cli.docker, self._cli.env, container["Id"], secret_names=self._secret_names)
        image = {"image_ref": running.container["Config"]["Image"], "image_id": running.container["Image"]}
        recreate, guards, hashes = [], [], set()
        if profile.config_hash and config_hash(self._cli, profile.argv, profile.service_name) == running.config_hash:
            files = {path: file_digest(path) for path in [*profile.files, *profile.env_files, *_found_by_compose(profile)]}
            recreate.append(profile.up)
            guards.append({"files": files, **image})
        for reference, guard in ((image["image_ref"], image), (image["image_id"], {})):
            saved = self._state_dir / f"saved-{self.arm}-{len(guards)}.json"
            write_atomic(saved, json.dumps(corrected_config(profile, running, image=reference), indent=1))
            argv = [*self._cli.docker, "compose", "--project-name", profile.project, "--project-directory", profile.folder]
            argv += ["--file", str(saved)]
            hashes.add(config_hash(self._cli, argv, profile.service_name))
            recreate.append([*argv, *up_verb(profile.service_name)])
            guards.append(dict(guard))
        kept["recreate_if"] = guards
        kept["compose"]["also_hashes"] = sorted(hashes - {""})
        labels = identity_labels(container)
        name = name_of(container)
        return ContainerTarget(self._cli.docker, dict(self._cli.env), container["Id"], name, labels, recreate, snapshot=kept)

    def _candidate_target(self) -> ContainerTarget:
        profile = self.profile()
        project, labels = project_name(self._run_id, self.arm), run_labels(self._run_id, self.arm)
        name, kept = project, {}
        if self._spec.container_name == "production":
            kept["displaces"] = self._displaced()
            name = kept["displaces"]["name"]
        model = candidate_config(
            profile, project=project, container_name=name, labels=labels, fence=self._fence, existing=self._existing()
        )
        path = self._state_dir / f"candidate-{self.arm}.json"
        write_atomic(path, json.dumps(model, indent=1))
        argv = [*self._cli.docker, "compose", "--project-name", project, "--project-directory", profile.folder, "--file", str(path)]
        start = [[*argv, *up_verb(profile.service_name)]]
        return ContainerTarget(self._cli.docker, dict(self._cli.env), "", name, labels, start=start, snapshot=kept)

    def _displaced(self) -> dict[str, Any]:
        """Production's container, whose name this candidate takes; see ``wayback.docker_beside.step_aside``."""
        if self._peer is None:
            raise InternalError(f"{self.arm} takes production's container name, but production is no compose engine")
        container, foreign = self._peer.find_production()
        if container is None:
            raise Refused(foreign or "production's container does not exist, so its name cannot be taken over")
        labels = identity_labels(container)
        suffix = f"-{project_name(self._run_id, self.arm)}"
        name = name_of(container).removesuffix(suffix)  # already aside when a run is taken up again
        return {"container_id": container["Id"], "labels": labels, "name": name, "aside": name + suffix}

    def _existing(self) -> set[str]:
        """Names of the volumes and networks on the engine."""
        names = self._cli.text("volume", "ls", "--format", "{{.Name}}").split()
        return {*names, *self._cli.text("network", "ls", "--format", "{{.Name}}").split()}

    def invocation(self) -> Invocation:
        """Arguments, variables and image by the profile, as compose resolved it."""
        profile = self.profile()
        command = profile.service.get("command")
        argv = [str(word) for word in command] if isinstance(command, list) else []
        return Invocation(argv, dict(profile.variables), str(profile.service.get("image") or ""))

    def _server(self) -> ContainerServer:
        if self._cached_server is None:
            self.target()
        assert self._cached_server is not None
        return self._cached_server

    # ---- doing

    def start(self) -> None:
        """Start the server; returns as soon as it is launched. Production that never existed is made by its own files."""
        try:
            server = self._server_to_start()
            self._started = time.monotonic()
            server.start()
            self._remember(server.find())
        except WaybackError as fault:
            raise InternalError(f"{self.arm} could not be started: {fault}", tried=f"start {self.arm}") from fault

    def _server_to_start(self) -> ContainerServer:
        if self._production and self._cached_server is None and self.find_production() == (None, ""):
            profile = self.profile()
            name = str(profile.service.get("container_name") or "")
            labels = {f"{COMPOSE}project": profile.project, f"{COMPOSE}service": profile.service_name, f"{COMPOSE}oneoff": "False"}
            container = ContainerTarget(self._cli.docker, dict(self._cli.env), "", name, labels, [profile.up])
            return ContainerServer(ArmTarget(self.arm, self._arm.stop.grace, self.port, container=container))
        return self._server()

    def _remember(self, container: dict[str, Any] | None) -> None:
        self._boot = f"{container['Id']} {container['State']['StartedAt']}" if container else ""
        process = read_proc(int(container["State"]["Pid"])) if container and self._cli.local() else None
        inside = process is not None and container is not None and in_container(process.pid, container["Id"])
        self._pid = (process.pid, process.start_ticks) if process is not None and inside else (0, 0)

    def wait_ready(self, give_up: Should, on_line: Callable[[str], None]) -> BootOutcome:
        """Wait until a real completion works, or tell how the boot failed. ``on_line`` gets each new log line."""
        server = self._server_to_start()
        before = time.monotonic() - self._started

        def pull() -> None:
            for line in self._pull():
                on_line(line)

        limits = health.Limits(boot_s=max(1.0, self._arm.boot.limit - before), silence_s=self._arm.boot.silence)
        try:
            ready = health.wait_ready(server, self.endpoint, limits, give_up=give_up, on_poll=pull, strangers=server.strangers)
            pull()
            excerpt = "" if ready.kind == "ready" else server.log_tail(EXCERPT_LINES)
        except WaybackError as fault:
            raise InternalError(f"{self.arm} cannot be looked at while it boots: {fault}", next_step="docker info") from fault
        return BootOutcome(ready.kind, ready.seconds + before, ready.detail, ready.exit_code, excerpt)

    def _pull(self) -> list[str]:
        try:
            return self._log.pull(self._server_to_start().find())
        except WaybackError:
            return []  # the log is read again at the next look; whether the engine is down is told by the view

    def alive(self) -> bool:
        """Whether the server started here still runs. The process is asked for first, so that a dead dockerd is no dead server."""
        if not self._boot:
            self._remember_running()
        pid, ticks = self._pid
        if pid:
            process = read_proc(pid)
            return process is not None and not process.dead and process.start_ticks == ticks
        return bool(self._boot) and self.boot_id() == self._boot

    def _remember_running(self) -> None:
        try:
            container = self._server().find()
            if container is not None and is_running(container):
                self._remember(container)
        except (AuditionError, WaybackError):
            return

    def owns(self, pid: int) -> bool | None:
        """Whether a process runs in the server's container, by its control group; None on an engine elsewhere."""
        try:
            if not self._cli.local():
                return None
            if not self._boot:
                self._remember_running()
        except WaybackError:
            return None
        container_id = self._boot.partition(" ")[0]
        return bool(container_id) and in_container(pid, container_id)

    def boot_id(self) -> str:
        """Identity of the present boot; an empty text when it does not run or the engine does not answer."""
        try:
            if not self._boot:
                self._remember_running()
            return self._server_to_start().view().boot_id
        except WaybackError:
            return ""

    def stop(self) -> StopOutcome:
        """Stop the server and prove it. Safe to call when it does not run."""
        self._pull()
        try:
            report = self._server().stop(self._arm.stop.grace)
        except WaybackError as fault:
            return StopOutcome(False, 0.0, False, str(fault))
        if report.proved:
            self._boot, self._pid = "", (0, 0)
        return StopOutcome(report.proved, report.seconds, report.killed, report.detail)

    def log_since_start(self) -> Path:
        """A file with what the server printed since its present start. Mode 0600: a server may print its own key."""
        self._pull()
        return self._log.path

    def secret_files(self) -> list[Path]:
        """Working files that hold secrets; whoever closes the run deletes them after a verified end."""
        return sorted([*self._state_dir.glob(f"saved-{self.arm}-*.json"), *self._state_dir.glob(f"candidate-{self.arm}.json")])


def _found_by_compose(profile: Profile) -> list[str]:
    """The ``.env`` that compose reads by itself when no env file is given."""
    default = Path(profile.folder) / ".env"
    return [str(default)] if not profile.env_files and default.is_file() else []
