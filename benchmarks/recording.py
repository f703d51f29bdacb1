"""Records the live screen: a rehearsal on a pseudo-terminal as an asciicast (version 2), and a still of it as SVG.

``make recording`` writes ``docs/media/rehearsal.cast`` and ``docs/media/rehearsal.svg``. The still is drawn by the screen's own
code from the events of the same rehearsal, as they stood late in a leg of the candidate.
"""

from __future__ import annotations

import argparse
import codecs
import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from audition.run.events import LegProgressed, from_data
from audition.run.screen_state import ScreenState
from audition.run.screen_view import View, rows

COLUMNS, LINES = 100, 30
SHOWN_AS = "/home/you"  # in place of the temporary folder
PROJECT = Path(__file__).resolve().parent.parent
TITLE = "audition rehearse mtp-k3"


def record(command: list[str], folder: Path, env: dict[str, str]) -> tuple[int, list[tuple[float, str]]]:
    """Exit code and (seconds, text) of everything that a command writes to a pseudo-terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    begun, out = time.monotonic(), list[tuple[float, str]]()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    child = subprocess.Popen(command, cwd=folder, env=env, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True)
    os.close(theirs)
    while True:
        if not select.select([ours], [], [], 0.2)[0]:
            if child.poll() is not None:
                break
            continue
        try:
            data = os.read(ours, 65536)
        except OSError:  # the last one who had the terminal open has closed it
            break
        if not data:
            break
        if text := decoder.decode(data):
            out.append((time.monotonic() - begun, text))
    os.close(ours)
    return child.wait(), out


def _without_places(text: str, folder: Path) -> str:
    """The text without the paths of this machine."""
    return text.replace(str(folder), SHOWN_AS).replace(str(PROJECT), f"{SHOWN_AS}/audition")


def cast(seen: list[tuple[float, str]], folder: Path) -> str:
    """The asciicast. What was written within 20 ms becomes one entry, so that no path is cut in two."""
    joined: list[tuple[float, str]] = []
    for at, text in seen:
        if joined and at - joined[-1][0] < 0.02:
            joined[-1] = (joined[-1][0], joined[-1][1] + text)
        else:
            joined.append((at, text))
    head = {"version": 2, "width": COLUMNS, "height": LINES, "title": TITLE, "env": {"TERM": "xterm-256color"}}
    entries = [json.dumps([round(at, 3), "o", _without_places(text, folder)], ensure_ascii=False) for at, text in joined]
    return "\n".join([json.dumps(head), *entries]) + "\n"


def still(events: list[dict[str, Any]], folder: Path) -> str:
    """The screen as SVG, late in the last workload of the candidate's last leg."""
    chosen, moment = len(events) - 1, float(events[-1]["at"])
    for place, data in enumerate(events):
        event = from_data(data)
        if not isinstance(event, LegProgressed) or event.role != "candidate" or event.phase != "measuring":
            continue
        if event.planned and 0.3 < event.done / event.planned < 1:
            chosen, moment = place, float(data["at"])
    state = ScreenState(rehearsal=True)
    kept: list[str] = []
    for data in events[: chosen + 1]:
        event = from_data(data)
        if event is not None:
            kept += state.take(event, float(data["at"]))
    console = Console(file=StringIO(), record=True, width=COLUMNS, force_terminal=True, color_system="truecolor", highlight=False)
    for row in rows(state, View(COLUMNS - 1, LINES - 1, moment + 0.1, time.time())):
        row.end = "\n"
        console.print(row)
    svg = console.export_svg(title=TITLE, unique_id="rehearsal")
    svg = _without_places(svg, folder)
    return re.sub(r"\s*@font-face \{.*?\}|<!--.*?-->\s*", "", svg, flags=re.DOTALL)  # no fonts from the network


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=Path("docs/media"), help="folder for the two files")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="keep the events, too")
    parser.add_argument("arguments", nargs="*", default=["mtp-k3"], help="what to rehearse")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="audition-recording-"))
    try:
        env = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLORTERM", "COLUMNS", "LINES")}
        env |= {"TERM": "xterm-256color", "TMPDIR": str(folder)}
        told = folder / "events.jsonl"
        command = [sys.executable, "-m", "audition", "rehearse", *chosen.arguments, "--events", str(told)]
        code, seen = record(command, folder, env)
        events = [json.loads(line) for line in told.read_text(encoding="utf-8").splitlines()]
        chosen.to.mkdir(parents=True, exist_ok=True)
        (chosen.to / "rehearsal.cast").write_text(cast(seen, folder), encoding="utf-8")
        (chosen.to / "rehearsal.svg").write_text(still(events, folder), encoding="utf-8")
        if chosen.keep is not None:
            shutil.copy(told, chosen.keep)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"exit code {code}, {len(seen)} pieces in {seen[-1][0]:.0f} s: {chosen.to}/rehearsal.cast, {chosen.to}/rehearsal.svg")
    return 0 if code in (0, 3, 4) else code


if __name__ == "__main__":
    sys.exit(main())
