"""Checks across keys that one field's type cannot see: names that must exist, counts of roles, limits that must fit together.

They work on the plain data of a document that may still be wrong elsewhere, so that all errors of a file are reported at once:
a part of the wrong type is passed over here, because its own error says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from audition.spike.document import Document
from audition.spike.metrics import METRICS, PROBES
from audition.spike.model import Drain, Restore, Stop
from audition.spike.problems import Path, Problem, nearest, say, shorten, show_path
from audition.spike.values import instant
from audition.units import format_duration, parse_duration

ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLURAL = {"hypothesis": "hypotheses"}
_VALUE_LIKE = re.compile(r"(?=.*[a-z])(?=.*[0-9]).{16,}")
"""Sixteen characters or more with small letters and digits: a key or token rather than the name of a variable."""


def cross_check(document: Document) -> list[Problem]:
    """Every problem between keys, in no particular order. Never raises for any document."""
    view = _View(document)
    checks: list[Callable[[_View], Iterable[Problem]]] = [
        _arms, _engines, _endpoints, _legs, _workloads, _probes, _gates, _hypotheses, _times, _window, _names, _gpus,
    ]  # fmt: skip
    return [problem for check in checks for problem in check(view)]


class _View:
    """The document's data, looked at without trusting its types."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.data: dict[str, Any] = document.data if isinstance(document.data, dict) else {}
        self.arms = list(self.rows("arms"))
        self.workloads = list(self.rows("workloads"))
        self.arm_names = [arm["name"] for _, arm in self.arms if _text(arm.get("name"))]
        self.workload_names = [w["name"] for _, w in self.workloads if _text(w.get("name"))]
        self.candidate = self.of_role("candidate")
        self.production = self.of_role("production")

    def rows(self, key: str) -> Iterator[tuple[Path, dict[str, Any]]]:
        """The mappings in the list under a top-level key, with their paths."""
        rows = self.data.get(key)
        for index, row in enumerate(rows if isinstance(rows, list) else []):
            if isinstance(row, dict):
                yield (key, index), row

    def of_role(self, role: str) -> str | None:
        names = [arm.get("name") for _, arm in self.arms if arm.get("role") == role]
        return names[0] if len(names) == 1 and _text(names[0]) else None

    def section(self, key: str) -> dict[str, Any]:
        value = self.data.get(key)
        return value if isinstance(value, dict) else {}

    def legs(self) -> list[tuple[Path, str, list[str] | None]] | None:
        """Path, arm and workloads (None: all) of each leg; None when the legs cannot be known."""
        written = self.data.get("legs")
        if written is None:
            if self.production is None or self.candidate is None:
                return None
            names = [self.production, self.candidate, self.production, self.candidate, self.production]
            return [(("legs", index), name, None) for index, name in enumerate(names)]
        if not isinstance(written, list) or not written:
            return None
        legs: list[tuple[Path, str, list[str] | None]] = []
        for index, leg in enumerate(written):
            row = {"arm": leg} if isinstance(leg, str) else leg
            if not isinstance(row, dict) or not _text(row.get("arm")):
                return None
            chosen = row.get("workloads")
            if chosen is not None and not (isinstance(chosen, list) and all(_text(name) for name in chosen)):
                return None
            legs.append((("legs", index), row["arm"], chosen))
        return legs

    def runs(self, arm: str, workload: str | None) -> bool:
        """Whether some leg of the arm runs the workload (None: any leg of the arm). True when the legs cannot be known."""
        legs = self.legs()
        if legs is None:
            return True
        return any(name == arm and (workload is None or chosen is None or workload in chosen) for _, name, chosen in legs)

    def without_limits(self) -> set[str]:
        """Names of the workloads without `goodput`."""
        return {row["name"] for _, row in self.rows("workloads") if _text(row.get("name")) and row.get("goodput") is None}

    def gates(self) -> Iterator[tuple[Path, dict[str, Any]]]:
        """Every gate, those inside groups included."""
        waiting = list(self.rows("gates"))
        while waiting:
            path, gate = waiting.pop(0)
            yield path, gate
            for key in ("all", "any"):
                inner = gate.get(key)
                if isinstance(inner, list):
                    waiting += [((*path, key, i), g) for i, g in enumerate(inner) if isinstance(g, dict)]

    def unknown(self, path: Path, what: str, found: Any, valid: Iterable[str]) -> Iterator[Problem]:
        """A problem when a given name is none of the valid ones."""
        choices = list(dict.fromkeys(valid))
        if _text(found) and choices and found not in choices:
            yield self.document.problem(path, f"no {what} is called {shorten(found)!r}", nearest(found, choices))

    def named(self, path: Path, what: str, names: Any, valid: Iterable[str]) -> Iterator[Problem]:
        """A problem for each name of a list that is none of the valid ones, or stands there twice."""
        rows = names if isinstance(names, list) else []
        for index, name in enumerate(rows):
            yield from self.unknown((*path, index), what, name, valid)
            if _text(name) and name in rows[:index]:
                yield self.document.problem((*path, index), f"{shorten(name)!r} is named twice", "keep one")

    def twice(self, rows: Iterable[tuple[Path, dict[str, Any]]], what: str) -> Iterator[Problem]:
        """A problem for each name that an earlier row has."""
        first: dict[str, Path] = {}
        for path, row in rows:
            name = row.get("name")
            if not isinstance(name, str) or not name:
                continue
            if name in first:
                line = self.document.values.get((*first[name], "name"), (0, 0))[0]
                earlier = f"{show_path(first[name])} (line {line})"
                said = f"two {_PLURAL.get(what, what + 's')} are called {shorten(name)!r}: {earlier} and this one"
                yield self.document.problem((*path, "name"), said, "give each its own name")
            first.setdefault(name, path)


def _text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


def _seconds(value: Any) -> float | None:
    if isinstance(value, str | int | float):
        try:
            return parse_duration(value)
        except ValueError:
            return None
    return None


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _arms(view: _View) -> Iterator[Problem]:
    yield from view.twice(view.arms, "arm")
    if not isinstance(view.data.get("arms"), list) or any("role" not in arm for _, arm in view.arms):
        return
    for role in ("production", "candidate"):
        having = [path for path, arm in view.arms if arm.get("role") == role]
        known = all(arm.get("role") in ("production", "candidate", "control") for _, arm in view.arms)
        if not having and known and len(view.arms) == len(view.data["arms"]):
            yield view.document.problem(("arms",), f"no arm has the role {role}; expected exactly one", f"write `role: {role}`")
        for path in having[1:]:
            line = view.document.values.get((*having[0], "role"), (0, 0))[0]
            said = f"a second arm has the role {role}, after {show_path(having[0])} (line {line}); expected exactly one"
            yield view.document.problem((*path, "role"), said, "further arms are `role: control`")


def _engines(view: _View) -> Iterator[Problem]:
    kinds = [
        arm["engine"].get("kind") for _, arm in view.arms if isinstance(arm.get("engine"), dict) and arm.get("role") == "production"
    ]
    for path, arm in view.arms:
        engine = arm.get("engine")
        if not isinstance(engine, dict):
            continue
        if engine.get("container_name") == "production" and engine.get("kind") == "compose":
            if arm.get("role") == "production":
                said = "production already has its own name; `production` is a choice for the other arms"
                yield view.document.problem((*path, "engine", "container_name"), said, "leave the key out")
            elif len(kinds) == 1 and kinds[0] in ("process", "simulated"):
                said = f"production is no container here (engine kind {kinds[0]}), so there is no name to take"
                yield view.document.problem((*path, "engine", "container_name"), said, "write `own`")


def _endpoints(view: _View) -> Iterator[Problem]:
    for path, arm in view.arms:
        endpoint = arm.get("endpoint")
        url = endpoint.get("url") if isinstance(endpoint, dict) else None
        if not _text(url) or not isinstance(url, str):
            continue
        try:
            parts = urlsplit(url)
            good = bool(parts.hostname) and (parts.port is None or parts.port > 0)
            secret = parts.username is not None or parts.password is not None
        except ValueError:
            good, secret = False, False
        if secret:
            said = "an address must not hold a user name or password"
            problem = view.document.problem((*path, "endpoint", "url"), said, "name a variable in `api_key_env`")
            yield replace(problem, secret=True)
        elif not good:
            said = f"expected an address with a host and a port from 1 to 65535, found {say(url)}"
            yield view.document.problem((*path, "endpoint", "url"), said, "for example http://127.0.0.1:5002")


def _legs(view: _View) -> Iterator[Problem]:
    written = view.data.get("legs")
    if not isinstance(written, list):
        return
    for index, leg in enumerate(written):
        row = {"arm": leg} if isinstance(leg, str) else leg
        if not isinstance(row, dict):
            continue
        path: Path = ("legs", index) if isinstance(leg, str) else ("legs", index, "arm")
        yield from view.unknown(path, "arm", row.get("arm"), view.arm_names)
        chosen = row.get("workloads")
        yield from view.named(("legs", index, "workloads"), "workload", chosen, view.workload_names)
    if written and view.candidate is not None and not view.runs(view.candidate, None):
        yield view.document.problem(("legs",), f"no leg runs the candidate {view.candidate!r}", "add a leg of the candidate")


def _workloads(view: _View) -> Iterator[Problem]:
    yield from view.twice(view.workloads, "workload")
    for path, workload in view.workloads:
        users, requests = workload.get("users", 1), workload.get("requests")
        if isinstance(users, int) and isinstance(requests, int) and requests < users:
            said = f"{requests} requests cannot keep {users} users busy"
            yield view.document.problem((*path, "requests"), said, f"give at least {users}, better {4 * users}")
        deadline, silence = _seconds(workload.get("deadline")), _seconds(workload.get("silence"))
        for key, value in (("deadline", deadline), ("silence", silence), ("duration", _seconds(workload.get("duration")))):
            if value == 0:
                yield view.document.problem((*path, key), f"expected more than 0 seconds, found {say(workload[key])}")


def _probes(view: _View) -> Iterator[Problem]:
    yield from view.named(("probes",), "probe", view.data.get("probes"), PROBES)


def _gates(view: _View) -> Iterator[Problem]:
    gates = list(view.gates())
    yield from view.twice(gates, "gate")
    for path, gate in gates:
        yield from _gate_names(view, path, gate)
        yield from _gate_reach(view, path, gate)
        yield from _gate_limits(view, path, gate)
    top = [gate for _, gate in view.rows("gates")]
    if top and len(top) == len(view.data["gates"]) and all(gate.get("shadow") is True for gate in top):
        said = "every gate is a shadow gate, so nothing would decide"
        yield view.document.problem(("gates",), said, "remove `shadow: true` from at least one")


def _gate_names(view: _View, path: Path, gate: dict[str, Any]) -> Iterator[Problem]:
    yield from view.unknown((*path, "metric"), "metric", gate.get("metric"), METRICS)
    yield from view.unknown((*path, "workload"), "workload", gate.get("workload"), view.workload_names)
    yield from view.unknown((*path, "arm"), "arm", gate.get("arm"), view.arm_names)
    yield from view.unknown((*path, "ratio_to"), "arm", gate.get("ratio_to"), view.arm_names)
    yield from view.unknown((*path, "probe"), "probe", gate.get("probe"), PROBES)
    probe, made = gate.get("probe"), view.data.get("probes", ["canary"])
    if isinstance(probe, str) and probe in PROBES and isinstance(made, list) and probe not in made:
        said = f"the probe {probe!r} is not made in this spike"
        yield view.document.problem((*path, "probe"), said, f"add {probe} to `probes`")


def _gate_reach(view: _View, path: Path, gate: dict[str, Any]) -> Iterator[Problem]:
    """Whether the legs can give the gate its value, and every key of it means something."""
    metric = METRICS.get(gate["metric"]) if _text(gate.get("metric")) else None
    workload, arm = gate.get("workload"), gate.get("arm") or view.candidate
    if metric is not None and metric.scope == "leg" and workload is not None:
        said = f"{metric.name} belongs to a whole leg, not to a workload"
        yield view.document.problem((*path, "workload"), said, "leave the key out")
        workload = None
    if metric is not None and metric.name == "goodput" and _text(workload) and workload in view.without_limits():
        said = f"the workload {workload!r} states no limits, so nothing tells a good request from another"
        yield view.document.problem((*path, "metric"), said, "add e.g. `goodput: {ttft: 2s, tpot: 50ms}` to the workload")
    for key, name in (("arm", arm), ("ratio_to", gate.get("ratio_to"))):
        if not _text(name) or name not in view.arm_names or ("metric" not in gate and "probe" not in gate):
            continue
        if not view.runs(str(name), None):
            if name != view.candidate:  # for the candidate, the legs' own problem says it
                at = (*path, key) if key in gate else path
                yield view.document.problem(at, f"no leg runs the arm {name!r}", "add a leg of it")
        elif isinstance(workload, str) and workload in view.workload_names and not view.runs(str(name), workload):
            said = f"the workload {workload!r} runs in no leg of the arm {name!r}"
            yield view.document.problem((*path, "workload"), said, "add it to a leg of that arm")
    if _text(arm) and gate.get("ratio_to") == arm:
        yield view.document.problem((*path, "ratio_to"), f"{arm!r} would be divided by itself", "name another arm")
    if any(isinstance(gate.get(group), list) for group in ("all", "any")):
        idle: tuple[str, ...] = ("stat", "workload", "arm", "one_pair_suffices")
    elif "probe" in gate and "metric" not in gate:
        idle = ("stat", "workload", "one_pair_suffices")
    else:
        return
    for key in idle:
        if gate.get(key) not in (None, False):
            said = f"`{key}` means nothing here"
            hint = "it belongs to a metric gate"
            yield view.document.problem((*path, key), said, hint, at_key=True)


def _gate_limits(view: _View, path: Path, gate: dict[str, Any]) -> Iterator[Problem]:
    low, high = _number(gate.get("at_least")), _number(gate.get("at_most"))
    if low is not None and high is not None and low > high:
        said = f"`at_least` {low:g} is above `at_most` {high:g}: nothing can hold"
        yield view.document.problem((*path, "at_least"), said, "exchange the two")


def _hypotheses(view: _View) -> Iterator[Problem]:
    rows = list(view.rows("hypotheses"))
    yield from view.twice(rows, "hypothesis")
    legs = view.legs()
    for path, row in rows:
        yield from view.unknown((*path, "arm"), "arm", row.get("arm"), view.arm_names)
        arm, wanted = row.get("arm") or view.candidate, row.get("supported_by_clean_boots", 1)
        if legs is None or not _text(arm) or arm not in view.arm_names or not isinstance(wanted, int):
            continue
        boots = sum(1 for _, name, _ in legs if name == arm)
        if wanted > boots:
            key = "supported_by_clean_boots" if "supported_by_clean_boots" in row else "name"
            said = f"needs {wanted} clean boots of {arm!r}, but the legs have {boots}"
            yield view.document.problem((*path, key), said, "lower the number, or add legs of that arm")


def _times(view: _View) -> Iterator[Problem]:
    budget = _seconds(view.section("drain").get("budget", Drain().budget))
    for path, arm in view.arms:
        stop = arm.get("stop", {})
        grace = _seconds(stop.get("grace", Stop().grace)) if isinstance(stop, dict) else None
        if arm.get("role") != "production" or grace is None or budget is None or grace >= budget:
            continue
        said = (
            f"production's grace of {format_duration(grace)} is shorter than the drain of {format_duration(budget)}: "
            "requests still running would be cut"
        )
        at = (*path, "stop", "grace") if isinstance(stop, dict) and "grace" in stop else ("drain", "budget")
        yield view.document.problem(at, said, f"write `grace: {budget:g}s` under the arm's `stop`, or lower `drain.budget`")


def _window(view: _View) -> Iterator[Problem]:
    window = view.section("window")
    try:
        opens, closes = instant(window.get("opens")), instant(window.get("closes"))
        length = (closes - opens).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return
    slowest = _seconds(view.section("restore").get("slowest_cold_start", Restore().slowest_cold_start))
    if slowest is None or length <= 0:
        return
    needed = slowest * 1.5 + 60
    if length <= needed:
        said = (
            f"the window of {format_duration(length)} is too short: bringing production back may take "
            f"{format_duration(needed)} (slowest cold start x 1.5 + 60 s)"
        )
        yield view.document.problem(("window", "closes"), said, "agree a longer slot, or correct `restore.slowest_cold_start`")


def _names(view: _View) -> Iterator[Problem]:
    """Names of variables. A value given in place of a name is not shown: it may be the secret itself."""
    secrets = view.data.get("secrets")
    for index, name in enumerate(secrets if isinstance(secrets, list) else []):
        yield from _variable(view, ("secrets", index), name)
    for path, holder, key in _named_in(view):
        yield from _variable(view, (*path, key), holder.get(key))
    announce = view.section("agreement").get("announce_env")
    for index, name in enumerate(announce if isinstance(announce, list) else []):
        yield from _variable(view, ("agreement", "announce_env", index), name)
    for path, arm in view.arms:
        if isinstance(arm.get("endpoint"), dict):
            yield from _variable(view, (*path, "endpoint", "api_key_env"), arm["endpoint"].get("api_key_env"))
        engine = arm.get("engine")
        env = engine.get("env") if isinstance(engine, dict) else None
        for name in env if isinstance(env, dict) else {}:
            if not ENV_NAME.fullmatch(name):
                said = f"{shorten(name)!r} is no name of an environment variable"
                yield view.document.problem((*path, "engine", "env", name), said, "letters, digits and _ only", at_key=True)
            elif isinstance(env, dict) and _text(env[name]) and "\0" in env[name]:
                yield view.document.problem((*path, "engine", "env", name), "a variable cannot hold a zero byte")


def _named_in(view: _View) -> Iterator[tuple[Path, dict[str, Any], str]]:
    """Mappings that name a variable under a key: where they stand, the mapping, the key."""
    calendars = view.section("window").get("calendars")
    for index, calendar in enumerate(calendars if isinstance(calendars, list) else []):
        if isinstance(calendar, dict):
            yield ("window", "calendars", index), calendar, "url_env"


def _variable(view: _View, path: Path, name: Any) -> Iterator[Problem]:
    if not isinstance(name, str):
        return
    if not ENV_NAME.fullmatch(name) or _VALUE_LIKE.fullmatch(name):
        said = "expected the name of a variable, found what looks like a value (not shown)"
        problem = view.document.problem(path, said, "give the variable's name, never the secret itself")
        yield replace(problem, secret=True)


def _gpus(view: _View) -> Iterator[Problem]:
    gpus = view.data.get("gpus")
    for index, gpu in enumerate(gpus if isinstance(gpus, list) else []):
        if isinstance(gpu, int) and isinstance(gpus, list) and gpu in gpus[:index]:
            yield view.document.problem(("gpus", index), f"GPU {gpu} is named twice", "keep one")
