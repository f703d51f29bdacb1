"""Makes the golden records anew: ``make golden``. Read the difference before committing it.

``data/`` holds the run folders, ``expected/<case>/`` every record that audition writes for them, ``expected/result.schema.json``
the schema of ``result.json``.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from audition.judge.folder import judge_folder
from audition.report.manifest import DERIVED, MANIFEST
from audition.report.result_schema import result_schema
from audition.report.writer import write_records

HOME = Path(__file__).parent
DATA, EXPECTED = HOME / "data", HOME / "expected"
CASES = sorted(path.name for path in DATA.iterdir())
SCHEMA = EXPECTED / "result.schema.json"
NOT_GOLDEN = {"report.html"}
"""The page has golden files and tests of its own."""


def records_of(case: str, folder: Path) -> Path:
    """A copy of a run folder with its records written; the notes file lies beside it."""
    run = folder / case
    shutil.copytree(DATA / case, run)
    spike, result = judge_folder(run)
    write_records(run, result, spike, folder, True)
    return run


def golden_names(run: Path) -> list[str]:
    """The records in a run folder that golden files are kept of. The manifest is not: it covers files that have none."""
    return sorted(path.name for path in run.iterdir() if path.name in DERIVED - NOT_GOLDEN and path.name != MANIFEST)


def schema_text() -> str:
    """The schema as it is kept."""
    return json.dumps(result_schema(), indent=1, sort_keys=True) + "\n"


def main() -> None:
    """Write all golden files anew."""
    shutil.rmtree(EXPECTED, ignore_errors=True)
    for case in CASES:
        with tempfile.TemporaryDirectory() as place:
            run = records_of(case, Path(place))
            (EXPECTED / case).mkdir(parents=True)
            for name in golden_names(run):
                shutil.copyfile(run / name, EXPECTED / case / name)
            notes = Path(place) / "project_spec_dec.md"
            if notes.exists():
                shutil.copyfile(notes, EXPECTED / case / "notes-file.md")
    SCHEMA.write_text(schema_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
