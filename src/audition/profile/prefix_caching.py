"""Whether prefix caching comes out on: given, or by a default that depends on the version and on the kind of model."""

from __future__ import annotations

from audition.profile.arguments import Parsed
from audition.profile.flag import FlagTable
from audition.units import NoData

FLAG = "--enable-prefix-caching"


def default_prefix_caching(table: FlagTable, hybrid: bool | NoData) -> bool | NoData:
    """The default for generating models: on, except for hybrid models in the versions whose source leaves it off for them."""
    of_hybrids = table.hybrid_prefix_caching
    if isinstance(hybrid, NoData):
        known_on = not isinstance(of_hybrids, NoData) and of_hybrids
        return True if known_on else NoData(f"whether {table.version} caches prefixes here, which depends on the kind of model")
    return of_hybrids if hybrid else True


def prefix_caching(parsed: Parsed, hybrid: bool | NoData) -> bool | NoData:
    """Whether a command line ends up with prefix caching on."""
    given = parsed.given(FLAG)
    return given if isinstance(given, bool) else default_prefix_caching(parsed.table, hybrid)
