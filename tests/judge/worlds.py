"""Simulated spikes whose truth is known: drift, boots, legs and requests that vary as they do in the field. No judging here."""

from __future__ import annotations

import math
import random
from dataclasses import replace

from audition.judge.estimate import Z_975
from audition.judge.load import LegData, RunData, WorkloadData
from audition.judge.metrics import LegSheet, Measure
from audition.judge.records import (
    EVENT_CONTENT,
    BootRecord,
    LegRecord,
    RequestRecord,
    RunRecord,
    StreamEvent,
    StreamTimes,
    WorkloadRecord,
    pack_events,
)
from audition.spike.model import Spike
from audition.units import NoData
from judge.build_run import DAY, make_spike

BOOT_SD = 0.07
LEG_SD = 0.02
REQUEST_SD = 0.15
_CORRELATION = 0.5
_USERS = 4
DRIFT = ("slow ±40 %", "steady +40 %", "none")


def order_of(legs: int) -> list[str]:
    """Production, candidate, production, ..."""
    return ["v2g" if n % 2 == 0 else "mtp" for n in range(legs)]


class Spikes:
    """Draws spikes. ``effect``: the true ratio of the candidate to production."""

    def __init__(self, seed: int, *, legs: int, effect: float, drift: str = DRIFT[0], requests: int = 48) -> None:
        self._rng = random.Random(f"{seed}/{legs}/{effect}/{drift}")
        self._arms, self._effect, self._drift, self._requests = order_of(legs), effect, drift, requests
        self._made: dict[float, Spike] = {}

    def spike(self, at_least: float) -> Spike:
        """The spike file with a ratio gate at this limit."""
        if at_least not in self._made:
            gate = {"metric": "output_tok_s", "workload": "users-16", "ratio_to": "v2g", "at_least": at_least}
            workload = {"name": "users-16", "users": _USERS, "requests": self._requests, "max_tokens": 64}
            self._made[at_least] = make_spike([gate], workloads=[workload], legs=self._arms, probes=[])
        return self._made[at_least]

    def levels(self) -> list[float]:
        """Log speed of every leg."""
        rng = self._rng
        period, phase = rng.uniform(8, 40), rng.uniform(0, 2 * math.pi)
        out = []
        for n, arm in enumerate(self._arms):
            drift = {
                DRIFT[0]: math.log(1 + 0.4 * math.sin(2 * math.pi * n / period + phase)),
                DRIFT[1]: math.log(1.4) * n / (len(self._arms) - 1),
                DRIFT[2]: 0.0,
            }[self._drift]
            out.append(drift + rng.gauss(0, BOOT_SD) + rng.gauss(0, LEG_SD) + (math.log(self._effect) if arm == "mtp" else 0.0))
        return out

    def sheets(self) -> list[LegSheet]:
        """A spike as figures of whole legs, with the error inside a leg that correlated requests give."""
        key = ("users-16", "output_tok_s", "")
        sheets = []
        for n, (arm, level) in enumerate(zip(self._arms, self.levels(), strict=True), start=1):
            inside = REQUEST_SD * math.sqrt((1 + _CORRELATION) / (1 - _CORRELATION) / self._requests)
            value = 700 * math.exp(level + self._rng.gauss(0, inside))
            sheets.append(LegSheet(n, arm, {key: Measure(value, self._requests, inside * value)}))
        return sheets

    def naive(self, sheets: list[LegSheet]) -> tuple[float, float]:
        """Before and after: first leg of production, last leg of the candidate, independent requests as the only noise."""
        key = ("users-16", "output_tok_s", "")
        first, last = sheets[0].get(key), [s for s in sheets if s.arm == "mtp"][-1].get(key)
        assert isinstance(first, Measure)
        assert isinstance(last, Measure)
        return _ratio_interval(first.value, last.value, REQUEST_SD / math.sqrt(self._requests))

    def run(self) -> RunData:
        """A spike as the records of a run."""
        legs = [self._leg(n, arm, level) for n, (arm, level) in enumerate(zip(self._arms, self.levels(), strict=True), start=1)]
        record = RunRecord("simulated", "mtp-k3", "?", False, None, "0", DAY, self._arms, DAY + 1, "complete", "", True)
        return RunData(record, tuple(legs), {"verified": True})

    def first(self, run: RunData, legs: int) -> RunData:
        """The same run when only so many legs have run."""
        rest = [LegData(n, arm, NoData("was not reached"), NoData("was not reached"), reached=False)
                for n, arm in enumerate(self._arms[legs:], start=legs + 1)]  # fmt: skip
        return replace(run, record=replace(run.record, ended="running"), legs=(*run.legs[:legs], *rest))

    def _leg(self, number: int, arm: str, level: float) -> LegData:
        role = "production" if arm == "v2g" else "candidate"
        boot = BootRecord("booted", f"boot-{number}", 100.0, True)
        record = LegRecord(number, arm, role, "complete", "", DAY, DAY + 1, boot, ["users-16"])
        rows = self._requests_of(level)
        work = WorkloadRecord("users-16", _USERS, DAY, max(r.end for r in rows), True, "", requests_recorded=len(rows))
        return LegData(number, arm, record, (), workloads={"users-16": WorkloadData("users-16", work, tuple(rows))})

    def _requests_of(self, level: float) -> list[RequestRecord]:
        """A closed loop whose requests vary together (first-order autoregression in the order of sending)."""
        rng, clock, rows, slow = self._rng, [0.0] * _USERS, [], 0.0
        for index in range(self._requests):
            slow = _CORRELATION * slow + rng.gauss(0, REQUEST_SD * math.sqrt(1 - _CORRELATION**2))
            user = min(range(_USERS), key=clock.__getitem__)
            begin, seconds = clock[user], 60 / (40 * math.exp(level + slow))
            clock[user] = end = begin + seconds
            times = StreamTimes(begin + 0.05 * seconds, begin + 0.05 * seconds, end, 60, 1, 60)
            rows.append(RequestRecord(index, user, "p", begin, begin, begin, end, "ok", "", 200, 32, 60, False, "length",
                                      _events(begin, end), times))  # fmt: skip
        return rows


def _events(begin: float, end: float) -> str:
    first = begin + 0.05 * (end - begin)
    return pack_events([StreamEvent(first + (end - first) * n / 59, 1, EVENT_CONTENT) for n in range(60)])


def naive_interval(run: RunData) -> tuple[float, float]:
    """Before and after on the records of a run: first leg of production, last of the candidate; mean tokens per second of single
    requests, each taken for an independent sample, as common tools and spreadsheets do."""
    legs = [run.legs[0], [leg for leg in run.legs if leg.arm == "mtp"][-1]]
    means, errors = [], []
    for leg in legs:
        rows = leg.workloads["users-16"].requests
        assert not isinstance(rows, NoData)
        speeds = [math.log((r.completion_tokens or 0) / (r.end - r.scheduled)) for r in rows]
        centre = math.fsum(speeds) / len(speeds)
        means.append(centre)
        errors.append(math.fsum((x - centre) ** 2 for x in speeds) / (len(speeds) - 1) / len(speeds))
    half = Z_975 * math.sqrt(math.fsum(errors))
    middle = means[1] - means[0]
    return math.exp(middle - half), math.exp(middle + half)


def _ratio_interval(before: float, after: float, error: float) -> tuple[float, float]:
    middle, half = math.log(after / before), Z_975 * error * math.sqrt(2)
    return math.exp(middle - half), math.exp(middle + half)
