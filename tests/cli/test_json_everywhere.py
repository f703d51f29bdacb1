"""Under ``--json`` every verb writes one JSON document on standard output and nothing else, also when it fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from audition.cli.app import VERBS, group

SRC = Path(__file__).resolve().parents[2]
RUN = SRC / "docs" / "results" / "h200-mtp-k3" / "run"
CLOSED = "http://127.0.0.1:9"  # the discard port: nobody answers

# verb -> (words, exit code) of calls that end in a second and touch nothing. Every verb must be here.
CALLS: dict[str, list[tuple[tuple[str, ...], int]]] = {
    "init": [(("--production", "nowhere.yml", "--candidate", "nowhere.yml"), 2), (("--quickly",), 2)],
    "check": [(("mtp-k3", "--elsewhere"), -1), (("nowhere.yaml",), 2), ((), 2)],
    "rehearse": [
        (("nowhere.yaml",), 2),
        (("mtp-k3", "--fault", "nothing"), 2),
        (("mtp-k3", "--fault", "list"), 0),
        (("broken.yaml",), 2),
        ((), 2),
    ],
    "run": [(("nowhere.yaml",), 2), (("broken.yaml",), 2), (("--quickly", "broken.yaml"), 2)],
    "judge": [(("run",), 4), (("nowhere",), 2), ((), 2)],
    "bench": [((CLOSED, "--users", "1"), 5), ((CLOSED, "--users", "many"), 2), (("no-url",), 2), ((CLOSED, "--rate", "x"), 2)],
    "diagnose": [
        (("boot.log",), 3),
        (("healthy.log",), 0),
        (("empty.log",), 4),
        (("binary.log",), 2),
        (("nowhere.log",), 2),
        ((), 2),
    ],
    "recover": [((), 0), (("--quickly",), 2)],
    "status": [((), 0), (("--quickly",), 2)],
    "setup": [((), 0), (("--quickly",), 2)],
    "schema": [((), 0), (("--quickly",), 2)],
    "completion": [(("bash",), 0), (("csh",), 2)],
    "announce": [(("nowhere.yaml",), 2), (("--quickly",), 2)],
    "history": [((".",), 0), (("nowhere",), 2), (("--quickly",), 2)],
    "compare": [(("nowhere", "nowhere-either"), 2), (("--quickly",), 2)],
    "export": [(("nowhere",), 2), (("--quickly",), 2)],
    "report": [(("nowhere",), 2), (("--quickly",), 2)],
}
ROWS = [(verb, words, code) for verb, calls in CALLS.items() if verb in VERBS for words, code in calls]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run, two logs and a spike file that is none."""
    made = tmp_path_factory.mktemp("json")
    (made / "broken.yaml").write_text("audition: 1\nname: é\n")
    (made / "boot.log").write_text("ERROR torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
    (made / "healthy.log").write_text("INFO Application startup complete.\n")
    (made / "empty.log").write_bytes(b"")
    (made / "binary.log").write_bytes(bytes(range(256)) * 16)
    for path in RUN.rglob("*"):
        if path.is_file():
            target = made / "run" / path.relative_to(RUN)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return made


def answer(folder: Path, *words: str, **environ: str) -> tuple[int, bytes, bytes]:
    done = subprocess.run(
        [sys.executable, "-m", "audition", *words], cwd=folder, capture_output=True, timeout=100, check=False,
        env={**os.environ, "AUDITION_STATE": str(folder / "state"), **environ}, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def one_document(output: bytes) -> Any:
    def no_constant(name: str) -> None:
        raise ValueError(f"{name} is no JSON")

    return json.loads(output.decode("utf-8"), parse_constant=no_constant)


def test_every_verb_is_in_the_table_and_takes_json() -> None:
    assert sorted(set(VERBS) - set(CALLS)) == []
    without = []
    with click.Context(group, info_name="audition") as top:
        for verb in VERBS:
            command = group.get_command(top, verb)
            assert command is not None
            without += [verb] if not any("--json" in param.opts for param in command.params) else []
    assert without == []


@pytest.mark.parametrize(("verb", "words", "code"), ROWS, ids=[" ".join([verb, *words]) for verb, words, _ in ROWS])
def test_one_json_document_and_nothing_else(verb: str, words: tuple[str, ...], code: int, folder: Path) -> None:
    """``code`` -1: 0 or 5, which depends on what this machine has installed."""
    ended, out, err = answer(folder, verb, *words, "--json")
    assert ended in ((0, 5) if code == -1 else (code,)), (out, err)
    body = one_document(out)
    assert b"Traceback" not in err
    if code == 2:
        assert body["exit_code"] == 2
        assert {"error", "what", "production", "next"} <= set(body)
        assert all(isinstance(text, str) and text for name, text in body.items() if name != "exit_code")


def test_json_is_utf_8_whatever_the_locale_says(folder: Path) -> None:
    odd = os.fsdecode(b"caf\xc3\xa9-\xff.log")
    narrow = {"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    ended, out, err = answer(folder, "diagnose", odd, "--json", **narrow)
    assert ended == 2, err
    assert ".log" in one_document(out)["what"]
    ended, out, err = answer(folder, "run", "broken.yaml", "--json", **narrow)
    assert ended == 2, err
    assert "é".encode() in out
    assert one_document(out)["exit_code"] == 2


def test_what_comes_after_two_dashes_is_no_option(folder: Path) -> None:
    ended, out, err = answer(folder, "diagnose", "--", "--json")
    assert (ended, out) == (2, b"")
    assert b"--json" in err


def test_errors_for_people_say_what_runs_and_what_to_type(folder: Path) -> None:
    for words in (("run", "nowhere.yaml"), ("judge", "nowhere"), ("diagnose", "nowhere.log"), ("bench", "no-url")):
        ended, out, err = answer(folder, *words)
        assert (ended, out) == (2, b""), words
        assert b"  production: untouched\n" in err, words
        assert b"  next: " in err, words
