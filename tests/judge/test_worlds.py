"""The judge on simulated spikes whose truth is known; `make verdicts` makes the full figures."""

from __future__ import annotations

from collections import Counter

import pytest

from audition.judge.compare import compare
from audition.judge.result import judge_run
from judge.worlds import DRIFT, Spikes, naive_interval

KEY = ("users-16", "output_tok_s", "")


@pytest.mark.parametrize("drift", DRIFT)
def test_the_interval_holds_the_truth_where_the_naive_one_does_not(drift: str) -> None:
    world = Spikes(1, legs=5, effect=1.31, drift=drift)
    inside = naive = 0
    for _ in range(600):
        sheets = world.sheets()
        c = compare(sheets, "mtp", "v2g", KEY)
        assert c.low is not None
        assert c.high is not None
        inside += c.low <= 1.31 <= c.high
        low, high = world.naive(sheets)
        naive += low <= 1.31 <= high
    assert inside / 600 >= 0.93
    assert naive / 600 <= 0.6


def test_equal_arms_are_rarely_told_apart_through_the_whole_judge() -> None:
    world = Spikes(2, legs=5, effect=1.0, requests=16)
    verdicts, naive = Counter[str](), 0
    for _ in range(60):
        run = world.run()
        verdicts[judge_run(run, world.spike(1.0)).verdict] += 1
        low, high = naive_interval(run)
        naive += not low <= 1.0 <= high
    assert verdicts["INCONCLUSIVE"] >= 54
    assert naive > 30


def test_a_candidate_that_is_clearly_faster_is_go() -> None:
    world = Spikes(3, legs=9, effect=2.0, requests=16)
    assert Counter(judge_run(world.run(), world.spike(1.05)).verdict for _ in range(10))["GO"] >= 9
