"""A spike file drafted from what two profiles say: workloads and gates that fit what is tried, with comments. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from audition.check.difference import SPECULATION
from audition.check.numbers import whole
from audition.judge.confounds import differences
from audition.units import format_duration

_REHEARSED = (
    "--model", "--served-model-name", "--tensor-parallel-size", "--enable-expert-parallel", "--gpu-memory-utilization",
    "--max-model-len", "--kv-cache-dtype", "--max-num-batched-tokens", "--max-num-seqs", SPECULATION, "--enable-prefix-caching",
    "--enable-auto-tool-choice", "--tool-call-parser", "--reasoning-parser", "--quantization", "--dtype", "--block-size",
    "--attention-backend", "--moe-backend", "--prefix-caching-hash-algo", "--pipeline-parallel-size", "--load-format",
    "--enable-chunked-prefill", "--async-scheduling", "--enforce-eager", "--disable-custom-all-reduce",
)  # fmt: skip
"""Arguments that mean something to a rehearsal; the rest are left out of it."""
_SWITCHES = {
    "--enable-expert-parallel", "--enable-prefix-caching", "--enable-auto-tool-choice", "--enable-chunked-prefill",
    "--async-scheduling", "--enforce-eager", "--disable-custom-all-reduce",
}  # fmt: skip
LONG_TOKENS = 32_000
_WEIGHTS = ("--model", "--quantization", "--dtype", "--kv-cache-dtype")


@dataclass(frozen=True)
class ArmDraft:
    """One arm. ``read``: its parsed arguments, empty when they are not known. ``start_period_s`` None: not stated.

    ``key``: name of the variable with the API key, empty without one. ``key_comment``: what is to be said of it.
    """

    name: str
    files: tuple[str, ...]
    env_files: tuple[str, ...]
    project: str
    service: str
    url: str
    model: str
    key: str
    key_comment: str
    read: Mapping[str, str]
    version: str
    start_period_s: float | None
    secrets: tuple[str, ...]
    unset: tuple[str, ...] = ()


@dataclass(frozen=True)
class Draft:
    """A whole spike. ``same_name``: both profiles use one container name. ``gpus``: empty when they are not known.

    ``slowest_s``: production's slowest known cold start in seconds; ``closes``: end of the window, empty when not agreed.
    """

    name: str
    question: str
    production: ArmDraft
    candidate: ArmDraft
    same_name: bool
    gpus: tuple[int, ...]
    slowest_s: float
    slowest_known: bool
    closes: str = ""

    @property
    def changed(self) -> list[str]:
        """Arguments in which the arms differ; empty when they are not known."""
        ours, theirs = self.candidate.read, self.production.read
        if not ours or not theirs:
            return []
        return [row.flag for row in differences(dict(ours), dict(theirs))]

    @property
    def speculative(self) -> bool:
        """Whether speculative decoding is what the candidate adds or changes."""
        return SPECULATION in self.changed and SPECULATION in self.candidate.read


def default_question(candidate: Mapping[str, str], production: Mapping[str, str], model: str) -> str:
    """A question for what differs, in the words of the arguments."""
    if SPECULATION in candidate and candidate.get(SPECULATION) != production.get(SPECULATION):
        try:
            said = json.loads(candidate[SPECULATION])
        except ValueError:
            said = {}
        said = said if isinstance(said, dict) else {}
        method, k = said.get("method", "speculative decoding"), said.get("num_speculative_tokens")
        how = f"{method} speculative decoding{f' with k = {k}' if k else ''}"
        return f"Does {how} beat today's production of {model}?"
    return f"Does the candidate beat today's production of {model}?"


def spike_yaml(draft: Draft) -> str:
    """The text of the spike file. Names of variables may appear in it, values of secrets never do."""
    rows = [
        "# A spike drafted by `audition init`. Read it, correct it, then:",
        "#   audition check THIS-FILE      what is known beforehand; nothing is touched",
        "#   audition rehearse THIS-FILE   the whole run on simulated servers; no GPU",
        "#   audition run THIS-FILE        the run itself; production is stopped and brought back",
        "audition: 1",
        f"name: {_text(draft.name)}",
        f"question: {_text(draft.question)}",
        "",
        *_slot(draft),
        "",
        "arms:",
        *_arm(draft, draft.production, "production"),
        "",
        *_arm(draft, draft.candidate, "candidate"),
        "",
        "# Turns of the arms, interleaved: the same stack gave 462 and 844 tok/s within an hour.",
        f"legs: [{', '.join(_text(name) for name in _legs(draft))}]",
        "",
        "# Sampling is left to the server, as production's clients see it.",
        "workloads:",
        *(f"  - {row}" for row in workloads(draft)),
        "",
        f"probes: [{', '.join(probes(draft))}]",
        "",
        *_gates(draft),
        "",
        "drain: {budget: 2m}                  # longest wait for requests in flight before production is stopped",
        "sidecars: stop                       # watchdogs that could restart the server are stopped for the window",
        *_restore(draft),
    ]
    secrets = sorted({*draft.production.secrets, *draft.candidate.secrets})
    if secrets:
        rows.append(f"secrets: [{', '.join(secrets)}]".ljust(37) + "# values of these variables are masked everywhere")
    return "\n".join([*rows, "", "records:", "  folder: _iteration_log", ""])


def _legs(draft: Draft) -> list[str]:
    p, c = draft.production.name, draft.candidate.name
    return [p, c, p, c, p]


def _slot(draft: Draft) -> list[str]:
    rows = ["# Agree the slot with whoever shares the GPUs, and write it down with its time zone; audition keeps to it."]
    if draft.closes:
        rows.append(f"window: {{closes: {_text(draft.closes)}}}")
    else:
        rows.append('# window: {opens: "2026-12-05T22:00:00+01:00", closes: "2026-12-06T04:00:00+01:00"}')
    if draft.gpus:
        rows.append(f"gpus: [{', '.join(map(str, draft.gpus))}]")
    else:
        rows += [
            "# Which GPUs the profiles use could not be read; without this line GPU memory and other tenants are not watched.",
            "# gpus: [0]",
        ]
    return rows


def _restore(draft: Draft) -> list[str]:
    known = "" if draft.slowest_known else ", a guess: correct it"
    value = _duration(draft.slowest_s)
    return [
        f"restore: {{slowest_cold_start: {value}}}".ljust(37)
        + f"# of production{known}; restoring begins 1.5 times that before the end"
    ]


def _arm(draft: Draft, arm: ArmDraft, role: str) -> list[str]:
    rows = [
        f"  - name: {_text(arm.name)}",
        f"    role: {role}",
        "    engine:",
        "      kind: compose",
        f"      files: [{', '.join(_text(name) for name in arm.files)}]",
    ]
    if arm.env_files:
        rows.append(f"      env_files: [{', '.join(_text(name) for name in arm.env_files)}]   # exactly as production is started")
    elif role == "production":
        rows.append("      # env_files: [serving.env]     # if production is started with --env-file, name the file here and below")
    if arm.project:
        rows.append(f"      project: {_text(arm.project)}")
    rows.append(f"      service: {_text(arm.service)}")
    if role == "candidate" and draft.same_name:
        rows.append("      container_name: production     # both profiles use one container name; production's is renamed aside")
    if arm.key_comment:
        rows.append(f"    # {arm.key_comment}")
    key = f", api_key_env: {arm.key}" if arm.key else ""
    rows.append(f"    endpoint: {{url: {_text(arm.url)}, model: {_text(arm.model)}{key}}}")
    rows.append(f"    boot: {{limit: {_duration(boot_limit(arm))}, silence: 15m}}")
    rows.append(f"    stop: {{grace: {'3m' if role == 'production' else '2m'}}}")
    left = [name for name in draft.changed if name not in _REHEARSED]
    told = [f"    # differs between the arms, and is not rehearsed: {', '.join(left)}"] if left else []
    return [*rows, *told, *_simulated(arm)]


def boot_limit(arm: ArmDraft) -> float:
    """Longest boot in seconds: twice what the healthcheck allows, at least 40 minutes (cold boots of 4 to 25 minutes are known)."""
    return max(2400.0, 2 * (arm.start_period_s or 0.0))


def _simulated(arm: ArmDraft) -> list[str]:
    words: list[str] = []
    for name in _REHEARSED:
        if name in arm.read:
            words += _as_words(name, arm.read[name])
    if not words:
        words = ["--model", arm.model, "--served-model-name", arm.model]
    rows = ["    simulated:                       # a rehearsal only: it says nothing about the real server", "      args: >-"]
    rows += [f"        {line}" for line in _folded(words)]
    if arm.version:
        rows.append(f"      settings: {{version: {_text(arm.version)}}}")
    return rows


def _as_words(name: str, value: str) -> list[str]:
    if name in _SWITCHES:
        return [name] if value == "true" else [f"--no-{name[2:]}"]
    return [name, value.partition(" ")[0] if name == "--served-model-name" else value]


def _folded(words: Sequence[str]) -> list[str]:
    """Words quoted for a shell, an option with its value on one line, up to 100 characters a line."""
    lines, line = [], ""
    for word in words:
        quoted = shlex.quote(word)
        if line and word.startswith("--") and len(line) + len(quoted) > 80:
            lines.append(line)
            line = quoted
        else:
            line = f"{line} {quoted}".strip()
    return [*lines, line]


def most_users(draft: Draft) -> int:
    """Users of the loaded workload: what both arms take at once, at most 16."""
    sizes = [whole(arm.read.get("--max-num-seqs", "")) for arm in (draft.production, draft.candidate)]
    return max(1, min([16, *(size for size in sizes if size is not None)]))


def workloads(draft: Draft) -> list[str]:
    """Workloads as flow mappings: one user, thinking where a parser is there, several users, long prompts where they matter."""
    many = most_users(draft)
    rows = ["{name: single, users: 1, requests: 8, max_tokens: 512}"]
    if _thinks(draft):
        rows = ["{name: single, users: 1, requests: 8, thinking: false, max_tokens: 512}"]
        rows.append("{name: single-thinking, users: 1, requests: 8, thinking: true, max_tokens: 1024}")
    thinking = ", thinking: false" if _thinks(draft) else ""
    for users in dict.fromkeys(n for n in (5, many) if 1 < n <= many):
        rows.append(f"{{name: users-{users}, users: {users}, requests: {6 * users}{thinking}, max_tokens: 512}}")
    if length := _long(draft):
        rows.append(f"{{name: long, users: 1, requests: 4, prompts: long, prompt_tokens: {length}{thinking}, max_tokens: 256}}")
    return rows


def _names(draft: Draft) -> list[str]:
    return [match[1] for row in workloads(draft) if (match := re.match(r"\{name: ([\w-]+)", row))]


def _thinks(draft: Draft) -> bool:
    return all("--reasoning-parser" in arm.read for arm in (draft.production, draft.candidate))


def _long(draft: Draft) -> int:
    """Tokens of the long prompts where context, KV cache or prefill is what changes and both arms take them; else 0."""
    touched = {
        "--max-model-len",
        "--kv-cache-dtype",
        "--enable-prefix-caching",
        "--max-num-batched-tokens",
        "--enable-chunked-prefill",
    }
    lengths = [whole(arm.read.get("--max-model-len", "")) for arm in (draft.production, draft.candidate)]
    known = [length for length in lengths if length is not None]
    if not touched & set(draft.changed) or len(known) < len(lengths):
        return 0
    least = min(known)
    return min(LONG_TOKENS, least // 2) if least >= 8192 else 0


def probes(draft: Draft) -> list[str]:
    """Checks that both arms can be asked for."""
    found = ["canary", "conversation"]
    if _thinks(draft):
        found.append("thinking")
    if all(arm.read.get("--enable-auto-tool-choice") == "true" for arm in (draft.production, draft.candidate)):
        found.append("tool_call")
    return [*found, "long_prompt"]


def _gates(draft: Draft) -> list[str]:
    names, p = _names(draft), _text(draft.production.name)
    many = next((name for name in reversed(names) if name.startswith("users-")), "single")
    rows = [
        "# Criteria, written beforehand. The limits are a start: set what would really make you change production.",
        "gates:",
        "  - name: faster",
        "    all:",
        f"      - {{name: many-users, metric: output_tok_s, workload: {many}, ratio_to: {p}, at_least: 1.05}}",
        f"      - {{name: single-user, metric: decode_tok_s, workload: single, ratio_to: {p}, at_least: {_single(draft)}}}",
        "  - {name: sane-answers, probe: canary}   # a configuration that passes every health check may still talk nonsense",
        "  - name: no-failures",
        "    all:",
        *(f"      - {{metric: failure_share, workload: {name}, at_most: 0}}" for name in names),
    ]
    if draft.speculative:
        rows += [
            "  # Drafts must be accepted at all: heads that were not loaded boot green with 0 % acceptance.",
            "  - {name: drafts-accepted, metric: acceptance_rate, workload: single, at_least: 0.05}",
            "  # Acceptance does not predict speed, so beyond that it is reported only.",
            f"  - {{name: acceptance-loaded, metric: acceptance_length, workload: {many}, at_least: 1.5, shadow: true}}",
        ]
    rows += ["  # Reported, never deciding.", *(f"  - {row}" for row in _shadows(draft, many, p))]
    return rows


def _single(draft: Draft) -> str:
    """One user's gain is what speculation is for; otherwise it must not get slower."""
    return "1.10" if draft.speculative else "0.95"


def _shadows(draft: Draft, many: str, p: str) -> list[str]:
    changed = set(draft.changed)
    rows = [f"{{name: ttft-loaded, metric: ttft, workload: {many}, ratio_to: {p}, at_most: 1.2, shadow: true}}"]
    if changed & {"--max-model-len", "--gpu-memory-utilization", *_WEIGHTS, SPECULATION}:
        rows.append(f"{{name: kv-capacity, metric: kv_capacity_tokens, ratio_to: {p}, at_least: 0.5, shadow: true}}")
    if "--enable-prefix-caching" in changed:
        rows.append(f"{{name: prefix-hits, metric: prefix_hit_rate, workload: {many}, at_least: 0, shadow: true}}")
    return rows


def _duration(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole // 60}m" if whole % 60 == 0 else f"{whole}s"


def _text(value: str) -> str:
    """A text as YAML writes it, in quotes where it could be taken for something else."""
    import yaml  # noqa: PLC0415 - only when a file is drafted

    dumped: Any = yaml.safe_dump(value, default_flow_style=True, width=10**6, allow_unicode=True)
    text = str(dumped).removesuffix("\n").removesuffix("\n...").strip()
    return json.dumps(value, ensure_ascii=False) if re.search(r"[{}\[\],:#&*!|>'\"%@`]", value) else text


def summary(draft: Draft) -> str:
    """What was chosen and why, in a few lines."""
    changed = ", ".join(draft.changed) or "nothing that can be read from the profiles"
    rows = [f"the arms differ in: {changed}", f"workloads: {', '.join(_names(draft))}; probes: {', '.join(probes(draft))}"]
    if draft.speculative:
        rows.append("speculative decoding is tried: a gate asks for accepted drafts, another for a faster single stream")
    if left := [name for name in draft.changed if name not in _REHEARSED]:
        rows.append(f"not rehearsed, though the arms differ in it: {', '.join(left)}")
    if unset := sorted({*draft.production.unset, *draft.candidate.unset}):
        names = ", ".join(unset)
        rows.append(f"warning: {names} set nowhere, compose leaves them empty; name the env file that sets them: --env-file FILE")
    rows.append(f"restore deadline reckons with a cold start of {format_duration(draft.slowest_s)}")
    return "\n".join(rows)
