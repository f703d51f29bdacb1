"""Every record of the fixed run folders in ``data/``, byte for byte; ``make golden`` writes the expected ones anew."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from audition.report.result_schema import parse_result
from audition.report.summary import MOST_CHARACTERS
from golden.make import CASES, EXPECTED, SCHEMA, golden_names, records_of, schema_text

PRIVATE = (
    "maria",
    "gpu07",
    "lab.example",
    "10.20.30.40",
    "team-llm",
    "TEAM_LLM_KEY",
    "/home",
    "/data",
    "5002",
    "project_spec_dec",
    "4711",
    "patched:7",
)
VERDICTS = {"go": "GO", "no-go-boot": "NO-GO", "inconclusive": "INCONCLUSIVE", "cut": "INCONCLUSIVE", "rehearsal": "NO-GO"}


@pytest.mark.parametrize("case", CASES)
def test_every_record_equals_its_golden_file(case: str, tmp_path: Path) -> None:
    run = records_of(case, tmp_path)

    names = golden_names(run)
    notes = tmp_path / "project_spec_dec.md"

    assert {*names} == {p.name for p in (EXPECTED / case).iterdir()} - {"notes-file.md"}
    for name in names:
        assert (run / name).read_text(encoding="utf-8") == (EXPECTED / case / name).read_text(encoding="utf-8"), name
    assert notes.exists() == (EXPECTED / case / "notes-file.md").exists()
    if notes.exists():
        assert notes.read_text(encoding="utf-8") == (EXPECTED / case / "notes-file.md").read_text(encoding="utf-8")


def test_the_golden_files_cover_every_verdict_and_every_record() -> None:
    found = {case: json.loads((EXPECTED / case / "result.json").read_text())["verdict"] for case in CASES}
    names = {path.name for case in CASES for path in (EXPECTED / case).iterdir()}

    assert found == VERDICTS
    assert names == {
        "result.json", "summary.txt", "summary.md", "decision.md", "upstream.md", "issue-draft.md", "notes-entry.md",
        "notes-file.md",
    }  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_manifest_is_what_sha256sum_checks(case: str, tmp_path: Path) -> None:
    run = records_of(case, tmp_path)

    good = subprocess.run(
        ["sha256sum", "-c", "--strict", "--quiet", "MANIFEST"], cwd=run, capture_output=True, text=True, check=False
    )
    listed = {line.split("  ", 1)[1] for line in (run / "MANIFEST").read_text().splitlines()}

    assert (good.returncode, good.stdout, good.stderr) == (0, "", "")
    files = {p.relative_to(run).as_posix() for p in run.rglob("*") if p.is_file()} - {"MANIFEST"}
    assert listed == (files - {"run.json"} if case == "cut" else files)


@pytest.mark.parametrize("case", CASES)
def test_what_is_meant_for_others_names_nobody_and_nothing_of_the_machine(case: str) -> None:
    looked = 0
    for name in ("upstream.md", "issue-draft.md"):
        path = EXPECTED / case / name
        if path.exists():
            looked += 1
            text = path.read_text()
            assert [word for word in PRIVATE if word in text] == []
            assert "Model-35B-AWQ" in text  # what matters to others stays
    assert looked or case not in ("go", "no-go-boot", "inconclusive")


@pytest.mark.parametrize("case", CASES)
def test_the_summary_fits_a_pull_request_comment(case: str) -> None:
    text = (EXPECTED / case / "summary.md").read_text()

    assert len(text) < MOST_CHARACTERS / 10
    assert VERDICTS[case] in text.splitlines()[0]


def test_the_decision_record_has_the_parts_of_madr() -> None:
    for case in CASES:
        text = (EXPECTED / case / "decision.md").read_text()
        parts = ["## Context and Problem Statement", "## Decision Drivers", "## Considered Options", "## Decision Outcome",
                 "### Consequences", "### Confirmation", "## Evidence"]  # fmt: skip
        places = [text.index(f"\n{part}\n") for part in parts]
        assert places == sorted(places)
        assert text.startswith('---\nstatus: "')


# -- the schema of result.json ------------------------------------------------------------------------------------------


def problems(value: Any, schema: dict[str, Any], root: dict[str, Any], where: str = "$") -> list[str]:
    """What is wrong with a value according to the part of JSON Schema that is used here; an unknown keyword is an error."""
    known = {"$schema", "$defs", "title", "description", "type", "properties", "required", "additionalProperties", "items", "anyOf",
             "$ref", "enum", "const", "default"}  # fmt: skip
    if not schema.keys() <= known:
        raise AssertionError(f"{where}: this check does not know {schema.keys() - known}")
    if "$ref" in schema:
        return problems(value, root["$defs"][schema["$ref"].rpartition("/")[2]], root, where)
    if "anyOf" in schema:
        tried = [problems(value, option, root, where) for option in schema["anyOf"]]
        return [] if not all(tried) else tried[0]
    out: list[str] = []
    if "const" in schema and value != schema["const"]:
        out.append(f"{where}: {value!r} is not {schema['const']!r}")
    if "enum" in schema and value not in schema["enum"]:
        out.append(f"{where}: {value!r} is none of {schema['enum']}")
    kinds: dict[str, tuple[type, ...]] = {
        "object": (dict,), "array": (list,), "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,),
        "null": (type(None),),
    }  # fmt: skip
    kind = schema.get("type")
    if kind and (not isinstance(value, kinds[kind]) or (isinstance(value, bool) and kind in ("integer", "number"))):
        return [*out, f"{where}: {value!r} is no {kind}"]
    if isinstance(value, dict):
        inner, more = schema.get("properties", {}), schema.get("additionalProperties", True)
        out += [f"{where}: {name} is missing" for name in schema.get("required", []) if name not in value]
        for name, part in value.items():
            if name in inner:
                out += problems(part, inner[name], root, f"{where}.{name}")
            elif more is False:
                out.append(f"{where}: {name} is not allowed")
            elif isinstance(more, dict):
                out += problems(part, more, root, f"{where}.{name}")
    if isinstance(value, list) and "items" in schema:
        out += [p for n, part in enumerate(value) for p in problems(part, schema["items"], root, f"{where}[{n}]")]
    return out


def test_the_schema_is_the_committed_one() -> None:
    """When this fails on purpose: raise RESULT_SCHEMA if a reader of old files would be misled, and run `make golden`."""
    assert SCHEMA.read_text(encoding="utf-8") == schema_text()


def test_the_schema_is_printed_by_a_command() -> None:
    done = subprocess.run([sys.executable, "-m", "audition", "schema", "--result"], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == json.loads(SCHEMA.read_text(encoding="utf-8"))


@pytest.mark.parametrize("case", CASES)
def test_results_keep_to_the_schema(case: str) -> None:
    schema = json.loads(SCHEMA.read_text())
    result = json.loads((EXPECTED / case / "result.json").read_text())

    assert problems(result, schema, schema) == []
    assert parse_result((EXPECTED / case / "result.json").read_bytes()).verdict == VERDICTS[case]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (["schema"], 2), (["verdict"], "MAYBE"), (["extra"], 1), (["legs", 0, "figures", 0, "value"], "fast"),
        (["gates", 0, "parts"], None), (["started_at"], "2025-12-01"), (["rehearsal"], None),
    ],
)  # fmt: skip
def test_a_result_that_is_not_as_the_schema_says_is_found(path: list[Any], value: Any) -> None:
    schema = json.loads(SCHEMA.read_text())
    result = json.loads((EXPECTED / "go" / "result.json").read_text())
    place = result
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value

    assert problems(result, schema, schema) != []
