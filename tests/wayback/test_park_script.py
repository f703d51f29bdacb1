"""The script that measures parking on a real GPU, on a tiny server by the stand-in: a table after every cycle, an honest end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from wayback.tiny_world import ENGINE, free_port

ROOT = Path(__file__).resolve().parents[2]


def measured(out: Path, *options: str) -> tuple[int, str, dict[str, Any]]:
    port = str(free_port())
    command = [sys.executable, "-m", "benchmarks.park_gpu", "--out", str(out), "--cycles", "2", "--port", port, "--model", "tiny"]
    done = subprocess.run(
        [*command, "--", sys.executable, ENGINE, "--port", port, *options],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    text = out.read_text()
    return done.returncode, text, json.loads(text.partition("```json\n")[2].partition("\n```")[0])


def test_cycles_and_boots_end_in_a_table(tmp_path: Path) -> None:
    code, text, data = measured(tmp_path / "park.md", "--worker", "answers")
    assert code == 0, text
    assert "State: complete." in text
    assert "by the stand-in" in text
    assert [c["number"] for c in data["cycles"]] == [1, 2]
    assert all(c["equal"] and not c["problem"] and c["late_s"] > 0 for c in data["cycles"])
    assert len(data["boots_s"]) == 2


def test_what_cannot_be_parked_ends_with_the_reason_in_the_table(tmp_path: Path) -> None:
    code, text, data = measured(tmp_path / "park.md")
    assert code == 1
    assert "cannot be parked: it has no engine process" in text
    assert data["cycles"] == []
    assert len(data["boots_s"]) == 1
