"""Makes docs/results/report.md: how long the HTML report takes, how large it is, and how long a browser needs to draw it.

Run it with ``make bench-report``. The large run is synthetic (real record formats, 100,000 requests), the other the committed one.
"""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from audition.report.html.data import MAX_REQUESTS
from judge.build_run import ORDER, LegPlan, build_run, make_spike

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "results" / "report.md"
REFERENCE = ROOT / "docs" / "results" / "h200-mtp-k3" / "run"
REQUESTS, EVENTS, TRIES = 100_000, 64, 5
ALONE = """
import sys, time, resource
from pathlib import Path
from audition.judge.folder import judge_folder
folder = Path(sys.argv[1])
spike, result = judge_folder(folder)
before, begun = time.process_time(), time.perf_counter()
from audition.report.html import report_html
text = report_html(folder, result, spike)
print(time.perf_counter() - begun, time.process_time() - before, len(text.encode()))
"""


def large_run(folder: Path) -> Path:
    """A run of five legs and four workloads."""
    users = (1, 5, 16, 32)
    workloads = [{"name": f"users-{n}", "users": n, "requests": REQUESTS // 20, "max_tokens": 512} for n in users]
    gates = [{"metric": "output_tok_s", "workload": "users-16", "ratio_to": "v2g", "at_least": 1.05}]
    spike = make_spike(gates, workloads=workloads)
    rates = (100.0, 150.0, 101.0, 151.0, 100.5)
    build_run(folder, spike, [LegPlan(arm, rate, tokens=3 * EVENTS) for arm, rate in zip(ORDER, rates, strict=True)])
    (folder / "spike.resolved.json").write_text(spike.model_dump_json(exclude_unset=True))
    return folder


def alone(folder: Path) -> tuple[float, float, int]:
    """(seconds, CPU seconds, bytes) of making the page in a fresh process that has judged the run: best of TRIES."""
    rows = []
    for _ in range(TRIES):
        done = subprocess.run([sys.executable, "-c", ALONE, str(folder)], capture_output=True, text=True, check=True)
        wall, cpu, size = done.stdout.split()
        rows.append((float(wall), float(cpu), int(size)))
    return min(rows)


def command(folder: Path) -> tuple[float, float]:
    """(seconds, CPU seconds) of the whole command with start, judging and all records: best of TRIES."""
    rows = []
    for _ in range(TRIES):
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([sys.executable, "-m", "audition", "report", str(folder)], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        rows.append((time.perf_counter() - begun, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    return min(row[0] for row in rows), min(row[1] for row in rows)


def drawn(file: Path) -> str:
    """Seconds from opening the file until every chart is drawn, best of TRIES; why not, where there is no browser."""
    chromium = shutil.which("chromium")
    if chromium is None:
        return "no Chromium here"
    done = "[...document.querySelectorAll('[data-chart]')].every((place) => place.dataset.drawn === 'yes')"
    times = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(TRIES):
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            begun = time.perf_counter()
            page.goto(file.as_uri())
            page.wait_for_function(done)
            times.append(time.perf_counter() - begun)
            page.close()
        browser.close()
    return f"{min(times):.1f}"


def row(name: str, folder: Path) -> str:
    """One line of the table."""
    wall, cpu, size = alone(folder)
    whole, whole_cpu = command(folder)
    raw = sum(path.stat().st_size for path in folder.rglob("*.jsonl"))
    cells = [name, f"{raw / 1e6:.1f}", f"{size / 1e6:.2f}", f"{wall:.2f}", f"{cpu:.2f}", f"{whole:.2f}", f"{whole_cpu:.2f}"]
    return "| " + " | ".join([*cells, drawn(folder / "report.html")]) + " |"


def main() -> None:
    """Measure and write the page."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as name:
        small = Path(name) / "reference"
        shutil.copytree(REFERENCE, small)
        rows = [
            row("the committed run on one H200 (525 requests)", small),
            row(f"synthetic, {REQUESTS:,} requests of {EVENTS} events", large_run(Path(name) / "large")),
        ]
    text = f"""# The HTML report: size and time

Made by `make bench-report` with Python {platform.python_version()} on {os.cpu_count()} CPUs ({platform.machine()}),
load average {load:.1f} at the start; best of {TRIES}. Limits: 2 MB for the reference spike, 5 MB and 3 s for 100,000 requests.

| run | request records, MB | report.html, MB | page alone, s | CPU s | `audition report`, s | CPU s | drawn by Chromium, s |
|---|---|---|---|---|---|---|---|
{chr(10).join(rows)}

Page alone: reading what is drawn and making report.html, in a process that has judged the run. `audition report`: the whole
command, with its start, judging, all other records and the manifest. Drawn: from opening the file until the last chart stands.
About 0.49 MB of every page are the two chart libraries. Of more than {MAX_REQUESTS:,} requests of one workload in one leg every
n-th is drawn; figures use all of them.
"""
    PAGE.write_text(text, encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
