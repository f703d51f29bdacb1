"""What an arm's arguments ask for, by name, for the rules of this room. Pure.

The reading itself is the judge's (the same for a check and for a verdict). Here stands the bound: JSON that is nested without end
is not read at all, and ``arguments`` says so.
"""

from __future__ import annotations

from collections.abc import Sequence

from audition.judge.confounds import parse_arguments
from audition.profile.values import too_deep


def asked_of(words: Sequence[str]) -> dict[str, str]:
    """Arguments by name, as ``parse_arguments`` gives them; none at all when one of them is nested too deeply to be read."""
    return {} if any(too_deep(word) for word in words) else parse_arguments(words)
