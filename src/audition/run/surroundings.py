"""What the conductor acts on in the real world: slot, snapshot, guard, drain, sidecars, GPU memory, measuring, restoring.

Each method is one effect. Their order and their journal are the conductor's; how servers start and stop is the engines'.

Longer than others: it is the one implementation of the conductor's protocol ``Surroundings``, a method for each effect.
"""

from __future__ import annotations

import shlex
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from audition.engines.base import BootOutcome, Engine
from audition.errors import InternalError, Refused
from audition.judge.load import load_run
from audition.judge.records import BootRecord, LegRecord
from audition.judge.result import early_end_reason
from audition.run.draining import drain
from audition.run.events import BootLogged, GuardArmed, RestoreStepped
from audition.run.folder import RunFolder
from audition.run.guarding import ArmedGuard, arm
from audition.run.leg import LegMeter
from audition.run.parking import Parking, Served
from audition.run.reporter import Reporter
from audition.spike.model import Leg, Spike
from audition.units import NoData
from audition.wayback import state
from audition.wayback.docker_beside import stop_sidecar
from audition.wayback.gpu import baseline_without, read_usage, wait_settled
from audition.wayback.health import precheck, record_greedy
from audition.wayback.lock import Lock, LockHeld, acquire, lock_files_for, next_fence
from audition.wayback.plan import ArmTarget, EntryPlan, GpuPlan, RestorePlan, SidecarPlan, Verification
from audition.wayback.proctable import own_ref, redacted
from audition.wayback.restore import RestoreReport, restore
from audition.wayback.server import WaybackError

_ENTRY_LIMIT_S = 120.0


@dataclass(frozen=True)
class Identity:
    """One run's names and places. ``root``: the state root; ``state_dir``: the run's folder below it; ``token``: a random mark;
    ``date``: YYYY-MM-DD, local time."""

    run_id: str
    date: str
    root: Path
    state_dir: Path
    token: str


class World:
    """The real surroundings of one run. ``sidecars`` were found before anything was touched."""

    def __init__(
        self,
        spike: Spike,
        *,
        identity: Identity,
        engines: Mapping[str, Engine],
        folder: RunFolder,
        spike_folder: Path,
        meter: LegMeter,
        reporter: Reporter,
        gpu: GpuPlan,
        sidecars: list[SidecarPlan],
        others: Callable[[], list[ArmTarget]],
    ) -> None:
        self._spike, self._id, self._engines, self._folder = spike, identity, engines, folder
        self._spike_folder, self._meter, self._reporter, self._gpu = spike_folder, meter, reporter, gpu
        self._sidecars, self._others = sidecars, others
        self._production = engines[spike.production.name]
        self._lock: Lock | None = None
        self._guard: ArmedGuard | None = None
        self._plan: RestorePlan | None = None
        self._greedy: tuple[dict[str, Any], list[str], str] = ({}, [], "not recorded")
        self._claims: list[socket.socket] = []
        self._parking = Parking(lambda: self._gpu, self._note_parking)
        self.fence = 0

    # -- before anything is touched -----------------------------------------------------------------------------------

    def take_lock(self) -> dict[str, Any]:
        """Reserve the slot. Raises Refused with who holds it."""
        files = lock_files_for(self._id.root, self._spike.gpus)
        try:
            self.fence = next_fence(self._id.root)
            self._lock = acquire(
                files, run_id=self._id.run_id, spike=self._spike.name, role="run", deadline=self._deadline(), fence=self.fence
            )
        except LockHeld as held:
            raise Refused(
                "another spike holds the slot", seen=str(held), production="untouched", next_step="audition status"
            ) from held
        except (WaybackError, OSError) as cause:
            raise Refused(
                f"the slot cannot be reserved: {cause}",
                next_step=f"make {self._id.root} writable, or set AUDITION_STATE to a folder that is",
            ) from cause
        self._claim_ports()  # after the lock, whose refusal names the holder
        return {"fence": self.fence, "locks": files}

    def _claim_ports(self) -> None:
        """A name in the kernel for each arm's port: two runs with different state folders or GPUs must not meet on one server.

        Abstract sockets need no file and vanish with their holder. Raises Refused.
        """
        for port in sorted({urlsplit(one.endpoint.url).port or 0 for one in self._spike.arms}):
            claim = socket.socket(socket.AF_UNIX)
            try:
                claim.bind(f"\0audition-port-{port}")
            except OSError as cause:
                claim.close()
                raise Refused(
                    f"another run of audition, with another state folder or other GPUs, uses the server on port {port}",
                    seen=str(cause),
                    production="untouched",
                    next_step="wait for it; AUDITION_STATE should be the same for everybody on this machine",
                ) from cause
            self._claims.append(claim)

    def snapshot(self) -> dict[str, Any]:
        """See that production runs (or start it, if the spike says so) and record a greedy answer. Raises Refused."""
        booted: dict[str, Any] = {}
        seen = self._production.observe()
        if seen.state == "absent" and self._spike.restore.if_not_running == "start":
            booted = {"boot_seconds": self._start_production()}
            seen = self._production.observe()
        if seen.state != "running":
            hint = "start production first, or set `restore.if_not_running: start`" if seen.state == "absent" else "audition status"
            raise Refused(
                f"production ({self._production.arm}) is not running as the spike file says",
                tried="to observe production before touching anything",
                seen=seen.detail,
                production="untouched",
                next_step=hint,
            )
        failed = [check for check in precheck(self._production.endpoint) if check.ok is False]
        if failed:
            raise Refused(
                "production fails now what would be asked of it afterwards, so it could never be verified as back",
                seen="\n".join(f"{check.name}: {check.detail}" for check in failed),
                production="untouched",
                next_step=f"look at its log, then try: curl {self._production.endpoint.url}/v1/models",
            )
        self._greedy = record_greedy(self._production.endpoint)
        if self._greedy[2]:
            raise Refused(
                "production does not answer a completion, so it could not be verified afterwards",
                seen=self._greedy[2],
                production="untouched",
                next_step=f"look at its log, then try: curl {self._production.endpoint.url}/v1/models",
            )
        if len(self._greedy[1]) > 1:
            text = (
                "production's greedy answers differ from each other, so a different one afterwards is reported, not held against it"
            )
            self._reporter.warn(text)
            self._meter.notes.append(("greedy-unstable", text))
        return {"identity": seen.identity, "greedy_answers": len(self._greedy[1]), **booted}

    def _start_production(self) -> float:
        """Start production and wait until it works; the seconds that took. Raises Refused, with nothing left running."""
        self._reporter.say(f"production ({self._production.arm}) does not run: starting it, as the spike file says")
        self._production.start()
        outcome = self._production.wait_ready(
            lambda: False, lambda line: self._reporter.tell(BootLogged(self._production.arm, line))
        )
        if outcome.kind != "ready":
            self._production.stop()
            raise Refused(
                f"production ({self._production.arm}) did not run, and could not be started: {outcome.kind} {outcome.detail}",
                seen=outcome.excerpt[-1500:],
                production="not running, as before",
            )
        return outcome.seconds

    def arm_guard(self) -> dict[str, Any]:
        """Write the restore plan, arm the guard, prove it armed. Raises Refused."""
        try:
            self._plan = self._make_plan()
        except WaybackError as cause:
            raise Refused(f"the way back cannot be planned: {cause}", production="untouched") from cause
        self._guard = arm(self._plan)
        self._reporter.tell(GuardArmed(NoData("the window has no end") if self._plan.deadline is None else self._plan.deadline))
        return {"guard": self._guard.process.pid, "deadline": self._plan.deadline}

    def _make_plan(self) -> RestorePlan:
        spike, production, others = self._spike, self._production.target(), self._others()
        gpu = self._with_baseline(production)
        if spike.restore.strategy == "park":
            production, others = self._parking.planned(production, others)
        body, answers, missing = self._greedy
        greedy = spike.restore.greedy
        if len(answers) > 1:  # an engine whose greedy answers differ by themselves cannot be held to one of them
            greedy = "report"
        entry = None
        if spike.drain.close is not None and spike.drain.open is not None:
            entry = EntryPlan(spike.drain.close, spike.drain.open, str(self._spike_folder))
        verify = Verification(
            endpoint=self._production.endpoint,
            boot_limit_s=spike.production.boot.limit,
            silence_s=spike.production.boot.silence,
            hold_s=spike.restore.hold,
            greedy=greedy,
            greedy_body=body,
            greedy_answers=answers,
            greedy_missing=missing,
        )
        return RestorePlan(
            run_id=self._id.run_id,
            spike=spike.name,
            state_dir=str(self._id.state_dir),
            run_dir=str(self._folder.path.absolute()),
            lock_files=lock_files_for(self._id.root, spike.gpus),
            fence=self.fence,
            runner=own_ref(),
            production=production,
            others=others,
            sidecars=self._sidecars,
            entry=entry,
            gpu=gpu,
            verify=verify,
            deadline=self._deadline(),
            manual=["audition recover", *_by_hand(production)],
            secrets=self._meter.secrets,
        )

    def _with_baseline(self, production: ArmTarget) -> GpuPlan:
        """GPU memory that is in use without production: what must be reached again before each start."""
        if self._gpu.source == "none":
            return self._gpu
        usage = read_usage(self._gpu)
        self._gpu = replace(self._gpu, baseline_mib=baseline_without(usage, set(_pids(production))))
        return self._gpu

    def _deadline(self) -> float | None:
        """Unix seconds at which restoring begins at the latest: window end - (slowest cold start x 1.5 + 60 s)."""
        closes = self._spike.window.closes
        return None if closes is None else closes.timestamp() - (self._spike.restore.slowest_cold_start * 1.5 + 60.0)

    def past_deadline(self) -> bool:
        """Whether restoring must begin now."""
        deadline = self._deadline()
        return deadline is not None and time.time() >= deadline

    # -- between arming and restoring ------------------------------------------------------------------------------------

    def check_guard(self) -> None:
        """Arm a new guard when the present one has died. Raises InternalError when that fails: then production is restored."""
        if self._plan is None or self._guard is None or self._guard.alive():
            return
        self._reporter.warn("the guard died: arming another one")
        try:
            self._guard = arm(self._plan)
        except Refused as cause:
            raise InternalError("the guard died and no other one could be armed", seen=cause.seen) from cause

    def close_entry(self) -> dict[str, Any]:
        """Run the command that closes the entry, in the spike file's folder, where the one that opens it runs, too."""
        command = self._spike.drain.close or []
        try:
            done = subprocess.run(
                command, cwd=self._spike_folder, capture_output=True, text=True, timeout=_ENTRY_LIMIT_S, check=False,
                stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as cause:
            raise InternalError(
                "the command that closes the entry could not be run", tried=shlex.join(command), seen=str(cause)
            ) from cause
        if done.returncode != 0:
            raise InternalError(
                f"the command that closes the entry failed with exit code {done.returncode}",
                tried=shlex.join(command),
                seen=done.stderr.strip()[-500:],
            )
        return {}

    def stop_sidecars(self) -> dict[str, Any]:
        """Stop what could restart the server in the window."""
        for sidecar in self._sidecars:
            self._reporter.say(f"stopping sidecar {sidecar.name}: {sidecar.why}")
            stop_sidecar(sidecar)
        return {"sidecars": [sidecar.name for sidecar in self._sidecars]}

    def drain(self, give_up: Callable[[], bool]) -> dict[str, Any]:
        """Let running requests end; says how many were still there when the budget was over."""
        drained = drain(self._production.endpoint, self._spike.drain.budget, give_up)
        if drained.left is None:
            self._note(f"running requests cannot be counted ({drained.detail}): none is waited for")
        elif drained.left:
            self._note(f"{drained.left} requests were still running after {drained.seconds:.0f} s and were cut")
        return {"left": drained.left, "seconds": drained.seconds, "detail": drained.detail}

    def _note(self, text: str) -> None:
        """Say it now, and in the record of the next leg."""
        self._reporter.warn(text)
        self._meter.notes.append(("drain", text))

    def _note_parking(self, text: str, warning: bool) -> None:
        (self._reporter.warn if warning else self._reporter.say)(text)
        self._meter.notes.append(("park", text))

    def park(self, engine: Engine) -> dict[str, Any] | None:
        """Park an arm and see that it lets the GPU go; None when it cannot be parked. Raises InternalError."""
        parked = self._parking.park(engine.arm, self._served(engine))
        return None if parked is None else {**parked, **self.settle()}

    def unpark(self, engine: Engine) -> dict[str, Any] | None:
        """Resume a parked arm: production must answer as before, any other arm at all. Raises InternalError."""
        return self._parking.unpark(engine.arm, self._served(engine))

    def _served(self, engine: Engine) -> Served:
        production = engine.arm == self._production.arm
        return Served(engine.endpoint, self._plan.verify if production and self._plan is not None else None)

    def settle(self) -> dict[str, Any]:
        """Wait until GPU memory is back at its baseline. Raises InternalError with who holds it when it is not."""
        settled = wait_settled(self._gpu)
        if not settled.ok:
            raise InternalError(
                f"GPU memory is not back at its baseline after {settled.seconds:.0f} s",
                seen=settled.detail,
                next_step="end the process that holds it; if it cannot be killed, a reboot is needed",
            )
        return {"gpu_mib": settled.used_mib, "settle_seconds": settled.seconds}

    def measure(self, number: int, leg: Leg, boot: BootRecord, give_up: Callable[[], bool]) -> LegRecord:
        """One leg."""
        return self._meter.measure(number, leg, boot, give_up)

    def record_failed_boot(self, number: int, leg: Leg, boot: BootRecord) -> LegRecord:
        """A leg whose engine did not start."""
        return self._meter.failed_boot(number, leg, boot)

    def diagnose_boot(self, arm: str, outcome: BootOutcome) -> BootRecord:
        """What the log of a failed boot says."""
        return self._meter.boot_record(arm, outcome)

    def early_end_reason(self) -> str | None:
        """Asked of the judge, from the records on disk."""
        return early_end_reason(load_run(self._folder.path), self._spike)

    # -- the end ----------------------------------------------------------------------------------------------------------

    def restore(self, on_point: Callable[[str, str], None]) -> RestoreReport:
        """Bring production back with the same code that the guard and ``recover`` use."""
        if self._plan is None:
            raise InternalError("restoring without a plan")
        if self._guard is not None:
            verify = self._plan.verify
            self._guard.restoring(3 * verify.boot_limit_s + verify.hold_s + self._gpu.settle_s + 600.0)
        return restore(self._plan, say=lambda text: self._reporter.tell(RestoreStepped(text)), on_point=on_point)

    def stand_down(self, report: RestoreReport | None) -> dict[str, Any]:
        """Close the run and end the guard. ``report`` None: nothing was touched. Not verified: the guard stays and tries again."""
        if self._plan is None:
            return {}
        data = report.to_data() if report is not None else {"untouched": True}
        if report is not None and not report.verified:
            place = state.write_failure(self._plan, data)
            return {"guard": "stays: production is not verified", "left": place}
        state.close(self._plan, "run", data)
        why = self._guard.stand_down() if self._guard is not None else ""
        if why:
            self._reporter.warn(f"the guard does not stand down: {why}")
        return {"guard": why or "stood down"}

    def release_lock(self) -> dict[str, Any]:
        """Give the slot back."""
        if self._lock is not None:
            self._lock.release()
        while self._claims:
            self._claims.pop().close()
        return {}


def _pids(target: ArmTarget) -> list[int]:
    """Host pids of a server, to know which GPU memory is its own."""
    if target.process is not None:
        from audition.wayback.procs import ProcessServer  # noqa: PLC0415 - one of two kinds is needed

        return [process.pid for process in ProcessServer(target, adopt=True).members()]
    if target.container is None:
        return []
    from audition.wayback.docker_cli import Docker  # noqa: PLC0415

    listing = Docker(target.container.docker, target.container.docker_env).text("top", target.container.container_id, "-eo", "pid")
    return [int(line) for line in listing.split() if line.isdigit()]


def _by_hand(target: ArmTarget) -> list[str]:
    """What a person types to start production without audition."""
    if target.container is not None:
        return [shlex.join([*target.container.docker, "start", target.container.container_id])]
    if target.process is not None:
        words = shlex.join(redacted(target.process.argv))
        return [
            f"# if something else answers on port {target.port}, stop it and type the first command again;",
            f"# last resort, with production's environment: cd {shlex.quote(target.process.cwd)} && {words}",
        ]
    return []
