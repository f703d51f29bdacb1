"""Every point of every step, every victim, once: production comes back each time."""

from __future__ import annotations

from pathlib import Path

import pytest
from kill_matrix import run_matrix


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_production_comes_back_from_a_kill_at_every_point(tmp_path: Path) -> None:
    trials = run_matrix(tmp_path, rounds=1, workers=2)
    assert len(trials) > 200
    assert [t for t in trials if t.problems] == []
    struck = [t for t in trials if t.struck]
    assert len(struck) == len(trials), "some points were never reached"
