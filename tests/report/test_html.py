"""The report as a file: offline, escaped, masked, the same bytes again, figures that are the judge's, and runs cut at any step."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from audition.errors import BadInput
from audition.judge.folder import judge_folder
from audition.judge.load import load_run
from audition.judge.records import to_json
from audition.judge.result import judge_run
from audition.report.documents import Paragraph
from audition.report.html import bare_html, report_html
from audition.report.html import page as page_module
from audition.report.html.blocks import Details, Ink, render
from audition.report.html.data import MEASURES, SHARES, at_shares, read_folder
from audition.report.writer import write_records
from judge.build_run import LegPlan, build_run, legs_of, make_spike
from report.hostile import HOSTILE, hostile_run
from report.test_records import CASES, result_of

RUN = Path(__file__).resolve().parents[2] / "docs" / "results" / "h200-mtp-k3" / "run"
VENDOR = Path(page_module.__file__).parent / "vendor"


class Seen(HTMLParser):
    """Tags, addresses, texts and inline handlers of a page; scripts by their type."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[str] = []
        self.addresses: list[str] = []
        self.handlers: list[str] = []
        self.ids: list[str] = []
        self.scripts: list[tuple[str, str]] = []
        self.policy = ""
        self.words: list[str] = []
        self._script: str | None = None
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.tags.append(tag)
        self.addresses += [v or "" for k, v in attrs if k in ("src", "href", "action", "srcset", "data", "poster")]
        self.handlers += [k for k, _ in attrs if k.startswith("on")]
        self.ids += [v or "" for k, v in attrs if k == "id"]
        if named.get("http-equiv") == "Content-Security-Policy":
            self.policy = named.get("content") or ""
        if tag == "script":
            self._script = named.get("type") or ""
            self.scripts.append((self._script, ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._script = None

    def handle_data(self, data: str) -> None:
        if self._script is not None:
            kind, before = self.scripts[-1]
            self.scripts[-1] = (kind, before + data)
        else:
            self.words.append(data)


def report_of(folder: Path) -> str:
    spike, result = judge_folder(folder)
    return report_html(folder, result, spike)


@pytest.fixture(scope="module")
def real() -> str:
    return report_of(RUN)


def test_page_asks_for_nothing_and_allows_its_own_scripts_alone(real: str) -> None:
    seen = Seen(real)
    assert set(seen.tags).isdisjoint({"link", "img", "iframe", "object", "embed", "form", "base", "video", "audio"})
    assert [a for a in seen.addresses if not a.startswith("#")] == []
    assert {a.removeprefix("#") for a in seen.addresses} <= set(seen.ids)
    assert len(seen.ids) == len(set(seen.ids))
    assert not seen.handlers
    assert "url(" not in real.partition("</style>")[0]
    hashes = {
        "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"
        for kind, text in seen.scripts
        if not kind
    }
    parts = dict(part.strip().split(" ", 1) for part in seen.policy.split(";"))
    assert parts["default-src"] == "'none'"
    assert set(parts["script-src"].split()) == hashes
    assert len(hashes) == 4


def test_vendored_files_are_the_pinned_ones_with_their_licences() -> None:
    pinned: dict[str, Any] = json.loads((VENDOR / "vendored.json").read_text())
    files = {entry["file"]: entry["sha256"] for package in pinned.values() for entry in package["files"].values()}
    for name, digest in files.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name
    assert {p.name for p in VENDOR.iterdir() if p.name.startswith("LICENSE") or p.suffix == ".js"} == set(files)
    for package in pinned.values():
        assert any(entry["file"].startswith("LICENSE") for entry in package["files"].values())


def test_reference_run_stays_below_two_megabytes_and_gives_the_same_bytes_again(real: str) -> None:
    assert len(real.encode()) < 2_000_000
    assert report_of(RUN) == real


def test_figures_of_the_result_stand_in_the_page(real: str) -> None:
    words = " ".join(Seen(real).words)
    for figure in ("1.383 [0.724, 2.643] x", "199.3 / 198.4 / 201.4", "1.204 [1.048, 1.383]", "4,502,323", "251.2", "10,695"):
        assert figure in words, figure
    for heading in (
        "Why",
        "Criteria",
        "Probes",
        "Hypotheses",
        "Caveats",
        "Environment",
        "How to reproduce",
        "How production came back",
    ):
        assert heading in Seen(real).words, heading
    assert "REHEARSAL" not in real


def test_what_is_drawn_agrees_with_the_judge() -> None:
    """Half of the drawn curve lies where the judge's median does, within one step of its values."""
    _, result = judge_folder(RUN)
    folder = read_folder(RUN, result)
    compared = 0
    for leg in result.legs:
        for workload in ("single", "single-thinking", "users-5", "users-16"):
            drawn = folder.of(leg.index, workload)
            assert drawn is not None
            for measure in MEASURES:
                figure, values = leg.figure(workload, measure, "p50"), drawn.curves[measure]
                assert figure is not None
                assert figure.value is not None
                assert isinstance(values, list)
                middle = SHARES.index(0.5)
                assert values[middle - 2] <= figure.value <= values[middle + 2] or values[middle] == pytest.approx(
                    figure.value, rel=0.1
                )
                assert values == sorted(values)
                compared += 1
    assert compared == 80


def test_curve_through_few_values_is_their_distribution() -> None:
    values = at_shares([3.0, 1.0, 2.0, 4.0])
    assert values[0] == 1.0
    assert values[-1] == 4.0
    assert [values[SHARES.index(share)] for share in (0.25, 0.5, 0.75)] == [1.0, 2.0, 3.0]
    assert values[SHARES.index(0.525)] == 3.0


def test_hostile_texts_stay_texts(tmp_path: Path) -> None:
    folder, spike = hostile_run(tmp_path / "run")
    text = report_html(folder, judge_run(load_run(folder), spike), spike)
    assert HOSTILE not in text
    seen = Seen(text)
    assert "img" not in seen.tags
    assert not seen.handlers
    assert seen.tags.count("script") == 5
    assert HOSTILE in " ".join(seen.words)
    data = next(body for kind, body in seen.scripts if kind == "application/json")
    assert not set("<>&\u2028") & set(data)
    assert len(json.loads(data)) == seen.tags.count("figure")


def test_planted_secrets_are_masked_in_texts_and_data(tmp_path: Path) -> None:
    key, odd = "pl4nted-s3cret/value", "a<b>&\"c'd-secret"
    legs = legs_of([100.0, 150.0, 101.0, 151.0, 100.5])
    legs[1].facts = {"arguments": ["serve", "--api-key", key], "kv_lines": [f"password={odd}"], "engine_version": odd}
    legs[2].canary, legs[2].canary_detail = False, f"Bearer {key}"
    spike = make_spike(
        [{"name": f"gate {odd}", "metric": "output_tok_s", "workload": "users", "at_least": 1}], question=f"{key} {odd}?"
    )
    folder = build_run(tmp_path / "run", spike, legs)
    (folder / "spike.yaml").write_text(f"HF_TOKEN: hf_AbCdEfGhIjKlMnOpQrStUv\nkey: {odd}\n")
    text = report_html(folder, judge_run(load_run(folder), spike), spike, [key, odd])
    plain = " ".join(Seen(text).words) + next(body for kind, body in Seen(text).scripts if kind)
    for secret in (key, odd, "hf_AbCdEfGhIjKlMnOpQrStUv"):
        assert secret not in plain
        assert secret not in text
    assert plain.count("***") > 5


def test_text_that_html_cannot_hold_is_replaced() -> None:
    out = render([Details("a\0b", [Paragraph("lone \ud800 <i>")])], Ink())
    assert out == "<details><summary>a\ufffdb</summary><p>lone ? &lt;i&gt;</p></details>"


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("rehearsal", [True, False])
def test_every_kind_of_run_gives_a_report(tmp_path: Path, case: str, rehearsal: bool) -> None:
    result, spike = result_of(tmp_path / "run", case, rehearsal=rehearsal)
    text = (tmp_path / "run" / "report.html") if write_records(tmp_path / "run", result, spike, tmp_path, False) else None
    assert text is not None
    seen = Seen(text.read_text())
    assert result.verdict in "".join(seen.words)
    assert ("REHEARSAL, simulated figures." in seen.words) is rehearsal
    for reason in result.reasons:
        assert reason in seen.words
    assert not any("unexpected form" in word for word in seen.words)
    if case == "no-go-boot":
        assert any("AttributeError: 'code' object has no attribute 'get'" in word for word in seen.words)


def test_failed_probe_shows_what_was_answered(tmp_path: Path) -> None:
    legs = legs_of(
        [100.0, 150.0, 101.0, 151.0, 100.5], leg2=LegPlan("mtp", 150.0, canary=False, canary_detail="said one thing 40 times")
    )
    spike = make_spike([{"probe": "canary"}])
    folder = build_run(tmp_path / "run", spike, legs)
    answer = json.dumps([{"question": "capital", "content": "Paris Paris Paris", "finish_reason": "length"}])
    probes = [{"probe": "canary", "passed": False, "detail": "said one thing 40 times", "evidence": answer}]
    (folder / "legs" / "02-mtp" / "probes.json").write_text(json.dumps(probes))
    text = report_html(folder, judge_run(load_run(folder), spike), spike)
    assert re.search(r"<details open><summary>canary failed in leg 2, mtp: said one thing 40 times</summary>", text)
    assert "question: capital\ncontent: Paris Paris Paris\nfinish_reason: length" in Seen(text).words


def test_run_cut_after_any_file_yields_a_report_that_says_so(tmp_path: Path) -> None:
    """The files of a run go one after the other, newest first; whatever is left is reported."""
    folder = tmp_path / "run"
    shutil.copytree(RUN, folder)
    run = load_run(folder).record
    data = json.loads(to_json(run)) | {"ended": "running", "ended_at": None, "production_back": None}
    (folder / "run.json").write_text(json.dumps(data))
    legs = sorted((folder / "legs").rglob("*.json*"), key=lambda p: (p.parts[-2], p.name == "leg.json", p.name))
    for number, path in enumerate(reversed(legs)):
        path.unlink()
        if number % 9 == 0 or path.name == "leg.json":
            words = " ".join(Seen(report_of(folder)).words)
            assert "This run is not whole." in words
            assert "it has no recorded end" in words
            assert "unexpected form" not in words
    shutil.rmtree(folder / "legs")
    (folder / "restore.json").unlink()
    words = " ".join(Seen(report_of(folder)).words)
    assert "The run got through 0 of 5 planned legs" in words
    assert "Whether production is back is not recorded." in words
    (folder / "spike.resolved.json").unlink()
    with pytest.raises(BadInput):
        judge_folder(folder)
    bare = " ".join(Seen(bare_html(load_run(folder).record, "spike.resolved.json is missing.")).words)
    assert "NO VERDICT" in bare
    assert "nothing was measured" in bare


@pytest.mark.parametrize("spoilt", ["users.requests.jsonl", "users.json", "probes.json", "users.telemetry.jsonl", "leg.json"])
def test_spoilt_records_leave_the_rest_of_the_report(tmp_path: Path, spoilt: str) -> None:
    spike = make_spike([{"metric": "output_tok_s", "workload": "users", "at_least": 1}])
    folder = build_run(tmp_path / "run", spike, legs_of([100.0, 150.0, 101.0, 151.0, 100.5]))
    (folder / "legs" / "02-mtp" / spoilt).write_bytes(b'{"at": [1]}\n\xff\x00 no record\n')
    (folder / "restore.json").write_bytes(b"[1, 2")
    text = report_html(folder, judge_run(load_run(folder), spike), spike)
    assert Seen(text).tags.count("figure") >= 4
    assert "unexpected form" not in text
