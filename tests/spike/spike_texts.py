"""A small valid spike file, and helpers that break it in one place. Used by the tests of this room."""

import pytest

from audition.spike.parse import parse_spike
from audition.spike.problems import BadSpike, Problem

BASE = """\
audition: 1
name: base
question: Is the candidate faster?
arms:
  - name: old
    role: production
    engine: {kind: compose, files: [a.yml], service: vllm}
    endpoint: {url: "http://127.0.0.1:5002", model: m}
  - name: new
    role: candidate
    engine:
      kind: compose
      files: [b.yml]
      service: vllm
    endpoint: {url: "http://127.0.0.1:5002", model: m, api_key_env: KEY}
workloads:
  - {name: single, users: 1, requests: 8}
  - {name: many, users: 16, requests: 64}
gates:
  - {name: fast, metric: output_tok_s, workload: many, at_least: 700}
  - {name: sane, probe: canary}
"""


def changed(old: str, new: str, text: str = BASE) -> str:
    """The text with one place changed; fails when the place is not there exactly once."""
    assert text.count(old) == 1, f"{old!r} stands {text.count(old)} times in the text"
    return text.replace(old, new)


def problems_of(text: str) -> tuple[Problem, ...]:
    with pytest.raises(BadSpike) as caught:
        parse_spike(text, "spike.yaml")
    assert caught.value.exit_code == 2
    return caught.value.problems


def only_problem(text: str) -> Problem:
    problems = problems_of(text)
    assert len(problems) == 1, "\n".join(problem.render("spike.yaml") for problem in problems)
    return problems[0]
