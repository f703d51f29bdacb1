"""Every point of every step, once: production comes back each time. Process engine and compose engine.

Every set of victims at every point is what `make kill-matrix` does, several times; here the victims take turns.
"""

from __future__ import annotations

import functools
from pathlib import Path

import pytest

from crash.containers import ContainerWorld
from crash.kill_matrix import VICTIMS, Trial, all_jobs, every_point, one_pass, run_matrix, trial
from crash.world import World
from environments.docker_engine import DockerEngine


def judged(trials: list[Trial]) -> None:
    assert [t for t in trials if t.problems] == []
    assert [t for t in trials if not t.struck] == [], "these points were never reached"


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_processes_every_point_of_every_step_with_changing_victims(tmp_path: Path) -> None:
    everything = all_jobs(World, tmp_path)
    jobs = every_point(everything)
    assert len({step for step, _, _ in jobs}) >= 20, "fewer steps than a run with three legs has"
    assert {job[:2] for job in jobs} == {job[:2] for job in everything}
    assert {victims for _, _, victims in jobs} == set(VICTIMS)
    judged(run_matrix(World, tmp_path, jobs, workers=2))


@pytest.mark.slow
@pytest.mark.docker
@pytest.mark.timeout(1500)
def test_containers_every_step_with_changing_victims_and_points(docker: DockerEngine, tmp_path: Path) -> None:
    """One pass over all steps: each step is struck once, and points and victims take turns over the steps."""
    make = functools.partial(ContainerWorld, docker=docker)
    judged([trial(make, tmp_path, job) for job in one_pass(all_jobs(make, tmp_path))])


@pytest.mark.parametrize("step", ["take-lock", "snapshot"])
def test_a_production_that_dies_before_the_guard_is_armed_makes_the_run_refuse(step: str, tmp_path: Path) -> None:
    """Nobody took that server from anybody yet: nothing is started, nothing is left behind, and the run says why."""
    with World(tmp_path / "world") as here:

        def strike(at: str, where: str) -> None:
            if (at, where) == (step, "before-intent"):
                here.strike(["engine"])

        assert here.run(strike) == 5
        assert here.engine_pids() == []
        assert here.quiet()
        assert list((here.folder / "_iteration_log").iterdir()) == []
        assert list((here.folder / "state" / "runs").iterdir()) == []
        assert "refused: production" in (here.folder / "runner.log").read_text()
