"""The shipped example `tiny-vllm`, run as its README says, against real vLLM on this machine's CPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from audition.engines.process import ProcessEngine
from audition.observe.logs import read_log
from audition.spike.parse import load_spike
from environments.live_vllm import LiveVllm

ROOT = Path(__file__).resolve().parents[2]
SPIKE = ROOT / "examples" / "tiny-vllm" / "spike.yaml"
LOG_TOLERANCE = 0.02  # the log rounds to three digits, and its last interval may not be printed yet when a leg ends


@pytest.fixture(scope="module")
def run(live_vllm: LiveVllm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """One whole run; production, which it leaves running, is ended afterwards."""
    state = tmp_path_factory.mktemp("state")
    done = subprocess.run(
        [sys.executable, "-m", "audition", "run", str(SPIKE.relative_to(ROOT)), "--json"],
        cwd=ROOT, env={**os.environ, "AUDITION_STATE": str(state)}, capture_output=True, text=True, timeout=1100, check=False,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.stdout, done.stderr
    said = json.loads(done.stdout)
    said["stderr"], said["code"] = done.stderr, done.returncode
    yield said
    loaded = load_spike(SPIKE)
    production = ProcessEngine(loaded.spike.production, loaded.folder, state / "end", "end-of-test", production=True)
    if production.observe().state == "running":
        assert production.stop().proved
    if "run_dir" in said:
        shutil.rmtree(said["run_dir"])


def legs_of(run: dict[str, Any], arm: str) -> list[Path]:
    return sorted(path for path in (Path(run["run_dir"]) / "legs").iterdir() if path.name.endswith(arm))


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_run_ends_with_a_verdict_and_production_back(run: dict[str, Any]) -> None:
    reasons = " ".join(run["result"]["reasons"])
    if run["result"]["verdict"] == "INCONCLUSIVE":
        # The engine computes on the cores that the client needs; where it starves the client, audition must say so.
        assert run["code"] == 4
        assert "ran late" in reasons or "client" in reasons, reasons
    else:
        assert (run["code"], run["result"]["verdict"]) == (0, "GO"), reasons
    assert run["result"]["rehearsal"] is False
    assert run["restored"]["verified"] is True
    assert run["restored"]["problems"] == []
    assert [leg["outcome"] for leg in run["result"]["legs"]] == ["complete"] * 3


@pytest.mark.live
@pytest.mark.timeout(1200)
def test_tokens_of_the_client_equal_usage_and_the_engines_counters(run: dict[str, Any]) -> None:
    compared = 0
    for leg in (Path(run["run_dir"]) / "legs").iterdir():
        for file in leg.glob("*.requests.jsonl"):
            workload = json.loads((leg / file.name.replace(".requests.jsonl", ".json")).read_text())
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            assert all(row["outcome"] == "ok" and not row["tokens_estimated"] for row in rows)
            assert sum(row["completion_tokens"] for row in rows) == workload["counters"]["generation_tokens"]
            assert sum(row["prompt_tokens"] for row in rows) == workload["counters"]["prompt_tokens"]
            compared += 1
    assert compared == 3 * 4


@pytest.mark.live
@pytest.mark.timeout(1200)
def test_acceptance_by_position_agrees_with_the_engines_log(run: dict[str, Any]) -> None:
    [leg] = legs_of(run, "mtp-k3")
    totals: dict[str, float] = {}
    for file in leg.glob("*.json"):
        data = json.loads(file.read_text())
        for name, value in (data.get("counters") or {}).items() if isinstance(data, dict) else ():
            totals[name] = totals.get(name, 0) + value
    drafts = totals["spec_decode_num_drafts"]
    measured = [totals[f"spec_decode_num_accepted_tokens_per_pos[{place}]"] / drafts for place in range(3)]
    lines = read_log((leg / "engine.log").read_text().splitlines()).spec
    weights = [line.draft_tokens for line in lines]
    assert sum(weights) > 0
    logged = [
        sum(line.per_position[place] * w for line, w in zip(lines, weights, strict=True)) / sum(weights) for place in range(3)
    ]
    assert measured == pytest.approx(logged, abs=LOG_TOLERANCE)
    assert 0.5 < measured[2] <= measured[1] <= measured[0] <= 1


@pytest.mark.live
@pytest.mark.timeout(1200)
def test_only_the_candidate_speculates(run: dict[str, Any]) -> None:
    for leg in run["result"]["legs"]:
        assert bool(leg["acceptance"]) == (leg["arm"] == "mtp-k3")
