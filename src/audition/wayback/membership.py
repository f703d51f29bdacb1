"""Who belongs to a server: one pure function over a table of processes. Everything it does not name is a stranger.

No effects: reading the table lives in ``proctable``, signalling in ``procs``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from audition.wayback.plan import ProcessRef
from audition.wayback.proctable import Proc


@dataclass(frozen=True)
class Marks:
    """What proves that a process belongs to a server.

    ``leaders``: identities of processes that audition started as the server itself, each in a session made for it. ``observed``:
    those that somebody else started as the server; their session may hold strangers. ``known``: further identities once
    proved to belong. ``token``: this arm's AUDITION_TOKEN ("" for none). ``logs``: (device, inode) of the server's log files.
    """

    leaders: tuple[ProcessRef, ...] = ()
    known: frozenset[ProcessRef] = frozenset()
    token: str = ""
    logs: frozenset[tuple[int, int]] = frozenset()
    observed: tuple[ProcessRef, ...] = ()


def members(table: Mapping[int, Proc], marks: Marks, boot_id: str, never: frozenset[int]) -> list[Proc]:
    """The live processes that provably belong to the server, by pid.

    1. The identities themselves (same boot, pid and start time).
    2. Leader alive: its session. Leader dead: of its session, those that started no earlier and carry the token or write to the
       log. Sessions of observed servers prove nothing.
    3. Whoever carries the token.
    4. Children of members (a parent never starts after its child, so a reused pid is told apart).
    ``never`` holds pids that are left out whatever they look like: the caller and its ancestors, and pid 1.
    """
    live = {pid: proc for pid, proc in table.items() if not proc.dead and pid not in never}
    chosen = {
        ref.pid
        for ref in (*marks.leaders, *marks.observed, *marks.known)
        if ref.boot_id == boot_id and ref.pid in live and live[ref.pid].start_ticks == ref.start_ticks
    }
    for leader in marks.leaders:
        if leader.boot_id == boot_id:
            leads = leader.pid in chosen and live[leader.pid].start_ticks == leader.start_ticks
            chosen |= {pid for pid, proc in live.items() if _in_session(proc, leader, leads, marks)}
    if marks.token:
        chosen |= {pid for pid, proc in live.items() if proc.token == marks.token}
    return [live[pid] for pid in sorted(_with_children(live, chosen))]


def _in_session(proc: Proc, leader: ProcessRef, leader_lives: bool, marks: Marks) -> bool:
    if proc.sid != leader.pid or proc.start_ticks < leader.start_ticks:
        return False
    if leader_lives:
        return True
    return bool(marks.token and proc.token == marks.token) or bool(proc.outputs & marks.logs)


def _with_children(live: Mapping[int, Proc], chosen: set[int]) -> set[int]:
    grown = set(chosen)
    while True:
        more = {
            pid
            for pid, proc in live.items()
            if pid not in grown and proc.ppid in grown and live[proc.ppid].start_ticks <= proc.start_ticks
        }
        if not more:
            return grown
        grown |= more
