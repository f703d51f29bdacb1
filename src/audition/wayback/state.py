"""The folder of working state of one run: the plan, the guard's files, and how the run ended. Nothing is decided here.

<state root>/runs/<run id>/ holds plan.json (secret, removed at a verified end), plan.sha256, guard.pyz, guard.log, guard.json (who
guards), closed.json (ended with production verified) and NOT-RESTORED.json (the last failure).
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from audition.wayback.files import read_json, spare_path, sync_folder, write_atomic
from audition.wayback.plan import ProcessTarget, RestorePlan

PLAN, DIGEST, CLOSED, FAILED, GUARD = "plan.json", "plan.sha256", "closed.json", "NOT-RESTORED.json", "guard.json"

SECRET_FILES = (
    "saved-*.json",
    "candidate-*.json",
    "log-*.txt",
    "arms/*/log-since-start.txt",
    f".{PLAN}.*.tmp",
    f".{FAILED}.*.tmp",
    "arms/*/.log-since-start.txt.*.tmp",
)  # resolved profiles, and logs that may have printed a key


def plan_digest(text: str) -> str:
    """SHA-256 of a plan's JSON text."""
    return hashlib.sha256(text.encode()).hexdigest()


def write_plan(plan: RestorePlan) -> str:
    """Write plan.json and plan.sha256 with mode 0600; returns the digest. Raises OSError."""
    text = plan.to_json()
    folder = Path(plan.state_dir)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    make_private(folder)
    write_atomic(folder / PLAN, text)
    write_atomic(folder / DIGEST, plan_digest(text))
    return plan_digest(text)


def make_private(folder: Path) -> None:
    """Close a state folder and the files in it (journal, guard.log and the like) to everybody else. Raises OSError."""
    folder.chmod(0o700)
    for file in folder.iterdir():
        if file.is_file() and not file.is_symlink():
            with contextlib.suppress(FileNotFoundError):  # a journal's files come and go
                file.chmod(0o600)


def read_plan(folder: Path) -> RestorePlan:
    """The plan of a run. Raises ValueError when it is damaged (digest, version or form), OSError when it cannot be read."""
    text = (folder / PLAN).read_text(encoding="utf-8")
    with contextlib.suppress(FileNotFoundError):
        if (folder / DIGEST).read_text(encoding="utf-8").strip() != plan_digest(text):
            raise ValueError(f"{folder / PLAN} does not match its digest")
    try:
        return RestorePlan.from_json(text)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder / PLAN} is no restore plan: {error!r}") from error


def close(plan: RestorePlan, by: str, report: dict[str, Any]) -> None:
    """Record that the run ended with production verified, then remove the secret plan. Raises OSError.

    Only to be called with a verified restore report, or when production was never touched and verified.
    """
    folder = Path(plan.state_dir)
    entry = {"verified": True, "run_id": plan.run_id, "by": by, "at": time.time(), "fence": plan.fence, "report": report}
    write_atomic(folder / CLOSED, json.dumps(entry, indent=1))
    processes = [arm.process for arm in (plan.production, *plan.others) if arm.process]
    shred(folder, keep=[file for process in processes for file in _in_use(process)])


def _in_use(process: ProcessTarget) -> list[str]:
    """Files that a live server writes to, or is known by."""
    return [process.identity_file, process.log_file, *filter(None, (process.output_file, process.error_file))]


def shred(folder: Path, keep: Sequence[str] = ()) -> None:
    """Remove what holds secrets; one file that stays does not save the others. ``keep``: files that live servers use.

    Raises OSError, the first one, when all the rest is removed.
    """
    kept = {os.path.realpath(file) for file in keep}
    files = [folder / PLAN, folder / FAILED, *(file for pattern in SECRET_FILES for file in folder.glob(pattern))]
    spare = spare_path(str(folder / FAILED))
    failed: OSError | None = None
    for file in [*files, *([Path(spare)] if spare else [])]:
        if os.path.realpath(file) not in kept:
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                failed = failed or error
    sync_folder(folder)
    if failed is not None:
        raise failed


def closed(folder: Path) -> bool:
    """Whether the run ended with production verified."""
    entry = read_json(folder / CLOSED)
    return entry is not None and entry.get("verified") is True


def write_failure(plan: RestorePlan, report: dict[str, Any]) -> str:
    """Leave NOT-RESTORED.json, in the spare place when the folder cannot be written; returns where, "" when nowhere."""
    own = os.path.join(plan.state_dir, FAILED)
    for place in (own, spare_path(own)):
        if not place:
            continue
        try:
            write_atomic(Path(place), json.dumps({"run_id": plan.run_id, "at": time.time(), "report": report}, indent=1))
        except OSError:
            continue
        return place
    return ""


def run_folders(root: Path) -> list[Path]:
    """Folders of all runs in the state root, oldest name first."""
    try:
        return sorted(entry for entry in (root / "runs").iterdir() if entry.is_dir())
    except FileNotFoundError:
        return []
