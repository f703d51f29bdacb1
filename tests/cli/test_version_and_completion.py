"""``audition --version``, the scripts of ``audition completion`` in a real bash, and NO_COLOR."""

from __future__ import annotations

import os
import platform
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from audition import __version__
from audition.cli.app import VERBS
from audition.cli.version import revision

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "audition"


def audition(*words: str, cwd: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "audition", *words], cwd=cwd, env={**os.environ, **environ}, capture_output=True, text=True,
        timeout=100, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def git(checkout: Path, *words: str) -> str:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "init.defaultBranch=main"]
    return subprocess.run(["git", *who, "-C", str(checkout), *words], capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository that is laid out like this project."""
    package = tmp_path / "src" / "audition"
    package.mkdir(parents=True)
    (package / "a.py").write_text("1\n")
    (tmp_path / "pyproject.toml").write_text("")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "one")
    return tmp_path


def test_the_version_names_revision_and_python(tmp_path: Path) -> None:
    done = audition("--version", cwd=tmp_path)
    assert done.returncode == 0
    expected = rf"audition {re.escape(__version__)}(?:, revision (?:[0-9a-f]{{12}}(?:-dirty)?|unknown))?, Python (\S+)\n"
    found = re.fullmatch(expected, done.stdout)
    assert found is not None, done.stdout
    assert found[1] == platform.python_version()
    assert ("revision" in done.stdout) == (PACKAGE.parent.parent / ".git").exists()


def test_the_version_needs_no_git(tmp_path: Path) -> None:
    done = audition("--version", cwd=tmp_path, PATH=str(tmp_path))
    assert done.returncode == 0
    assert done.stdout.startswith(f"audition {__version__}, ")
    assert done.stderr == ""


def test_a_revision_is_marked_dirty_when_a_tracked_file_differs(checkout: Path) -> None:
    head = git(checkout, "rev-parse", "--short=12", "HEAD")
    git(checkout, "tag", "v9")
    package = checkout / "src" / "audition"
    assert revision(package) == head
    (checkout / "new.txt").write_text("not tracked\n")
    assert revision(package) == head
    (package / "a.py").write_text("2\n")
    assert revision(package) == f"{head}-dirty"


def test_an_installed_copy_inside_a_foreign_checkout_has_no_revision(checkout: Path) -> None:
    installed = checkout / ".venv" / "lib" / "site-packages" / "audition"
    installed.mkdir(parents=True)
    assert revision(installed) is None


def test_a_checkout_that_git_cannot_read_has_an_unknown_revision(checkout: Path) -> None:
    (checkout / ".git" / "HEAD").write_text("garbage")
    assert revision(checkout / "src" / "audition") == "unknown"


# -- completion ---------------------------------------------------------------------------------------------------------

SCRIPT = """\
eval "$(audition completion bash)"
compopt() {{ echo "compopt $2"; }}   # works inside a completion alone
COMP_WORDS=({words}); COMP_CWORD=$(( ${{#COMP_WORDS[@]}} - 1 )); COMPREPLY=()
_audition_completion audition "${{COMP_WORDS[COMP_CWORD]}}" "${{COMP_WORDS[COMP_CWORD-1]}}"
complete -p audition
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def suggested(folder: Path, words: str) -> list[str]:
    """What a real bash is offered. The script is click's: it calls the first word with the words so far in the environment."""
    program = folder / "bin" / "audition"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m audition "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["bash", "--norc", "-c", SCRIPT.format(words=words)], cwd=folder, capture_output=True, text=True, timeout=100, check=False,
        env={**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "_audition_completion audition" in done.stdout
    return [line for line in done.stdout.splitlines() if line and not line.startswith("complete ")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    if shutil.which("bash") is None:
        pytest.skip("no bash on this machine")
    for name in ("sub", "night", "_iteration_log/mtp_2026-12-01"):
        (tmp_path / name).mkdir(parents=True)
    for name in ("a.yaml", "boot.log", "night/spike.yaml", "_iteration_log/mtp_2026-12-01/run.json"):
        (tmp_path / name).write_text("")
    return tmp_path


def test_bash_completes_verbs(folder: Path) -> None:
    assert set(VERBS) <= set(suggested(folder, 'audition ""'))
    assert suggested(folder, "audition re") == [verb for verb in VERBS if verb.startswith("re")]


def test_bash_completes_options_and_choices(folder: Path) -> None:
    assert {"--json", "--plain", "--events", "--help"} <= set(suggested(folder, "audition run --"))
    assert suggested(folder, "audition --v") == ["--version"]
    assert suggested(folder, 'audition completion ""') == ["bash", "zsh", "fish"]
    assert suggested(folder, "audition rehearse mtp-k3 --fault oo") == ["oom"]


def test_bash_completes_spike_files_examples_runs_and_logs(folder: Path) -> None:
    assert suggested(folder, 'audition run ""') == ["a.yaml", "night"]
    assert suggested(folder, 'audition rehearse ""') == ["a.yaml", "night", "mtp-k3", "tiny-vllm"]
    assert suggested(folder, "audition run night/s") == ["night/spike.yaml"]
    assert suggested(folder, "audition run su") == ["compopt default"]
    assert suggested(folder, 'audition judge ""') == ["_iteration_log/mtp_2026-12-01"]
    assert suggested(folder, "audition judge x") == ["compopt dirnames"]
    assert suggested(folder, "audition diagnose bo") == ["compopt default"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_script_that_calls_audition(shell: str, tmp_path: Path) -> None:
    done = audition("completion", shell, cwd=tmp_path)
    assert done.returncode == 0
    assert f"_AUDITION_COMPLETE={shell}_complete" in done.stdout
    if shutil.which(shell):
        checked = subprocess.run([shell, "-n"], input=done.stdout, capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr


# -- colour -------------------------------------------------------------------------------------------------------------

COLOUR = re.compile(rb"\x1b\[[0-9;]*(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[0-9;]*m")


def on_a_terminal(folder: Path, *words: str) -> bytes:
    """What a command writes to a terminal that knows colours, with NO_COLOR set."""
    ours, theirs = pty.openpty()
    environ = {**os.environ, "NO_COLOR": "1", "TERM": "xterm-256color", "AUDITION_STATE": str(folder / "state")}
    with subprocess.Popen(
        [sys.executable, "-m", "audition", *words], cwd=folder, env=environ, stdin=theirs, stdout=theirs, stderr=theirs
    ) as child:
        os.close(theirs)
        said = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            said += part
        child.wait()
    os.close(ours)
    return said


@pytest.mark.parametrize(
    "words",
    [("--help",), ("status",), ("recover",), ("diagnose", "boot.log"), ("check", "mtp-k3", "--elsewhere"), ("run", "nowhere.yaml")],
)
def test_no_color_is_obeyed_on_a_terminal(words: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "boot.log").write_text("ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    said = on_a_terminal(tmp_path, *words)
    assert said
    assert not COLOUR.search(said), said


@pytest.mark.slow
def test_no_color_is_obeyed_by_the_screen_of_a_rehearsal(tmp_path: Path) -> None:
    said = on_a_terminal(tmp_path, "rehearse", "mtp-k3", "--fault", "oom")
    assert b"REHEARSAL" in said
    assert b"\x1b[" in said  # the screen was drawn: it moves the cursor
    assert not COLOUR.search(said)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_name_that_is_no_utf_8_leaves_the_other_suggestions(tmp_path: Path, shell: str) -> None:
    (tmp_path / "trial.yaml").write_text("audition: 1\n")
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/tri\xff.yaml")).write_text("audition: 1\n")
    (tmp_path / "tri\nal.yaml").write_text("audition: 1\n")
    for typed in ("tri", "tri\udcff"):
        words = {"COMP_WORDS": f"audition check {typed}", "COMP_CWORD": "2" if shell != "fish" else typed}
        done = audition(cwd=tmp_path, _AUDITION_COMPLETE=f"{shell}_complete", **words)
        assert done.stderr == ""
        if typed == "tri":
            assert "trial.yaml" in done.stdout
