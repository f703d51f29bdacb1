"""One headless Chromium for the browser tests, and the reports that they open."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, sync_playwright

from audition.judge.folder import judge_folder
from audition.judge.load import load_run
from audition.judge.result import judge_run
from audition.report.html import report_html
from report.hostile import HOSTILE, hostile_run

CHROMIUM = shutil.which("chromium")
RUN = Path(__file__).resolve().parents[2] / "docs" / "results" / "h200-mtp-k3" / "run"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One a file, and closed with it: while Playwright is open an event loop runs here, so that no other test could run one."""
    if CHROMIUM is None:
        pytest.skip("no Chromium here: the program `chromium` is not installed (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The report of the committed run on a real GPU; of the same run as a rehearsal that was cut in its third leg; of a run whose
    every text is hostile."""
    made = tmp_path_factory.mktemp("reports")
    spike, result = judge_folder(RUN)
    real = made / "real.html"
    real.write_text(report_html(RUN, result, spike), encoding="utf-8")
    cut = made / "cut"
    shutil.copytree(RUN, cut)
    for leg in ("04-mtp-k3", "05-production"):
        shutil.rmtree(cut / "legs" / leg)
    (cut / "restore.json").unlink()
    record: dict[str, Any] = json.loads((cut / "run.json").read_text())
    record |= {"rehearsal": True, "ended": "interrupted", "end_reason": "SIGTERM received", "production_back": None}
    (cut / "run.json").write_text(json.dumps(record))
    spike, result = judge_folder(cut)
    rehearsal = made / "rehearsal.html"
    rehearsal.write_text(report_html(cut, result, spike), encoding="utf-8")
    folder, spike = hostile_run(made / "hostile-run")
    hostile = made / "hostile.html"
    hostile.write_text(report_html(folder, judge_run(load_run(folder), spike), spike), encoding="utf-8")
    assert HOSTILE not in hostile.read_text(encoding="utf-8")
    return {"real": real, "rehearsal": rehearsal, "hostile": hostile}
