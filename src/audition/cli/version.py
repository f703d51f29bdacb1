"""What ``audition --version`` says: the version, the git revision of a checkout, the Python that runs it.

Never fails: without git, or where git may not be asked, the revision is said to be unknown. Nothing else belongs here.
"""

from __future__ import annotations

import os
import platform
from pathlib import Path

from audition import __version__

_LIMIT_S = 5.0
_PACKAGE = Path(__file__).resolve().parent.parent


def version_text() -> str:
    """One line, e.g. ``audition 0.1.0, revision 986d18b6fa23-dirty, Python 3.11.2``; an installed copy has no revision."""
    known = revision(_PACKAGE)
    named = f", revision {known}" if known is not None else ""
    return f"audition {__version__}{named}, Python {platform.python_version()}"


def revision(package: Path) -> str | None:
    """The commit that ``package`` (a folder ``<checkout>/src/audition``) is at; None where it lies in no checkout of its own.

    Twelve hexadecimal digits, and ``-dirty`` when a tracked file differs from the commit; ``unknown`` when git cannot tell.
    """
    checkout = package.parent.parent
    if package.parent.name != "src" or not (checkout / ".git").exists() or not (checkout / "pyproject.toml").is_file():
        return None
    import subprocess  # noqa: PLC0415 - lazily: only --version asks

    # Variables such as GIT_DIR, which git sets for its hooks, would name another repository.
    environ = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    words = ["git", "-C", str(checkout), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        ran = subprocess.run(
            words, env={**environ, "GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"}, capture_output=True, text=True,
            timeout=_LIMIT_S, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return "unknown"
    return ran.stdout.strip() or "unknown"
