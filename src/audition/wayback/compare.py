"""How a running process differs from what it should be: command, user and environment, one sentence each. Values of variables are
never shown. Pure functions; looking lives in ``proctable``.
"""

from __future__ import annotations

from audition.wayback.plan import ProcessTarget
from audition.wayback.proctable import TOKEN, UNRECORDED

SHELL_NOISE = frozenset({TOKEN, UNRECORDED, "AUDITION_STATE", "_", "OLDPWD", "PWD", "SHLVL"})
"""Variables that every shell sets anew and no server reads; the working folder is compared by itself."""


def via_interpreter(actual: list[str], wanted: list[str]) -> bool:
    """Whether ``actual`` is what the kernel or an ``exec`` in a wrapper makes of ``wanted``: same arguments behind another first
    word."""
    rest = wanted[1:]
    return not rest or actual[-len(rest) :] == rest or wanted[0].rpartition("/")[2] in ("sh", "bash", "dash", "env", "zsh")


def user_differences(actual: tuple[int, int, list[int], int] | None, wanted: ProcessTarget) -> list[str]:
    """``actual``: effective user and group, further groups, umask, as ``proctable.credentials`` gives them."""
    if wanted.uid is None:
        return []
    if actual is None:
        return ["the user cannot be compared: it cannot be read"]
    uid, gid, groups, _ = actual
    found = []
    if uid != wanted.uid:
        found.append(f"the user is {uid} instead of {wanted.uid}")
    if wanted.gid is not None and gid != wanted.gid:
        found.append(f"the group is {gid} instead of {wanted.gid}")
    if wanted.gid is not None and {gid, *groups} != {wanted.gid, *wanted.groups}:
        found.append(f"the further groups are {sorted(groups)} instead of {sorted(wanted.groups)}")
    return found


def env_differences(actual: dict[str, str], wanted: dict[str, str]) -> list[str]:
    """Names of variables that are missing, added or different."""
    actual = {name: value for name, value in actual.items() if name not in SHELL_NOISE}
    wanted = {name: value for name, value in wanted.items() if name not in SHELL_NOISE}
    texts = [f"the environment lacks {name}" for name in sorted(wanted.keys() - actual.keys())]
    texts += [f"the environment has {name} in addition" for name in sorted(actual.keys() - wanted.keys())]
    return texts + [
        f"the environment differs in {name}" for name in sorted(actual.keys() & wanted.keys()) if actual[name] != wanted[name]
    ]
