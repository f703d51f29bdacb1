"""Ready workloads: the programme of the reference spike, and what may be added to it. Pure data.

What must not live here: running them.
"""

from __future__ import annotations

from audition.spike.model import Sampling, Workload

GREEDY = Sampling(temperature=0.0)
SOAK_TOKENS = 30_000
"""Least generated tokens of a soak: one engine's acceptance fell to 0 after 14,500 and stayed there."""

_ROWS = [
    Workload(name="single", users=1, requests=8, thinking=False, max_tokens=512),
    Workload(name="single-thinking", users=1, requests=8, thinking=True, max_tokens=1024),
    Workload(name="users-5", users=5, requests=30, thinking=False, max_tokens=512),
    Workload(name="users-16", users=16, requests=96, thinking=False, max_tokens=512),
    Workload(name="tools", users=1, requests=12, thinking=False, prompts="tools", max_tokens=512),
    *(
        Workload(
            name=f"prefill-{thousands}k", users=1, requests=3, warmup=0, prompts="long", prompt_tokens=thousands * 1000,
            thinking=False, max_tokens=16, deadline=1800.0, silence=900.0, survival=True,
        )
        for thousands in (30, 95, 235)
    ),
    # 15 minutes of 5 users are 30,000 tokens from 34 tok/s on.
    Workload(name="soak", users=5, duration=900.0, thinking=False, max_tokens=1024),
]  # fmt: skip

PROGRAMME: dict[str, Workload] = {workload.name: workload for workload in _ROWS}
REFERENCE = ("single", "single-thinking", "users-5", "users-16")


def closed_loop(users: int, max_tokens: int) -> Workload:
    """So many users, six requests each and eight at least."""
    return Workload(name=f"users-{users}", users=users, requests=max(8, 6 * users), max_tokens=max_tokens)


def greedy(workload: Workload) -> Workload:
    """The same at temperature 0. Acceptance is higher there than under production's sampling, so the two are never mixed."""
    return workload.model_copy(update={"name": f"{workload.name}-greedy", "sampling": GREEDY})
