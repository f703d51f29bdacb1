"""`audition history`, `compare` and `export` on real run folders, as a person types them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audition.errors import BadInput, Refused
from audition.judge.folder import judge_folder
from audition.report.comparing import APART, compare_runs, load_one, load_runs
from audition.report.history import CACHE, history
from audition.report.mlflow import export_runs
from audition.report.writer import write_records
from golden.make import CASES, DATA

VERDICTS = {"go": "GO", "no-go-boot": "NO-GO", "inconclusive": "INCONCLUSIVE", "cut": "INCONCLUSIVE", "rehearsal": "NO-GO"}


def typed(*words: str | Path, cwd: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "audition", *map(str, words)],
        capture_output=True, text=True, check=False, cwd=cwd, env={**os.environ, **variables}, timeout=120,
    )  # fmt: skip


def judged(run: Path) -> Path:
    spike, result = judge_folder(run)
    write_records(run, result, spike, run.parent, False)
    return run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("records") / "_iteration_log"
    shutil.copytree(DATA, folder, ignore=shutil.ignore_patterns(CACHE))
    for case in CASES:
        judged(folder / case)
    return folder


@pytest.fixture
def records(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "_iteration_log"))


# -- history ------------------------------------------------------------------------------------------------------------


def rows_of(folder: Path, *more: str) -> dict[str, dict[str, Any]]:
    done = typed("history", folder, "--json", *more)
    assert (done.returncode, done.stderr) == (0, "")
    return {row["folder"]: row for row in json.loads(done.stdout)["runs"]}


def test_every_run_is_listed_with_its_verdict(records: Path) -> None:
    rows = rows_of(records)
    assert {name: row["verdict"] for name, row in rows.items()} == VERDICTS
    assert {row["state"] for row in rows.values()} == {"judged"}
    assert (rows["cut"]["production_back"], rows["go"]["production_back"]) == (None, True)
    assert rows["rehearsal"]["rehearsal"] is True

    done = typed("history", cwd=records.parent)
    assert done.returncode == 0
    assert "5 runs: 1 GO, 2 NO-GO, 2 INCONCLUSIVE; 1 of them is a rehearsal." in done.stdout
    assert "rehearsal NO-GO" in done.stdout


def test_a_selection_and_one_run_by_itself(records: Path) -> None:
    assert list(rows_of(records, "--real", "--last", "2")) == ["no-go-boot", "inconclusive"]
    assert rows_of(records, "--spike", "another") == {}
    assert list(rows_of(records / "go")) == ["go"]
    assert typed("history", records, "--spike", "another").stdout == "No runs.\n"


def taken(path: Path) -> Path:
    """The place of a file that is no longer there."""
    path.unlink()
    return path


DAMAGE: dict[str, Callable[[Path], object]] = {
    "run.json cut short": lambda run: (run / "run.json").write_text((run / "run.json").read_text()[:50]),
    "run.json is no object": lambda run: (run / "run.json").write_text("[1]"),
    "no run.json": lambda run: (run / "run.json").unlink(),
    "result.json cut in the middle": lambda run: (run / "result.json").write_text((run / "result.json").read_text()[:20000]),
    "result.json cut at once": lambda run: (run / "result.json").write_text("{"),
    "result.json is empty": lambda run: (run / "result.json").write_text(""),
    "result.json is a folder": lambda run: shutil.copytree(run / "legs", taken(run / "result.json")),
    "another version": lambda run: (run / "result.json").write_text('{"schema": 99, "verdict": "GO"}'),
    "of another run": lambda run: shutil.copy(run.parent / "cut" / "result.json", run / "result.json"),
    "not UTF-8": lambda run: (run / "run.json").write_bytes(b"\xff\xfe{}"),
    "no number": lambda run: (run / "run.json").write_text('{"run_id": "x", "started_at": NaN}'),
}


@pytest.mark.parametrize("how", DAMAGE)
def test_a_damaged_folder_is_listed_as_damaged_and_the_others_as_they_are(how: str, records: Path) -> None:
    before = history(records)
    DAMAGE[how](records / "go")

    rows = {row.folder: row for row in history(records)}

    assert rows["go"].state == "damaged"
    assert rows["go"].verdict is None
    assert rows["go"].problem
    assert [row for row in before if row.folder != "go"] == [row for name, row in rows.items() if name != "go"]
    done = typed("history", records)
    assert done.returncode == 0
    assert "1 damaged" in done.stdout


def test_a_run_without_a_result_is_not_judged(records: Path) -> None:
    (records / "go" / "result.json").unlink()
    row = rows_of(records)["go"]
    assert (row["state"], row["verdict"]) == ("not judged", None)
    assert "audition judge" in row["problem"]


def test_other_folders_and_files_are_no_runs(records: Path) -> None:
    (records / "empty").mkdir()
    (records / "notes").mkdir()
    (records / "notes" / "a.md").write_text("x")
    (records / "file.txt").write_text("x")
    (records / ".hidden").mkdir()
    assert set(rows_of(records)) == set(CASES)


def test_the_folders_are_the_truth_whatever_the_cache_says(records: Path) -> None:
    first = history(records)
    assert (records / CACHE).exists()
    for spoilt in ("", "{", "[]", '{"version": 1, "runs": {"go": {"key": 1, "row": {}}}}', '{"version": 9}', "\x00"):
        (records / CACHE).write_text(spoilt)
        assert history(records) == first
    shutil.rmtree(records / "cut")
    (records / "go" / "result.json").write_text((records / "go" / "result.json").read_text().replace('"GO"', '"NO-GO"', 1))
    now = {row.folder: row.verdict for row in history(records)}
    assert "cut" not in now
    assert now["go"] == "NO-GO"
    (records / CACHE).unlink()
    assert {row.folder: row.verdict for row in history(records)} == now


def test_a_cache_that_cannot_be_written_is_no_trouble(records: Path) -> None:
    (records / CACHE).mkdir()
    assert len(history(records)) == len(CASES)
    assert not list(records.glob("*.tmp"))


def test_odd_names_cannot_write_to_the_terminal(records: Path) -> None:
    (records / "go").rename(records / "go\x1b[31m\nred")
    text = typed("history", records).stdout
    assert "\x1b" not in text
    assert "go\\x1b[31m\\x0ared" in text


def test_a_folder_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    done = typed("history", tmp_path / "nowhere", "--json")
    assert done.returncode == 2
    assert json.loads(done.stdout)["exit_code"] == 2


# -- compare ------------------------------------------------------------------------------------------------------------


def changed(run: Path, name: str, old: str, new: str) -> None:
    text = (run / name).read_text()
    assert old in text
    (run / name).write_text(text.replace(old, new))


def test_ratios_between_runs_have_no_interval_and_the_paired_ones_do(records: Path) -> None:
    done = typed("compare", records / "go", records / "inconclusive", "--json")
    assert done.returncode == 0, done.stderr
    body = json.loads(done.stdout)
    line = next(x for x in body["lines"] if (x["workload"], x["metric"]) == ("users", "output_tok_s"))
    cells = {(c["run"], c["role"]): c for c in line["cells"]}
    assert cells["go", "candidate"]["ratio"] is None
    expected = cells["inconclusive", "candidate"]["mean"] / cells["go", "candidate"]["mean"]
    assert cells["inconclusive", "candidate"]["ratio"] == pytest.approx(expected)
    assert line["paired"]["go"].startswith("1.395 [")
    assert body["caveats"] == [APART]

    text = typed("compare", records / "go", records / "inconclusive").stdout
    assert "(no interval)" in text
    assert "decides nothing" in " ".join(text.split())


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("result.json", "2e2e2e", "3f3f3f", "Different images of candidate"),
        ("result.json", '"engine_version": "0.19.1"', '"engine_version": "0.24.0"', "Different vLLM versions of candidate"),
        ("result.json", "RTX 4090", "RTX 3090", "Different GPUs: 2 x NVIDIA GeForce RTX 4090"),
        ("result.json", "580.65.06", "570.10.01", "Different drivers: 580.65.06"),
        ("result.json", '"cpus": 32', '"cpus": 16', "Different numbers of CPUs"),
        ("result.json", "131072", "65536", "--max-model-len (131072 -> 65536)"),
        ("result.json", '"spike": "mtp-k3"', '"spike": "other"', "Different spikes: mtp-k3, other"),
        ("spike.resolved.json", '"max_tokens": 64', '"max_tokens": 128', "max_tokens 64 -> 128"),
        ("result.json", '"driver": "580.65.06"', '"other": "x"', "perhaps different (production): drivers"),
        ("result.json", '"rehearsal": false', '"rehearsal": true', "Rehearsals: inconclusive"),
    ],
)
def test_what_makes_runs_incomparable_is_said(name: str, old: str, new: str, words: str, records: Path) -> None:
    changed(records / "inconclusive", name, old, new)
    caveats = compare_runs(load_runs([records / "go", records / "inconclusive"])).caveats
    assert len(caveats) >= 2
    assert [caveat for caveat in caveats if words in caveat]


def test_incomplete_and_rehearsed_runs_are_named(records: Path) -> None:
    compared = compare_runs(load_runs([records / "go", records / "cut", records / "rehearsal"]))
    assert "cut did not get through all its legs." in compared.caveats
    assert any(c.startswith("Rehearsals: rehearsal") for c in compared.caveats)


def test_a_run_that_was_not_judged_is_judged_for_it_without_writing(records: Path) -> None:
    (records / "go" / "result.json").unlink()
    assert typed("compare", records / "go", records / "inconclusive").returncode == 0
    assert not (records / "go" / "result.json").exists()


def test_one_run_or_the_same_twice_or_no_run_is_bad_input(records: Path) -> None:
    for words in ([records / "go"], [records / "go", records / "go"], [records / "go", records], [records / "go", records / "x"]):
        done = typed("compare", *words)
        assert done.returncode == 2, done.stdout
        assert "bad input" in done.stderr
    (records / "cut" / "result.json").write_text("{}")
    done = typed("compare", records / "go", records / "cut")
    assert done.returncode == 2
    assert "audition judge" in done.stderr


# -- export -------------------------------------------------------------------------------------------------------------


def test_a_run_goes_into_a_file_store_once(records: Path, tmp_path: Path) -> None:
    from mlflow.tracking import MlflowClient

    uri = f"file://{tmp_path / 'mlruns'}"
    folder = records / "go"

    (first,) = export_runs([load_one(folder)], [folder], uri, None)
    (second,) = export_runs([load_one(folder)], [folder], uri, None)

    assert (first.new, second.new, second.mlflow_run_id) == (True, False, first.mlflow_run_id)
    client = MlflowClient(tracking_uri=uri)
    run = client.get_run(first.mlflow_run_id)
    result = json.loads((folder / "result.json").read_text())
    assert run.data.tags["audition.verdict"] == "GO"
    assert run.data.params["engine_version"] == "0.19.1"
    history_of = client.get_metric_history(first.mlflow_run_id, "mtp/users/output_tok_s")
    legs = {leg["index"]: f["value"] for leg in result["legs"] if leg["arm"] == "mtp" for f in leg["figures"]
            if (f["workload"], f["metric"]) == ("users", "output_tok_s")}  # fmt: skip
    assert {m.step: m.value for m in history_of} == legs
    ratio = next(c for c in result["comparisons"] if (c["workload"], c["metric"]) == ("users", "output_tok_s"))
    for end in ("", ".low", ".high"):
        assert run.data.metrics[f"ratio/mtp/to/v2g/users/output_tok_s{end}"] == ratio[end.removeprefix(".") or "ratio"]
    names = {artifact.path for artifact in client.list_artifacts(first.mlflow_run_id)}
    assert {"result.json", "decision.md", "summary.md", "MANIFEST"} <= names
    assert run.info.status == "FINISHED"


def test_a_store_that_mlflow_does_not_know_or_that_cannot_be_written_is_refused(records: Path, tmp_path: Path) -> None:
    loaded = [load_one(records / "go")]
    with pytest.raises((BadInput, Refused)) as caught:
        export_runs(loaded, [records / "go"], "nonsense://x", None)
    assert "nonsense" in caught.value.what + caught.value.tried
    (tmp_path / "file").write_text("x")
    with pytest.raises((BadInput, Refused)):
        export_runs(loaded, [records / "go"], f"file://{tmp_path / 'file' / 'mlruns'}", None)


def test_without_mlflow_one_is_told_what_to_install(records: Path, tmp_path: Path) -> None:
    """A path in which `mlflow` cannot be imported, as on a machine without the extra."""
    (tmp_path / "mlflow.py").write_text("raise ImportError('No module named mlflow')\n")
    done = typed("export", records / "go", "--mlflow", f"file://{tmp_path}/mlruns", PYTHONPATH=str(tmp_path))
    assert done.returncode == 5
    assert "MLflow is not installed" in done.stderr
    assert "pip install 'audition[mlflow]'" in done.stderr


def test_mlflow_is_not_imported_for_anything_else(records: Path) -> None:
    code = f"import sys; sys.argv = ['audition', 'history', {str(records)!r}]\nfrom audition.cli.app import run_command\n"
    code += (
        "assert run_command(sys.argv[1:]) == 0\nassert not {'mlflow', 'pydantic', 'rich'} & set(sys.modules), sys.modules.keys()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
