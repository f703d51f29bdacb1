"""Records of whole runs: golden files, rehearsals, masking, notes, determinism."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from audition.errors import InternalError
from audition.judge.load import load_run
from audition.judge.records import BootRecord, Caveat
from audition.judge.result import PlacedCaveat, Result, judge_run
from audition.report.decision import decision_markdown
from audition.report.documents import Bullets, Code, Document, Heading, Paragraph, Table, to_markdown, to_text
from audition.report.privacy import private_free, public_image
from audition.report.summary import MOST_CHARACTERS, summary_markdown
from audition.report.terminal import summary_text
from audition.report.upstream import upstream_markdown
from audition.report.words import number, span
from audition.report.writer import write_records
from audition.spike.model import Spike
from judge.build_run import ORDER, LegPlan, build_run, legs_of, make_spike

GATES = [
    {"name": "fast enough", "metric": "output_tok_s", "workload": "users", "at_least": 200},
    {"metric": "output_tok_s", "workload": "users", "ratio_to": "v2g", "at_least": 1.05},
    {"metric": "acceptance_rate", "workload": "users", "at_least": 0.5, "shadow": True},
]
ATT4 = {
    "name": "att4-is-the-image",
    "claim": "Att4 comes from the patched image.",
    "refuted_by": "deepcopy-poison",
    "when_supported": "The patched image is the origin.",
    "when_refuted": "It is a general bug: draft an upstream issue.",
}
COUNTERS = {
    "spec_decode_num_drafts": 100.0,
    "spec_decode_num_draft_tokens": 300.0,
    "spec_decode_num_accepted_tokens": 210.0,
    "spec_decode_num_accepted_tokens_per_pos[0]": 85.0,
    "spec_decode_num_accepted_tokens_per_pos[1]": 70.0,
    "spec_decode_num_accepted_tokens_per_pos[2]": 55.0,
}
EXCERPT = "original_kwargs = copy.deepcopy(kwargs)\nAttributeError: 'code' object has no attribute 'get'"
BROKEN = BootRecord("booted", "b", None, False, "exited with code 1", "deepcopy-poison", EXCERPT, 1, "sha256:" + "cd" * 32)


def go_legs() -> list[LegPlan]:
    legs = legs_of([100.0, 150.0, 101.0, 151.0, 100.5])
    for leg in legs:
        leg.facts = {"engine_version": "0.19.1", "kv_capacity_tokens": 322_000.0, "max_concurrency": 2.46}
        leg.counters = COUNTERS if leg.arm == "mtp" else None
    legs[2].workload_caveats = [Caveat("desktop", "note", "a desktop session used 4 % of GPU 0")]
    return legs


def spike_of(**more: Any) -> Spike:
    note = {"file": "notes.md", "heading": "## Datapoints", "on": ["NO-GO", "INCONCLUSIVE"]}
    return make_spike(GATES, hypotheses=[ATT4], records={"notes": [note]}, **more)


CASES: dict[str, tuple[list[LegPlan], dict[str, Any]]] = {
    "go": (go_legs(), {}),
    "no-go-boot": (
        [LegPlan("v2g"), LegPlan("mtp", 0.0, outcome="boot-failed", boot=BROKEN), *(LegPlan(a, None) for a in ORDER[2:])],
        {"ended": "early-end", "end_reason": "mtp did not start"},
    ),
    "inconclusive-interrupted": (
        legs_of([100.0, 150.0, 101.0, None, None]),
        {"ended": "interrupted", "end_reason": "SIGINT received", "rehearsal": True},
    ),
}


def result_of(folder: Path, case: str, **run: Any) -> tuple[Result, Spike]:
    legs, fields = CASES[case]
    spike = spike_of()
    return judge_run(load_run(build_run(folder, spike, legs, run={**fields, **run})), spike), spike


def test_writing_twice_gives_identical_bytes_and_files(tmp_path: Path) -> None:
    result, spike = result_of(tmp_path / "run", "no-go-boot")
    first = write_records(tmp_path / "run", result, spike, tmp_path, True)
    bytes_of = {p: p.read_bytes() for p in first}
    again = judge_run(load_run(tmp_path / "run"), spike)
    second = write_records(tmp_path / "run", again, spike, tmp_path, True)
    assert {p: p.read_bytes() for p in first} == bytes_of
    assert set(first) - set(second) == {tmp_path / "notes.md"}
    assert not list(tmp_path.rglob(".*"))


def test_a_record_that_is_no_longer_called_for_is_removed(tmp_path: Path) -> None:
    broken, spike = result_of(tmp_path / "a", "no-go-boot")
    good, _ = result_of(tmp_path / "b", "go")
    write_records(tmp_path, broken, spike, tmp_path, False)
    assert (tmp_path / "issue-draft.md").exists()
    write_records(tmp_path, good, spike, tmp_path, False)
    assert not (tmp_path / "issue-draft.md").exists()


@pytest.mark.parametrize("case", CASES)
def test_a_rehearsal_says_so_on_every_record(tmp_path: Path, case: str) -> None:
    result, spike = result_of(tmp_path / "run", case, rehearsal=True)
    files = write_records(tmp_path / "run", result, spike, tmp_path, True)
    assert len(files) >= 5
    for file in files[:-1]:
        text = file.read_text()
        assert "REHEARSAL" in text or (file.name == "result.json" and json.loads(text)["rehearsal"] is True), file.name


def test_a_real_run_never_says_rehearsal(tmp_path: Path) -> None:
    result, spike = result_of(tmp_path / "run", "go")
    for file in write_records(tmp_path / "run", result, spike, tmp_path, True):
        assert "REHEARSAL" not in file.read_text(), file.name


def test_planted_secrets_are_in_no_record(tmp_path: Path) -> None:
    key, token = "pl4nted-s3cret/value", "hf_AbCdEfGhIjKlMnOpQrStUv"
    legs = go_legs()
    legs[1].facts = {**legs[1].facts, "arguments": ["vllm", "serve", "--api-key", key, f"HF_TOKEN={token}"]}
    legs[3].detail = f"Authorization: Bearer {key}"
    legs[0].canary_detail = f"password: {key}"
    spike = make_spike(GATES, question=f"Does {key} leak?", records={"notes": [{"file": "n.md", "heading": "H"}]})
    result = judge_run(load_run(build_run(tmp_path / "run", spike, legs)), spike)
    files = write_records(tmp_path / "run", result, spike, tmp_path, True, secrets=[key])
    assert {file.name for file in files} >= {"result.json", "summary.txt", "summary.md", "decision.md", "upstream.md", "n.md"}
    for file in files:
        text = file.read_text()
        assert key not in text, file.name
        assert token not in text, file.name
    json.loads((tmp_path / "run" / "result.json").read_text())


def test_notes_gain_an_entry_only_for_the_verdicts_they_name(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("# Notes\n\n## Datapoints\n\nold\n\n## Other\n\nend\n")
    good, spike = result_of(tmp_path / "a", "go")
    write_records(tmp_path / "a", good, spike, tmp_path, True)
    assert "audition run" not in (tmp_path / "notes.md").read_text()
    bad, _ = result_of(tmp_path / "b", "no-go-boot")
    write_records(tmp_path / "b", bad, spike, tmp_path, False)
    assert "audition run" not in (tmp_path / "notes.md").read_text()
    write_records(tmp_path / "b", bad, spike, tmp_path, True)
    text = (tmp_path / "notes.md").read_text()
    assert text.startswith("# Notes\n\n## Datapoints\n\nold\n\n<!-- audition run")
    assert text.endswith("\n\n## Other\n\nend\n")
    assert "general bug" in text


def test_a_folder_that_cannot_be_written_is_an_error_with_a_next_step(tmp_path: Path) -> None:
    result, spike = result_of(tmp_path / "run", "go")
    with pytest.raises(InternalError) as caught:
        write_records(tmp_path / "nowhere", result, spike, tmp_path, False)
    assert "audition judge" in caught.value.next_step


def test_no_datapoint_without_a_complete_candidate_leg(tmp_path: Path) -> None:
    result, spike = result_of(tmp_path / "run", "no-go-boot")
    assert upstream_markdown(result, spike) is None


def test_private_parts_are_taken_out() -> None:
    text = "--model /home/maria/models/Qwen3.6-AWQ --host 192.168.1.7 acme/Model 12 tok/s 683 / 872 ~/cache/x"
    clean = private_free(text)
    assert "maria" not in clean
    assert "192.168" not in clean
    assert "acme/Model 12 tok/s 683 / 872" in clean
    assert "Qwen3.6-AWQ" in clean
    assert private_free(clean) == clean


@pytest.mark.parametrize(
    ("reference", "digest", "shown"),
    [
        ("vllm/vllm-openai:v0.19.1", "sha256:aa", "vllm/vllm-openai:v0.19.1"),
        ("ghcr.io/acme/x:1", "sha256:aa", "ghcr.io/acme/x:1"),
        ("registry.lab:5000/team/x:1", "not recorded", "<address>/team/x:1"),
        ("localhost/x", "sha256:aa", "<address>/x"),
        ("vllm-patched-by-maria:7", "image-id sha256:bb", "one of our own, never pushed"),
    ],
)
def test_images_are_named_as_others_know_them(reference: str, digest: str, shown: str) -> None:
    assert public_image(reference, digest) == shown


@pytest.mark.parametrize(
    ("text", "left"),
    [
        (
            "see http://gpu07.lab:5002/v1 and https://github.com/vllm-project/vllm/pull/1",
            "see http://<address> and https://github.com/vllm-project/vllm/pull/1",
        ),
        ("mail maria@lab.example now", "mail <address> now"),
        ("-v /srv/a:/models/b", "-v <path>/a:<path>/b"),
        ('File "/opt/env/lib/python3.12/site-packages/vllm/a.py", line 3', 'File "<path>/vllm/a.py", line 3'),
        ("peer fe80::1ff:fe23:4567:890a up, 14:50:06 std::vector", "peer <address> up, 14:50:06 std::vector"),
        ("bound to 10.0.0.7:5002, driver 580.65.06, v0.19.1, 3.1 / 2", "bound to <address>, driver 580.65.06, v0.19.1, 3.1 / 2"),
        ("s3://bucket/key", "s3://<address>"),
        ("/usr/bin/python3 -m vllm > /tmp/out", "/usr/bin/python3 -m vllm > <path>/out"),
    ],
)
def test_private_parts_and_nothing_else(text: str, left: str) -> None:
    assert private_free(text) == left
    assert private_free(left) == left


def test_a_summary_fits_a_comment_whatever_the_run_holds(tmp_path: Path) -> None:
    result, _ = result_of(tmp_path / "run", "no-go-boot")
    long = "word | with a bar\n" * 500
    gate = replace(result.gates[0], name=long, why=long, missing=long)
    caveats = [PlacedCaveat(long, f"code-{n}", "void" if n % 2 else "note", long) for n in range(400)]
    figures = [replace(f, workload=f"{f.workload}-{n}") for n in range(60) for f in result.legs[0].figures]
    legs = [replace(result.legs[0], index=n, figures=figures, detail=long) for n in range(200)]
    huge = replace(
        result, question=long, reasons=[long] * 400, settle=[long] * 400, gates=[gate] * 400, caveats=caveats, legs=legs,
        hypotheses=[replace(h, why=long, name=long) for h in result.hypotheses] * 100, production=long,
    )  # fmt: skip

    text = summary_markdown(huge)

    assert len(text) < MOST_CHARACTERS
    assert "and 388 more" in text
    assert text.splitlines()[0] == "## mtp-k3: NO-GO"


def test_verdict_and_reasons_stand_at_the_top(tmp_path: Path) -> None:
    result, _ = result_of(tmp_path / "run", "no-go-boot")
    assert summary_text(result).splitlines()[0] == "mtp-k3: NO-GO"
    assert decision_markdown(result).index("deepcopy-poison") < decision_markdown(result).index("## Evidence")


def test_figures_that_are_absent_are_never_zero() -> None:
    assert span(None, None, None, "the server gave no usage") == "no data (the server gave no usage)"
    assert (number(0), number(0.00123), number(1234.6), number(150.04), number(0.00001234)) == (
        "0",
        "0.00123",
        "1,235",
        "150",
        "0.000012",
    )


def test_documents_render_as_text_and_markdown() -> None:
    doc: Document = [Heading(1, "T"), Paragraph("p"), Bullets(["a"]), Table(["x", "y"], [["1|2", "3"]]), Code("log ``` end")]
    assert to_markdown(doc) == "# T\n\np\n\n- a\n\n| x | y |\n| --- | --- |\n| 1\\|2 | 3 |\n\n````\nlog ``` end\n````\n"
    assert to_text(doc) == "T\n=\n\np\n\n  - a\n\n  x    y\n  ---  -\n  1|2  3\n\n    log ``` end\n"
