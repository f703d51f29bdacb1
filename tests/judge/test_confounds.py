"""What arms differ in, and the effects that a control arm separates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from audition.judge.confounds import NOT_SET, Difference, differences, parse_arguments
from audition.judge.load import load_run
from audition.judge.records import BootRecord
from audition.judge.result import Result, judge_run
from audition.report.decision import decision_markdown
from audition.report.terminal import summary_text
from audition.report.upstream import upstream_markdown
from audition.spike.model import Spike
from judge.build_run import LegPlan, build_run, make_spike

SPEC = '{"method":"mtp","num_speculative_tokens":3}'
BASE = ["vllm", "serve", "acme/Model", "--max-model-len", "131072"]


@pytest.mark.parametrize(
    "words",
    [
        ["vllm", "serve", "m", "--speculative-config", SPEC, "--tensor-parallel-size", "2", "--no-enable-prefix-caching"],
        ["/usr/bin/vllm", "serve", "--model=m", "--speculative_config", '{"num_speculative_tokens": 3, "method": "mtp"}', "-tp",
         "2", "--enable-prefix-caching", "false"],
        ["python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m", "--speculative-config.method", "mtp",
         "--speculative-config.num_speculative_tokens", "3", "--tensor-parallel-size=2", "--no-enable-prefix-caching"],
        ["/bin/sh", "-c", f"export X=1; exec vllm serve m -sc '{SPEC}' -tp 2 --no-enable-prefix-caching"],
        ["bash", "-c", f"exec vllm serve m \\\n  -sc '{SPEC}' \\\n  -tp 2 --no-enable-prefix-caching"],
    ],
)  # fmt: skip
def test_every_spelling_of_the_same_arguments_is_the_same(words: list[str]) -> None:
    assert parse_arguments(words) == {
        "--model": "m",
        "--speculative-config": '{"method": "mtp", "num_speculative_tokens": 3}',
        "--tensor-parallel-size": "2",
        "--enable-prefix-caching": "false",
    }


def test_differences_leave_out_what_cannot_change_the_speed() -> None:
    a = parse_arguments(["--port", "1", "--api-key", "secret", "--dtype", "auto", "--enforce-eager"])
    b = parse_arguments(["--port", "2", "--dtype", "half", "--lora-modules", "x=1", "y=2"])
    assert differences(a, b) == [
        Difference("--dtype", "auto", "half"),
        Difference("--enforce-eager", "true", NOT_SET),
        Difference("--lora-modules", NOT_SET, "x=1 y=2"),
    ]


def with_control(order: list[str], **more: Any) -> Spike:
    spike = make_spike([{"metric": "output_tok_s", "workload": "users", "ratio_to": "v2g", "at_least": 1.05}])
    data = spike.model_dump(mode="json", exclude_unset=True)
    data["arms"].append({**data["arms"][1], "name": "mtp-off", "role": "control"})
    return Spike.model_validate({**data, "legs": order, **more})


def run_of(folder: Path, spike: Spike, rates: dict[str, float], arguments: dict[str, list[str]], digests: dict[str, str]) -> Result:
    legs = []
    for n, leg in enumerate(spike.planned_legs()):
        boot = BootRecord("booted", f"b{n}", 100.0, True, image_digest=digests.get(leg.arm, "sha256:aa"))
        rate = rates[leg.arm] * (1.004 if n % 4 < 2 else 1.0)
        legs.append(LegPlan(leg.arm, rate, boot=boot, facts={"arguments": arguments[leg.arm]}))
    return judge_run(load_run(build_run(folder, spike, legs)), spike)


ARGUMENTS = {
    "v2g": [*BASE, "--max-num-seqs", "16"],
    "mtp": [*BASE, "--max-num-seqs", "64", "--speculative-config", SPEC],
    "mtp-off": [*BASE, "--max-num-seqs", "64"],
}
RATES = {"v2g": 100.0, "mtp-off": 150.0, "mtp": 120.0}


def test_several_differences_are_named_in_every_record(tmp_path: Path) -> None:
    spike = make_spike([{"metric": "output_tok_s", "workload": "users", "ratio_to": "v2g", "at_least": 1.05}])
    result = run_of(tmp_path, spike, RATES, ARGUMENTS, {"mtp": "sha256:bb"})
    assert [d.flag for d in result.contrasts[0].differences] == ["--max-num-seqs", "--speculative-config"]
    assert result.contrasts[0].things == 3
    for text in (summary_text(result), decision_markdown(result), upstream_markdown(result, spike) or ""):
        flat = " ".join(text.split())
        assert "CONFOUNDED: mtp differs from v2g in 3 things: --max-num-seqs (16 -> 64), --speculative-config (not set ->" in flat
        assert "the image" in flat
        assert "A control arm" in flat


def test_a_control_arm_separates_the_thing_from_everything_else(tmp_path: Path) -> None:
    order = ["v2g", "mtp-off", "mtp", "mtp-off", "v2g", "mtp", "mtp-off", "v2g"]
    spike = with_control(order)
    result = run_of(tmp_path, spike, RATES, ARGUMENTS, {})
    assert [(c.arm, c.reference_arm, c.things) for c in result.contrasts] == [
        ("mtp", "v2g", 2),
        ("mtp", "mtp-off", 1),
        ("mtp-off", "v2g", 1),
    ]
    ratios = {(c.arm, c.reference_arm): c for c in result.comparisons if c.metric == "output_tok_s"}
    thing, rest = ratios["mtp", "mtp-off"], ratios["mtp-off", "v2g"]
    assert thing.ratio is not None
    assert rest.ratio is not None
    assert thing.ratio < 0.9  # the thing on trial slows it down, although
    assert rest.ratio > 1.2  # everything else makes the candidate faster than production
    assert thing.low is not None
    assert thing.low < thing.ratio
    text = " ".join(summary_text(result).split())
    assert "mtp / mtp-off is the thing on trial: --speculative-config" in text
    assert "the thing itself mtp / mtp-off 0.8" in text
    assert "everything else mtp-off / v2g 1.3" in text


def test_one_difference_and_none_and_unknown_ones_are_said_as_such(tmp_path: Path) -> None:
    spike = make_spike([{"metric": "output_tok_s", "workload": "users", "at_least": 10}])
    one = run_of(tmp_path / "a", spike, RATES, {"v2g": BASE, "mtp": [*BASE, "--speculative-config", SPEC]}, {})
    assert "only in --speculative-config" in " ".join(summary_text(one).split())
    none = run_of(tmp_path / "b", spike, RATES, {"v2g": BASE, "mtp": BASE}, {})
    assert "What the arms differ in" not in summary_text(none)
    data = spike.model_dump(mode="json", exclude_unset=True)
    for arm in data["arms"]:
        arm["engine"] = {"kind": "compose", "files": ["x.yml"], "service": "vllm"}
    compose = Spike.model_validate(data)
    unknown = judge_run(load_run(tmp_path / "b"), compose)
    assert unknown.contrasts[0].unknown == ""  # recorded by the legs
    bare = judge_run(load_run(build_run(tmp_path / "c", compose, [LegPlan("v2g"), LegPlan("mtp")])), compose)
    assert "not known (mtp: its arguments were not recorded)" in " ".join(summary_text(bare).split())


def test_json_nested_without_end_is_plain_text() -> None:
    deep = '{"a":' * 60_000 + "1" + "}" * 60_000
    assert parse_arguments(["vllm", "serve", "m", "--additional-config", deep])["--additional-config"] == deep
    assert parse_arguments(["vllm", "serve", "m", "--additional-config.x", deep])["--additional-config"].startswith('{"x": "{')
    assert parse_arguments(["vllm", "serve", "m", "--additional-config", "[" * 60_000])["--additional-config"] == "[" * 60_000
