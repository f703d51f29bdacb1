"""Checks between keys: names that must exist, counts of roles, limits that must fit together."""

import pytest

from audition.spike.parse import parse_spike
from spike.spike_texts import BASE, changed, only_problem, problems_of

LEGS = BASE + "legs: [old, new, old]\n"
CONTROL = changed(
    "workloads:\n",
    "  - name: minus\n    role: control\n    engine: {kind: process, command: serve}\n"
    '    endpoint: {url: "http://127.0.0.1:5003", model: m}\nworkloads:\n',
)  # the control's name stands on line 16

# the file, what to change, into what, line, key path, text, hint
CASES = {
    "two arms with one name": (
        BASE, "name: new", "name: old", 9, "arms[1].name",
        "two arms are called 'old': arms[0] (line 5) and this one", "give each its own name",
    ),
    "no candidate": (
        BASE, "role: candidate", "role: control", 4, "arms", "no arm has the role candidate; expected exactly one",
        "write `role: candidate`",
    ),
    "no production": (
        BASE, "role: production", "role: control", 4, "arms", "no arm has the role production; expected exactly one",
        "write `role: production`",
    ),
    "two candidates": (
        CONTROL, "role: control", "role: candidate", 17, "arms[2].role",
        "a second arm has the role candidate, after arms[1] (line 10); expected exactly one", "further arms are `role: control`",
    ),
    "leg of an unknown arm": (LEGS, "new, old]", "nwe, new]", 22, "legs[1]", "no arm is called 'nwe'", "did you mean `new`?"),
    "long leg of an unknown arm": (
        LEGS, "[old, new, old]", "[{arm: odl}, new]", 22, "legs[0].arm", "no arm is called 'odl'", "did you mean `old`?",
    ),
    "leg with an unknown workload": (
        LEGS, "[old, new, old]", "[new, {arm: old, workloads: [singel]}]", 22, "legs[1].workloads[0]",
        "no workload is called 'singel'", "did you mean `single`?",
    ),
    "leg with a workload twice": (
        LEGS, "[old, new, old]", "[new, {arm: old, workloads: [single, single]}]", 22, "legs[1].workloads[1]",
        "'single' is named twice", "keep one",
    ),
    "no leg of the candidate": (
        LEGS, "[old, new, old]", "[old, old]", 22, "legs", "no leg runs the candidate 'new'", "add a leg of the candidate",
    ),
    "two workloads with one name": (
        BASE, "many, users: 16, requests: 64}", "many, users: 16, requests: 64}\n  - {name: single, requests: 1}", 19,
        "workloads[2].name",
        "two workloads are called 'single': workloads[0] (line 17) and this one", "give each its own name",
    ),
    "fewer requests than users": (
        BASE, "requests: 64", "requests: 8", 18, "workloads[1].requests", "8 requests cannot keep 16 users busy",
        "give at least 16, better 64",
    ),
    "a load of no length": (
        BASE, "requests: 64", "duration: 0s", 18, "workloads[1].duration", "expected more than 0 seconds, found the text '0s'", "",
    ),
    "unknown probe": (
        BASE, "name: base", "name: base\nprobes: [canary, canari, tool_call]", 3, "probes[1]", "no probe is called 'canari'",
        "did you mean `canary`?",
    ),
    "probe twice": (
        BASE, "name: base", "name: base\nprobes: [canary, canary]", 3, "probes[1]", "'canary' is named twice", "keep one",
    ),
    "two gates with one name": (
        BASE, "name: sane", "name: fast", 21, "gates[1].name", "two gates are called 'fast': gates[0] (line 20) and this one",
        "give each its own name",
    ),
    "gate on an unknown metric": (
        BASE, "metric: output_tok_s", "metric: output_toks", 20, "gates[0].metric", "no metric is called 'output_toks'",
        "did you mean `output_tok_s`?",
    ),
    "gate on an unknown workload": (
        BASE, "workload: many", "workload: mani", 20, "gates[0].workload", "no workload is called 'mani'", "did you mean `many`?",
    ),
    "gate on goodput without limits": (
        BASE, "metric: output_tok_s", "metric: goodput", 20, "gates[0].metric",
        "the workload 'many' states no limits, so nothing tells a good request from another",
        "add e.g. `goodput: {ttft: 2s, tpot: 50ms}` to the workload",
    ),
    "gate on an unknown arm": (
        BASE, "at_least: 700", "at_least: 700, arm: newer", 20, "gates[0].arm", "no arm is called 'newer'", "did you mean `new`?",
    ),
    "gate relative to an unknown arm": (
        BASE, "at_least: 700", "at_least: 1, ratio_to: olde", 20, "gates[0].ratio_to",
        "no arm is called 'olde'", "did you mean `old`?",
    ),
    "gate on an unknown probe": (
        BASE, "probe: canary", "probe: cannary", 21, "gates[1].probe", "no probe is called 'cannary'", "did you mean `canary`?",
    ),
    "gate on a probe that is not made": (
        BASE, "probe: canary", "probe: tool_call", 21, "gates[1].probe", "the probe 'tool_call' is not made in this spike",
        "add tool_call to `probes`",
    ),
    "gate inside a group": (
        BASE, "{name: sane, probe: canary}", "{name: sane, any: [{all: [{probe: cannary}]}]}", 21, "gates[1].any[0].all[0].probe",
        "no probe is called 'cannary'", "did you mean `canary`?",
    ),
    "gate on a workload that its arm never runs": (
        LEGS, "[old, new, old]", "[old, {arm: new, workloads: [single]}, old]", 20, "gates[0].workload",
        "the workload 'many' runs in no leg of the arm 'new'", "add it to a leg of that arm",
    ),
    "ratio to an arm that never runs": (
        CONTROL, "at_least: 700", "at_least: 1, ratio_to: minus", 24, "gates[0].ratio_to",
        "no leg runs the arm 'minus'", "add a leg of it",
    ),
    "leg gate on an arm that never runs": (
        CONTROL, "{name: sane, probe: canary}", "{metric: boot_s, arm: minus, at_most: 60}", 25, "gates[1].arm",
        "no leg runs the arm 'minus'", "add a leg of it",
    ),
    "ratio of an arm to itself": (
        BASE, "at_least: 700", "at_least: 1, ratio_to: new", 20, "gates[0].ratio_to", "'new' would be divided by itself",
        "name another arm",
    ),
    "workload on a metric of a whole leg": (
        BASE, "metric: output_tok_s", "metric: boot_s", 20, "gates[0].workload",
        "boot_s belongs to a whole leg, not to a workload", "leave the key out",
    ),
    "key without meaning on a probe gate": (
        BASE, "probe: canary", "probe: canary, workload: many", 21, "gates[1].workload", "`workload` means nothing here",
        "it belongs to a metric gate",
    ),
    "one pair for a probe": (
        BASE, "probe: canary", "probe: canary, one_pair_suffices: true", 21, "gates[1].one_pair_suffices",
        "`one_pair_suffices` means nothing here", "it belongs to a metric gate",
    ),
    "limits that exclude each other": (
        BASE, "at_least: 700", "at_least: 700, at_most: 600", 20, "gates[0].at_least",
        "`at_least` 700 is above `at_most` 600: nothing can hold", "exchange the two",
    ),
    "two hypotheses with one name": (
        BASE + "hypotheses:\n  - {name: h, claim: c, refuted_by: x}\n", "refuted_by: x}",
        "refuted_by: x}\n  - {name: h, claim: d, refuted_by: z}", 24, "hypotheses[1].name",
        "two hypotheses are called 'h': hypotheses[0] (line 23) and this one", "give each its own name",
    ),
    "hypothesis about an unknown arm": (
        BASE, "name: base", "name: base\nhypotheses: [{name: h, claim: c, refuted_by: x, arm: nev}]", 3, "hypotheses[0].arm",
        "no arm is called 'nev'", "did you mean `new`?",
    ),
    "hypothesis that needs more boots than there are": (
        BASE, "name: base", "name: base\nhypotheses: [{name: h, claim: c, refuted_by: x, supported_by_clean_boots: 3}]", 3,
        "hypotheses[0].supported_by_clean_boots", "needs 3 clean boots of 'new', but the legs have 2",
        "lower the number, or add legs of that arm",
    ),
    "grace shorter than the drain": (
        BASE, "name: base", "name: base\ndrain: {budget: 5m}", 3, "drain.budget",
        "production's grace of 2 min is shorter than the drain of 5 min: requests still running would be cut",
        "write `grace: 300s` under the arm's `stop`, or lower `drain.budget`",
    ),
    "given grace shorter than the drain": (
        BASE, "    role: production", "    role: production\n    stop: {grace: 30s}", 7, "arms[0].stop.grace",
        "production's grace of 30 s is shorter than the drain of 2 min: requests still running would be cut",
        "write `grace: 120s` under the arm's `stop`, or lower `drain.budget`",
    ),
    "window that closes before it opens": (
        BASE, "name: base", 'name: base\nwindow: {opens: "2026-12-02T04:00:00+01:00", closes: "2026-12-01T22:00:00+01:00"}', 3,
        "window",
        "`opens` must be before `closes`", "",
    ),
    "window shorter than the way back": (
        BASE, "name: base", 'name: base\nwindow: {opens: "2026-12-01T22:00:00Z", closes: "2026-12-01T22:30:00Z"}', 3,
        "window.closes",
        "the window of 30 min is too short: bringing production back may take 38 min 30 s (slowest cold start x 1.5 + 60 s)",
        "agree a longer slot, or correct `restore.slowest_cold_start`",
    ),
    "name of a variable": (
        BASE, "kind: compose, files: [a.yml], service: vllm", 'kind: process, command: serve, env: {"A-B": "1"}', 7,
        "arms[0].engine.env.A-B", "'A-B' is no name of an environment variable", "letters, digits and _ only",
    ),
    "port out of range": (
        BASE, "5002\", model: m}", "99999\", model: m}", 8, "arms[0].endpoint.url",
        "expected an address with a host and a port from 1 to 65535, found the text 'http://127.0.0.1:99999'",
        "for example http://127.0.0.1:5002",
    ),
    "address without a host": (
        BASE, "http://127.0.0.1:5002\", model: m}", "http://:5002\", model: m}", 8, "arms[0].endpoint.url",
        "expected an address with a host and a port from 1 to 65535, found the text 'http://:5002'",
        "for example http://127.0.0.1:5002",
    ),
    "container name of production on production": (
        BASE, "files: [a.yml], service: vllm", "files: [a.yml], service: vllm, container_name: production", 7,
        "arms[0].engine.container_name", "production already has its own name; `production` is a choice for the other arms",
        "leave the key out",
    ),
    "a GPU twice": (BASE, "name: base", "name: base\ngpus: [0, 1, 0]", 3, "gpus[2]", "GPU 0 is named twice", "keep one"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_contradiction_is_named_with_path_line_and_remedy(case: str) -> None:
    text, old, new, line, path, said, hint = CASES[case]
    problem = only_problem(changed(old, new, text))
    assert (problem.line, problem.path, problem.text, problem.hint) == (line, path, said, hint)


def test_the_unchanged_files_are_valid() -> None:
    for text in (BASE, LEGS, CONTROL):
        assert parse_spike(text, "x").candidate.name == "new"


def test_only_shadow_gates_decide_nothing() -> None:
    text = changed("at_least: 700", "at_least: 700, shadow: true")
    problem = only_problem(changed("probe: canary", "probe: canary, shadow: true", text))
    assert (problem.line, problem.path) == (19, "gates")
    assert problem.text == "every gate is a shadow gate, so nothing would decide"


def test_a_container_name_can_only_be_taken_from_a_container() -> None:
    text = changed("{kind: compose, files: [a.yml], service: vllm}", "{kind: process, command: serve}")
    problem = only_problem(changed("      service: vllm\n", "      service: vllm\n      container_name: production\n", text))
    assert (problem.line, problem.path) == (15, "arms[1].engine.container_name")
    assert "production is no container here (engine kind process)" in problem.text


@pytest.mark.parametrize(
    ("key", "path"), [("secrets: [VALUE]", "secrets[0]"), ("KEY", "arms[1].endpoint.api_key_env")], ids=["secrets", "api_key_env"]
)
@pytest.mark.parametrize("value", ["sk-abc123", "hf_aB3dE5gH7jK9mN1pQ3", "a b", "1234567x"])
def test_a_secret_given_in_place_of_a_name_is_not_shown(key: str, path: str, value: str) -> None:
    text = changed("api_key_env: KEY", f'api_key_env: "{value}"') if key == "KEY" else BASE + f'secrets: ["{value}"]\n'
    problem = only_problem(text)
    assert problem.path == path
    assert problem.text == "expected the name of a variable, found what looks like a value (not shown)"
    assert value not in problem.render("spike.yaml")


@pytest.mark.parametrize("rest", ["", "/v1"])
def test_a_password_in_an_address_is_not_shown(rest: str) -> None:
    text = changed('http://127.0.0.1:5002", model: m}', f'http://me:pass99@127.0.0.1:5002{rest}", model: 3}}')
    problems = problems_of(text)
    assert {(p.line, p.path) for p in problems} == {(8, "arms[0].endpoint.url"), (8, "arms[0].endpoint.model")}
    assert not any("pass99" in p.render("spike.yaml") for p in problems)


def test_checks_between_keys_run_although_a_type_is_wrong_elsewhere() -> None:
    text = changed("users: 16", "users: three", changed("workload: many", "workload: mini"))
    assert [p.path for p in problems_of(text)] == ["workloads[1].users", "gates[0].workload"]


def test_a_spike_may_start_and_end_with_any_arm() -> None:
    assert parse_spike(BASE + "legs: [new, old, new]\n", "x").planned_legs()[0].arm == "new"
    assert len(parse_spike(BASE, "x").planned_legs()) == 5
