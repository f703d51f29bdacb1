"""The engine of servers that are processes of this machine.

A production that already runs is observed: what is started again is what was seen, not what the spike file says. Starting and
stopping is done by ``wayback.procs``, the same object that brings production back.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from audition.engines.base import BootOutcome, Finding, Invocation, Observation, Should, StopOutcome
from audition.engines.env_file import parse_env_file
from audition.engines.parking import ParkBeside, about_parking
from audition.errors import BadInput, InternalError, Refused
from audition.spike.model import Arm
from audition.spike.model import ProcessEngine as ProcessSpec
from audition.wayback import health
from audition.wayback.found import Found, find
from audition.wayback.plan import ArmTarget, EndpointPlan, ProcessTarget
from audition.wayback.procs import ProcessServer, resolve_executable
from audition.wayback.proctable import TOKEN, describe, listeners, redacted
from audition.wayback.repeatable import Doubt, command_doubts, running_file
from audition.wayback.server import WaybackError

EXCERPT_LINES = 40
LOG_HEAD, LOG_TAIL = 2 * 2**20, 6 * 2**20  # bytes kept of a log: the boot stands at its beginning, a death at its end
_RUNNERS_OWN = (TOKEN, "AUDITION_STATE")


@dataclass(frozen=True)
class Declared:
    """What the spike file says about a process: command, variables (those of ``env_files`` included) and folder."""

    argv: list[str]
    env: dict[str, str]
    cwd: Path


def declared_process(arm: Arm, folder: Path, environ: Mapping[str, str]) -> Declared:
    """The declared process of an arm; files are relative to ``folder``. Raises BadInput when an env file cannot be used."""
    if not isinstance(arm.engine, ProcessSpec):
        raise InternalError(f"arm {arm.name} is not a process engine")
    env = {name: value for name, value in environ.items() if name not in _RUNNERS_OWN}
    for name in arm.engine.env_files:
        path = folder / name
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInput(f"the env file {path} of arm {arm.name} cannot be read: {error}", next_step=f"provide {path}") from error
        env |= parse_env_file(text, str(path), environ)
    return Declared(list(arm.engine.command), {**env, **arm.engine.env}, (folder / arm.engine.cwd).resolve())


class ProcessEngine:
    """One arm that is a process; see ``base.Engine``.

    ``folder``: that of the spike file. ``state_dir``: this run's folder of secret working files. ``token``: this run's and arm's
    random mark. ``production_port``: where production listens, so that a candidate knows whether finding its own port taken is as
    expected. ``park_beside``: given when the spike parks.
    """

    def __init__(
        self,
        arm: Arm,
        folder: Path,
        state_dir: Path,
        token: str,
        *,
        production: bool,
        production_port: int | None = None,
        declared: Declared | None = None,
        environ: Mapping[str, str] | None = None,
        park_beside: ParkBeside | None = None,
    ) -> None:
        environ = dict(os.environ if environ is None else environ)
        self._arm, self._production, self._production_port = arm, production, production_port
        self._park_beside = park_beside
        self._declared = declared or declared_process(arm, folder, environ)
        self._folder = state_dir / "arms" / arm.name
        parts = urlsplit(arm.endpoint.url)
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        key = arm.endpoint.api_key_env
        self._key_missing = key is not None and key not in self._declared.env and key not in environ
        self._endpoint = EndpointPlan(
            arm.endpoint.url, arm.endpoint.model, (self._declared.env.get(key) or environ.get(key)) if key else None
        )
        self._found: Found | None = None
        self._server = ProcessServer(self._target_of(self._from_declared(token)), adopt=False)
        self._boot = ""
        self._log_start = 0

    # ---- what it is

    @property
    def arm(self) -> str:
        """Name of the arm."""
        return self._arm.name

    @property
    def endpoint(self) -> EndpointPlan:
        """Where the server answers."""
        return self._endpoint

    def _from_declared(self, token: str) -> ProcessTarget:
        said = self._declared
        return ProcessTarget(
            said.argv, said.env, str(said.cwd), str(self._folder / "server.log"), str(self._folder / "identity.json"), token
        )

    def _target_of(self, process: ProcessTarget) -> ArmTarget:
        return ArmTarget(self._arm.name, self._arm.stop.grace, self._port, process=process)

    def target(self) -> ArmTarget:
        """This arm as part of a restore plan. A running production is observed the first time, and that observation is kept."""
        if self._production and self._server.target.running is None:
            self._keep(find(self._port))
        return self._server.arm

    def invocation(self) -> Invocation:
        """The command line and the variables, of a running production as it was observed the first time."""
        process = self.target().process
        assert process is not None  # a process engine's target always is one
        return Invocation(process.argv, process.env, process=process)

    def _keep(self, found: Found) -> None:
        """Make what was found on the port the target of this engine, if it is production and can be started again."""
        doubts = [*found.doubts, *self._gaps(found)]
        if found.root is None or any(doubt.level == "blocking" for doubt in doubts) or self._why_foreign():
            return
        self._found = found
        declared = self._server.target
        env = found.env if found.env is not None else self._declared.env
        process = replace(
            declared,
            argv=declared.argv if found.retitled else found.argv,
            env={name: value for name, value in env.items() if name != TOKEN},
            cwd=found.cwd,
            executable=(resolve_executable(declared) or "") if found.retitled else found.executable,
            log_file=found.log_file or declared.log_file,
            output_file=found.output_file,
            error_file=found.error_file,
            running=found.root,
            members=found.members,
            uid=found.uid,
            gid=found.gid,
            groups=found.groups,
            umask=found.umask,
            limits=found.limits,
        )
        self._server = ProcessServer(self._target_of(process), adopt=True)
        self._boot = self._server.view().boot_id
        self._log_start = self._server.log_size()

    def _gaps(self, found: Found) -> list[Doubt]:
        """What could not be seen of a running production, and whether the spike file can stand in for it."""
        if found.root is None:
            return []
        doubts = []
        if found.retitled:
            doubts += self._declared_instead(found)
        if found.env is None:
            assert isinstance(self._arm.engine, ProcessSpec)
            text = "production's environment cannot be read (it has overwritten it)"
            if self._arm.engine.env or self._arm.engine.env_files:
                text += "; it is restored with the declared one"
                doubts.append(Doubt("warning", text, "check `env` and `env_files` of the production arm"))
            else:
                text += ", and the spike declares none: it could not be started again as it runs"
                doubts.append(Doubt("blocking", text, "declare all its variables with `env` or `env_files` of the production arm"))
        return doubts

    def _declared_instead(self, found: Found) -> list[Doubt]:
        """Whether the declared command may stand in for one that production has written a title over."""
        assert found.root is not None
        said = self._server.target
        program = resolve_executable(said)
        search = (found.env or said.env).get("PATH", os.defpath)
        text = f"production has overwritten its command line (it shows {redacted(found.argv)[:1]!r})"
        step = "declare the exact `command` and `cwd` that production was started with, or start it without a process title"
        if program is None or running_file(program, search) != os.path.realpath(found.executable):
            text += f", and the declared command {said.argv[0]!r} is another program than the running {found.executable}"
        elif os.path.realpath(said.cwd) != os.path.realpath(found.cwd):
            text += f", and the declared working folder {said.cwd} is not its {found.cwd}"
        else:
            warning = Doubt("warning", f"{text}; it is restored with the declared command", "check `command` of the production arm")
            return [warning, *command_doubts(found.root.pid, said.argv, found.env or said.env, found.cwd)]
        return [Doubt("blocking", text, step)]

    def _why_foreign(self) -> str:
        """Why what answers on the port is not this arm; "" when it is."""
        try:
            models = health.served_models(self._endpoint)
        except health.NoAnswer as error:
            return f"what listens on port {self._port} does not answer: {error}"
        if self._endpoint.model not in models:
            return f"{self._endpoint.url} serves {', '.join(models) or 'no model'}, not {self._endpoint.model}"
        return ""

    # ---- looking

    def preflight(self) -> list[Finding]:
        """What can be known before anything is touched."""
        findings = self._declared_findings()
        findings += self._production_findings() if self._production else self._port_findings()
        if self._park_beside is not None:
            if self._production:
                self.target()  # observes production, whose processes tell how it can be parked
            findings += about_parking(self._arm, self._park_beside, self._server)
        return findings or [Finding("ok", f"arm {self.arm}: command, folder and port are in order")]

    def _declared_findings(self) -> list[Finding]:
        findings = []
        name = self.arm
        if self._key_missing:
            text = f"arm {name}: the variable {self._arm.endpoint.api_key_env} with the API key is set nowhere"
            findings.append(Finding("blocking", text, "set it in the environment or in one of `env_files`"))
        if self._found is not None:
            return findings
        if not self._declared.cwd.is_dir():
            findings.append(
                Finding("blocking", f"arm {name}: the working folder {self._declared.cwd} does not exist", "correct `cwd`")
            )
        elif resolve_executable(self._server.target) is None:
            text = f"arm {name}: the command {self._declared.argv[0]!r} is not there or not executable"
            findings.append(Finding("blocking", text, "install it or correct `command`"))
        return findings

    def _port_findings(self) -> list[Finding]:
        pids, complete = listeners(self._port)
        if (not pids and complete) or self._port == self._production_port:
            return []
        who = ", ".join(describe(pid) for pid in pids) or "a process of another user"
        text = f"arm {self.arm}: port {self._port} is held by {who}"
        level = "warning" if self._production_port is None else "blocking"
        return [Finding(level, text, f"free port {self._port} or give arm {self.arm} another one")]  # type: ignore[arg-type]

    def _production_findings(self) -> list[Finding]:
        found = find(self._port)
        findings = [Finding(doubt.level, doubt.text, doubt.next_step) for doubt in [*found.doubts, *self._gaps(found)]]
        if found.root is None:
            return findings or [
                Finding("warning", f"production does not run: nothing listens on port {self._port}", "start production")
            ]
        foreign = self._why_foreign()
        if foreign:
            return [*findings, Finding("blocking", foreign, "correct `endpoint`, or start production")]
        if not found.retitled and not _same_command(found.argv, self._declared.argv, found.executable):
            seen, said = redacted(found.argv), redacted(self._declared.argv)
            text = f"production runs as {seen!r}; that is what is measured and restored, not the declared {said!r}"
            findings.append(Finding("warning", text, "correct `command` of the production arm"))
        return findings

    def observe(self) -> Observation:
        """What runs now under this arm's port."""
        self.target()
        try:
            view = self._server.view()
        except WaybackError as error:
            raise InternalError(f"cannot look at arm {self.arm}: {error}") from error
        if view.state == "foreign" or (view.state == "running" and self._production and self._found is None and not self._boot):
            return Observation("foreign", view.detail)
        if view.state != "running":
            return Observation("absent", view.detail)
        target = self._server.target
        facts: dict[str, Any] = {
            "command": target.argv,
            "cwd": target.cwd,
            "executable": target.executable,
            "variables": sorted(target.env),
            "log_file": target.log_file,
            "processes": len(self._server.members()),
        }
        return Observation("running", view.detail, view.boot_id, facts)

    # ---- starting and stopping

    def start(self) -> None:
        """Start the server; returns once it is launched."""
        self._log_start = self._server.log_size()
        try:
            self._server.start()
            self._boot = self._server.view().boot_id
        except WaybackError as error:
            raise Refused(
                f"Arm {self.arm} cannot be started.",
                tried=f"to launch {self._server.target.argv[0]}",
                seen=str(error),
                next_step=f"look at {self._server.target.log_file}",
            ) from error

    def wait_ready(self, give_up: Should, on_line: Callable[[str], None]) -> BootOutcome:
        """Wait until a completion works, or tell how the boot failed."""
        tail = _Tail(self._server, self._log_start, on_line)
        limits = health.Limits(self._arm.boot.limit, self._arm.boot.silence)
        try:
            got = health.wait_ready(
                self._server, self._endpoint, limits, give_up=give_up, on_poll=tail.read, strangers=self._server.strangers
            )
        except WaybackError as error:
            raise InternalError(f"cannot look at arm {self.arm}: {error}") from error
        tail.read()
        tail.end()
        if got.kind == "ready":
            self._boot = got.boot_id
            return BootOutcome("ready", got.seconds)
        return BootOutcome(got.kind, got.seconds, got.detail, got.exit_code, self._server.log_tail(EXCERPT_LINES))

    def alive(self) -> bool:
        """Whether the server of the last start (or the observed production) still runs."""
        view = self._server.view()
        return view.state == "running" and view.boot_id == self._boot and bool(self._boot)

    def owns(self, pid: int) -> bool | None:
        """Whether a process provably belongs to the server."""
        return any(proc.pid == pid for proc in self._server.members())

    def boot_id(self) -> str:
        """Identity of the present boot, "" when it does not run."""
        return self._server.view().boot_id

    def stop(self) -> StopOutcome:
        """Stop the server and prove it."""
        began = time.monotonic()
        try:
            report = self._server.stop(self._arm.stop.grace)
        except WaybackError as error:
            return StopOutcome(False, time.monotonic() - began, False, str(error))
        return StopOutcome(report.proved, report.seconds, report.killed, report.detail)

    def log_since_start(self) -> Path:
        """A copy of what the server printed since its last start, made anew by each call."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        copy = self._folder / "log-since-start.txt"
        size = self._server.log_size() - self._log_start
        if size <= LOG_HEAD + LOG_TAIL:
            copy.write_bytes(self._server.log_from(self._log_start))
        else:
            head = self._server.log_from(self._log_start, LOG_HEAD)
            tail = self._server.log_from(self._log_start + size - LOG_TAIL)
            gap = f"\n[{size - LOG_HEAD - LOG_TAIL} bytes of the log are left out here]\n".encode()
            copy.write_bytes(head + gap + tail)
        return copy


def _same_command(seen: list[str], said: list[str], executable: str) -> bool:
    """Whether two command lines are the same but for how the program is spelled (``python3`` or its resolved path)."""
    if seen == said:
        return True
    if not seen or not said or seen[1:] != said[1:]:
        return False
    program = shutil.which(said[0]) or said[0]
    return os.path.realpath(program) == os.path.realpath(executable) or os.path.basename(said[0]) == os.path.basename(seen[0])


class _Tail:
    """Passes complete new lines of a log on."""

    def __init__(self, server: ProcessServer, start: int, on_line: Callable[[str], None]) -> None:
        self._server, self._position, self._on_line, self._rest = server, start, on_line, b""

    def read(self) -> None:
        data = self._server.log_from(self._position)
        self._position += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._on_line(line.decode("utf-8", "replace").rstrip("\r"))

    def end(self) -> None:
        """Pass a last line without an end on."""
        if self._rest:
            self._on_line(self._rest.decode("utf-8", "replace"))
            self._rest = b""
