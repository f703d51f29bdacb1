"""A whole check: look once, make facts, apply every rule, in that order. Used by `audition check`, `run` and `rehearse`.

Looking is done by the ``look_*`` modules, judging by the rules; what a report looks like is the business of ``words``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from audition.check.arguments import about_arguments, by_version
from audition.check.arms import about_arms
from audition.check.checkpoints import about_checkpoints
from audition.check.difference import about_difference, contrast, control
from audition.check.facts import Facts
from audition.check.finding import Finding, Report, in_order
from audition.check.look_arms import Given, Looked, look_at_arm
from audition.check.look_calendars import look_at_calendars
from audition.check.look_history import look_at_history
from audition.check.look_machine import look_at_machine, ours_of
from audition.check.machine import about_machine
from audition.check.timing import about_time, plan
from audition.engines.base import Engine
from audition.spike.model import Arm
from audition.spike.parse import LoadedSpike, resolve
from audition.units import NoData


@dataclass(frozen=True)
class Scope:
    """``here`` False: this is not the machine of the run, or nothing real will be touched: files alone are looked at.

    ``preflight`` False: the engines were asked already. ``state``: audition's state root, of which the disk is looked at.
    """

    here: bool = True
    preflight: bool = True
    state: Path = Path("/")
    given: Given = field(default_factory=Given)


def check(loaded: LoadedSpike, engines: Mapping[str, Engine], scope: Scope) -> Report:
    """Everything that is known of a spike before anything is touched. Starts, stops and writes nothing; asks nobody but loopback.

    Raises nothing for what it finds. ``engines``: one an arm, as a run would make them.
    """
    return judge(gather(loaded, engines, scope))


def gather(loaded: LoadedSpike, engines: Mapping[str, Engine], scope: Scope) -> Facts:
    """Look at everything once."""
    spike = loaded.spike
    records = resolve(loaded.folder, spike.records.folder)
    history = look_at_history(spike, records, loaded.folder)

    def look(arm: Arm) -> Looked:
        one = look_at_arm(
            arm, engines[arm.name], loaded.folder, os.environ, scope.given, here=scope.here, preflight=scope.preflight
        )
        return replace(one, arm=replace(one.arm, boots=history.boots.get(arm.name, ())))

    with ThreadPoolExecutor(max_workers=len(spike.arms)) as pool:  # docker calls wait for one another otherwise
        looked = list(pool.map(look, spike.arms))
    calendars = look_at_calendars(spike.window, loaded.folder)
    machine = None
    if scope.here:
        production = next(one for one in looked if one.arm.role == "production")
        root = next((one.docker_root for one in looked if not isinstance(one.docker_root, NoData)), production.docker_root)
        ours = ours_of(engines[production.arm.name], production.container_id)
        machine = look_at_machine(ours, records=records, state=scope.state, docker_root=root)
    return Facts(
        spike, time.time(), tuple(one.arm for one in looked), machine, history.times, scope.given.gpu_memory_mib, calendars
    )


def judge(facts: Facts) -> Report:
    """Apply every rule. Pure."""
    difference = by_version(facts, contrast(facts))
    findings: list[Finding] = [
        *about_arms(facts),
        *about_arguments(facts),
        *about_difference(facts, difference),
        *about_checkpoints(facts),
        *about_machine(facts),
        *about_time(facts),
    ]
    return Report(
        facts.spike.name,
        facts.machine is None,
        in_order(findings),
        difference,
        plan(facts).entries,
        control(facts, difference),
    )
