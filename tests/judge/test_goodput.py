"""Goodput: requests a second that keep the limits which the workload states."""

from pathlib import Path
from typing import Any

import pytest

from audition.judge.load import load_run
from audition.judge.metrics import Measure, measure_run
from audition.units import NoData
from judge.build_run import LegPlan, build_run, make_spike

# 100 tok/s a stream: TTFT 0.1 s, then 59 tokens in 0.59 s, so about 10 ms a token and 0.69 s in all. Two streams of four requests.
GATE = {"metric": "failure_share", "workload": "users", "at_most": 0.5}


def goodput(folder: Path, limits: dict[str, Any] | None, **plan: Any) -> Measure | NoData:
    workload = {"name": "users", "users": 2, "requests": 8, "max_tokens": 64, "goodput": limits}
    spike = make_spike([GATE], workloads=[workload], legs=["v2g", "mtp", "v2g"])
    legs = [LegPlan("v2g", **plan), LegPlan("mtp"), LegPlan("v2g")]
    return measure_run(load_run(build_run(folder, spike, legs)), spike)[0].get(("users", "goodput", ""))


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        ({"ttft": 0.11}, 8),
        ({"ttft": 0.09}, 0),
        ({"tpot": 0.0101}, 4),  # every second request is 2 % faster, the others 2 % slower
        ({"tpot": 0.02, "e2e": 0.5}, 0),
        ({"ttft": 1, "tpot": 1, "e2e": 1}, 8),
    ],
)
def test_only_requests_that_keep_every_limit_count(tmp_path: Path, limits: dict[str, Any], kept: int) -> None:
    value = goodput(tmp_path / "run", limits)
    assert isinstance(value, Measure)
    assert value.samples == 8
    every = goodput(tmp_path / "all", {"e2e": 1000})
    assert isinstance(every, Measure)
    assert value.value == pytest.approx(every.value * kept / 8)


def test_failed_requests_are_not_good_and_do_not_hide_the_figure(tmp_path: Path) -> None:
    value = goodput(tmp_path / "run", {"e2e": 1000}, failed=4)
    assert isinstance(value, Measure)
    assert value.samples == 8
    assert value.value > 0


def test_without_limits_there_is_none(tmp_path: Path) -> None:
    value = goodput(tmp_path / "run", None)
    assert isinstance(value, NoData)
    assert "no limits" in value.reason
