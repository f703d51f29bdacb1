"""Foreign safety, as a property: in any table of processes only what provably belongs to the server is a member."""

from __future__ import annotations

from dataclasses import dataclass, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from audition.wayback.membership import Marks, members
from audition.wayback.plan import ProcessRef
from audition.wayback.proctable import Proc

BOOT, TOKEN, LOG = "boot-now", "token-of-this-arm", (8, 4242)
NEVER = frozenset({1, 2, 3})
LEADER = 100


@dataclass(frozen=True)
class Case:
    table: dict[int, Proc]
    marks: Marks
    ours: frozenset[int]
    provable: frozenset[int]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """A server with workers of all kinds among decoys of all kinds. ``ours`` is the truth, ``provable`` what must be found."""
    start = draw(st.integers(1000, 2000))
    fate = draw(st.sampled_from(["alive", "gone", "zombie", "recycled", "rebooted"]))
    token = draw(st.sampled_from([TOKEN, ""]))
    table: dict[int, Proc] = {pid: Proc(pid, 0 if pid == 1 else 1, pid, pid, pid) for pid in NEVER}
    ours: set[int] = set()
    provable: set[int] = set()
    boot = "boot-before" if fate == "rebooted" else BOOT
    if fate in ("alive", "zombie"):
        table[LEADER] = Proc(LEADER, 1, LEADER, LEADER, start, "S" if fate == "alive" else "Z", token=token or None)
        if fate == "alive":
            ours.add(LEADER)
            provable.add(LEADER)
    if fate == "recycled":
        table[LEADER] = Proc(LEADER, 1, LEADER, LEADER, start + draw(st.integers(1, 5000)))
    next_pid = 200
    if fate != "rebooted":
        for kind in draw(st.lists(st.sampled_from(["plain", "bare", "own-session", "own-bare"]), max_size=5)):
            pid, next_pid = next_pid, next_pid + 1
            own, bare = kind.startswith("own"), kind.endswith("bare")
            parent = LEADER if fate == "alive" else 1
            table[pid] = Proc(
                pid,
                parent,
                pid if own else LEADER,
                pid if own else LEADER,
                start + draw(st.integers(0, 500)),
                token=None if bare or not token else token,
                outputs=frozenset() if bare else frozenset({LOG}),
            )
            ours.add(pid)
            if fate == "alive" or (not bare and (token or not own)):
                provable.add(pid)
    for kind in draw(st.lists(st.sampled_from(DECOYS), min_size=1, max_size=8)):
        pid, next_pid = next_pid, next_pid + 1
        table[pid] = _decoy(kind, pid, start, draw)
        if kind == "in-reused-session" and fate not in ("alive", "rebooted"):  # a stranger led a session under our leader's old pid
            table[pid] = replace(table[pid], sid=LEADER, pgid=LEADER, outputs=frozenset({(8, 1)}))
    return Case(
        table, Marks((ProcessRef(LEADER, start, boot),), frozenset(), token, frozenset({LOG})), frozenset(ours), frozenset(provable)
    )


DECOYS = ["same-name", "other-token", "older-in-session", "log-elsewhere", "child-of-init", "runner", "in-reused-session"]


def _decoy(kind: str, pid: int, start: int, draw: st.DrawFn) -> Proc:
    later = start + draw(st.integers(0, 3000))
    plain = Proc(pid, 1, pid, pid, later, name="python")
    if kind == "other-token":
        return replace(plain, token="token-of-another-arm")
    if kind == "older-in-session":  # its session id is our leader's pid, but it started before our leader
        return replace(plain, sid=LEADER, pgid=LEADER, start_ticks=start - draw(st.integers(1, 900)), outputs=frozenset({LOG}))
    if kind == "log-elsewhere":  # writes to our log (a shared one) from a session of its own
        return replace(plain, outputs=frozenset({LOG}))
    if kind == "runner":
        return replace(plain, ppid=3)
    return plain


@settings(max_examples=1200, deadline=None)
@given(cases())
def test_no_stranger_is_ever_a_member(case: Case) -> None:
    found = {proc.pid for proc in members(case.table, case.marks, BOOT, NEVER)}
    assert found <= case.ours, f"strangers chosen: {found - case.ours}"
    assert found >= case.provable, f"own processes missed: {case.provable - found}"


@settings(max_examples=300, deadline=None)
@given(cases(), st.integers(1, 4000))
def test_a_recycled_pid_of_a_known_worker_is_a_stranger(case: Case, later: int) -> None:
    stranger = Proc(900, 1, 900, 900, 3000 + later)
    marks = replace(case.marks, known=frozenset({ProcessRef(900, 3000, BOOT), ProcessRef(901, 3000, "boot-before")}))
    table = {**case.table, 900: stranger, 901: Proc(901, 1, 901, 901, 3000)}
    assert {900, 901}.isdisjoint(proc.pid for proc in members(table, marks, BOOT, NEVER))


def test_the_caller_and_its_ancestors_are_never_members() -> None:
    table = {3: Proc(3, 2, 3, 3, 10, token=TOKEN), 50: Proc(50, 3, 50, 50, 11, token=TOKEN)}
    marks = Marks((), frozenset(), TOKEN, frozenset())
    assert [proc.pid for proc in members(table, marks, BOOT, frozenset({1, 2, 3}))] == [50]


def test_a_child_of_a_reused_parent_pid_is_a_stranger() -> None:
    """The parent pid names a younger process than the child: the real parent is gone and its pid was given out again."""
    leader = ProcessRef(100, 500, BOOT)
    table = {100: Proc(100, 1, 100, 100, 500), 60: Proc(60, 100, 60, 60, 400)}
    assert [proc.pid for proc in members(table, Marks((leader,)), BOOT, NEVER)] == [100]
