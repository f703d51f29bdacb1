"""Makes docs/media/report*.png: the HTML report of a run in a headless Chromium, at desktop and phone width, dark, and on paper.

Run it with ``make report-media`` (``RUN=folder`` for another run than the committed one). Needs the program ``chromium``.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Literal

from playwright.sync_api import Browser, sync_playwright

from audition.judge.folder import judge_folder
from audition.report.html import report_html

ROOT = Path(__file__).parent.parent
MEDIA = ROOT / "docs" / "media"
RUN = Path(os.environ.get("RUN") or ROOT / "docs" / "results" / "h200-mtp-k3" / "run")
Scheme = Literal["light", "dark"]
SHOTS: dict[str, tuple[tuple[int, int], Scheme, str, bool]] = {
    "report.png": ((1280, 1500), "light", "", False),
    "report-workload.png": ((1280, 1300), "light", "workloads", False),
    "report-dark.png": ((1280, 1100), "dark", "ratios", False),
    "report-phone.png": ((390, 1100), "light", "", False),
    "report-paper.png": ((700, 990), "light", "", True),
}
"""File: window, scheme, the part at its top ("" for the beginning), whether as on paper."""


def shoot(browser: Browser, page_file: Path, name: str) -> None:
    """One picture."""
    (width, height), scheme, part, paper = SHOTS[name]
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce")
    if paper:
        page.emulate_media(media="print")
    page.goto(f"{page_file.as_uri()}{'#' + part if part else ''}")
    page.wait_for_function("[...document.querySelectorAll('[data-chart]')].every((place) => place.dataset.drawn === 'yes')")
    if part:
        page.evaluate("(part) => document.getElementById(part).scrollIntoView()", part)
    page.screenshot(path=MEDIA / name)
    page.close()
    print(MEDIA / name)


def main() -> int:
    """All pictures. Exit code 1 without a browser."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("no Chromium here: the program `chromium` is not installed (Debian: apt-get install chromium)", file=sys.stderr)
        return 1
    MEDIA.mkdir(parents=True, exist_ok=True)
    spike, result = judge_folder(RUN)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        file = Path(folder) / "report.html"
        file.write_text(report_html(RUN, result, spike), encoding="utf-8")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for name in SHOTS:
            shoot(browser, file, name)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
