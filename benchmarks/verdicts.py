"""Makes docs/results/verdicts.md: how often the judge is right, on simulated spikes whose truth is known, and how fast it is.

Run it with ``make verdicts``. The worlds are in ``tests/judge/worlds.py``; nothing is measured on a real server. Every run with the
same seed gives the same figures, those of speed excepted.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from audition.faults.matcher import diagnose, diagnose_blocks
from audition.faults.signature import shipped_signatures
from audition.judge.compare import compare
from audition.judge.load import load_run
from audition.judge.metrics import LegSheet, Measure
from audition.judge.records import Caveat
from audition.judge.result import judge_run
from audition.judge.sequential import certain_failures
from faults.corpus import EXPECTED, FAILED, HEALTHY, long_healthy_log, mixed_corpus
from judge.build_run import ORDER, LegPlan, build_run, legs_of, make_spike
from judge.damage import HOW, damage
from judge.worlds import BOOT_SD, DRIFT, LEG_SD, Spikes, naive_interval

PAGE = Path(__file__).parent.parent / "docs" / "results" / "verdicts.md"
LIMIT = 1.05
KEY = ("users-16", "output_tok_s", "")
FIELD = {
    "16 users": [683.0, 119.0, 872.0, 138.0, 870.0],
    "single user": [58.3, 25.0, 101.7, 42.0, 101.7],
}


def percent(part: int, whole: int) -> str:
    """``12 of 600 (2.0 %)``."""
    return f"{part} of {whole} ({100 * part / whole:.1f} %)"


def table(header: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    return "\n".join("| " + " | ".join(row) + " |" for row in [header, ["---"] * len(header), *rows])


def aa_spikes(seed: int, count: int) -> str:
    """Whole spikes of equal arms through the whole judge, from request records to the verdict."""
    world = Spikes(seed, legs=5, effect=1.0)
    at_truth, at_limit, naive = Counter[str](), Counter[str](), 0
    for _ in range(count):
        run = world.run()
        at_truth[judge_run(run, world.spike(1.0)).verdict] += 1
        at_limit[judge_run(run, world.spike(LIMIT)).verdict] += 1
        low, high = naive_interval(run)
        naive += not low <= 1.0 <= high
    wrong = at_truth["GO"] + at_truth["NO-GO"]
    rows = [
        ["the judge: GO or NO-GO although ratio at least 1.0 is neither better nor worse", percent(wrong, count), "at most 5 %"],
        [f"the judge: GO on ratio at least {LIMIT}", percent(at_limit["GO"], count), "at most 5 %"],
        [
            "the naive way: production before, candidate after, requests as samples: a difference",
            percent(naive, count),
            "(5 % claimed)",
        ],
    ]
    return (
        f"{count} spikes of five legs in which production and candidate are equal, each leg with 48 requests of 4 users. The gate "
        f"stands exactly at the truth, which is the hardest place.\n\n{table(['what', 'how often', 'wanted'], rows)}"
    )


def coverage(seed: int, count: int) -> str:
    """Coverage of the interval and false differences, by number of legs and kind of drift."""
    rows = []
    for legs in (5, 7, 9, 13):
        for drift in DRIFT:
            world = Spikes(seed, legs=legs, effect=1.0, drift=drift)
            inside, naive = 0, 0
            for _ in range(count):
                sheets = world.sheets()
                c = compare(sheets, "mtp", "v2g", KEY)
                assert c.low is not None
                assert c.high is not None
                inside += c.low <= 1.0 <= c.high
                low, high = world.naive(sheets)
                naive += low <= 1.0 <= high
            rows.append([str(legs), drift, f"{100 * inside / count:.1f} %", f"{100 * naive / count:.1f} %"])
    return table(["legs", "drift over the spike", "95 % interval holds the truth", "naive before/after interval holds it"], rows)


def power(seed: int, count: int) -> str:
    """The effect that a spike finds with 80 % power, by number of legs."""
    rows = []
    for legs in (5, 7, 9, 13, 17):
        low, high = LIMIT, 6.0
        for _ in range(9):
            middle = (low * high) ** 0.5
            low, high = (low, middle) if _power(seed, legs, middle, count) >= 0.8 else (middle, high)
        effect = round(high + 0.005, 2)
        rows.append([str(legs), str(legs // 2), f"{effect:.2f}", f"{100 * _power(seed + 1, legs, effect, 2 * count):.0f} %",
                     f"{100 * _power(seed + 1, legs, LIMIT, 2 * count):.1f} %"])  # fmt: skip
    return table(
        ["legs", "pairs", f"true ratio that passes `at least {LIMIT}`", "power there", "passes when the truth is the limit"], rows
    )


def _power(seed: int, legs: int, effect: float, count: int) -> float:
    world = Spikes(seed, legs=legs, effect=effect)
    passed = 0
    for _ in range(count):
        c = compare(world.sheets(), "mtp", "v2g", KEY)
        passed += c.low is not None and c.low >= LIMIT
    return passed / count


def early(seed: int, count: int) -> str:
    """How often looking after every leg fails a candidate that stands exactly at the limit, and what it saves on a bad one."""
    rows = []
    for effect, name in ((1.0, "exactly at the limit"), (0.7, "30 % below it"), (1 / 6, "a sixth of it")):
        world = Spikes(seed, legs=9, effect=effect, requests=16)
        ended = Counter[int]()
        for _ in range(count):
            run, spike = world.run(), world.spike(1.0)
            ended[next((k for k in range(3, 9) if certain_failures(world.first(run, k), spike)), 9)] += 1
        mean = sum(k * n for k, n in ended.items()) / count
        rows.append([name, percent(count - ended[9], count), f"{mean:.1f} of 9"])
    return table(["candidate", "ended early as NO-GO", "legs run on average"], rows)


def broken(seed: int, count: int) -> str:
    """Damaged, short and void data: every one must be INCONCLUSIVE."""
    rng = random.Random(seed)
    rates = {"a fast candidate": [100.0, 150.0, 101.0, 151.0, 100.5], "a slow candidate": [100.0, 50.0, 101.0, 51.0, 100.5]}
    spike = make_spike([{"metric": "output_tok_s", "workload": "users", "ratio_to": "v2g", "at_least": LIMIT},
                        {"metric": "output_tok_s", "workload": "users", "at_least": 200}])  # fmt: skip
    seen: dict[str, Counter[str]] = {}
    for _ in range(count):
        legs, leg = legs_of(rng.choice(list(rates.values()))), rng.randrange(5)
        how = rng.choice([*HOW, "void leg", "void workload", "cut workload", "leg not reached", "interrupted"])
        run: dict[str, str] = {"ended": "interrupted"} if how == "interrupted" else {}
        if how == "void leg":
            legs[leg].caveats = [Caveat("foreign-traffic", "void", "foreign traffic")]
        elif how == "void workload":
            legs[leg].workload_caveats = [Caveat("client-bound", "void", "client bound")]
        elif how == "cut workload":
            legs[leg].complete = False
        elif how == "leg not reached":
            legs[leg].rate = None
        with tempfile.TemporaryDirectory() as name:
            folder = build_run(Path(name), spike, legs, run=run)
            if how in HOW:
                file = rng.choice(["leg.json", "users.json", "users.requests.jsonl"])
                damage(folder / "legs" / f"{leg + 1:02d}-{ORDER[leg]}" / file, how, rng.uniform(0.05, 0.9))
            seen.setdefault(how, Counter())[judge_run(load_run(folder), spike).verdict] += 1
    rows = [[how, str(sum(c.values())), percent(c["INCONCLUSIVE"], sum(c.values()))] for how, c in sorted(seen.items())]
    total = sum(c["INCONCLUSIVE"] for c in seen.values())
    return table(["what is wrong with one leg", "cases", "INCONCLUSIVE"], [*rows, ["all", str(count), percent(total, count)]])


def field() -> str:
    """The series seen in the field."""
    rows = []
    for name, series in FIELD.items():
        sheets = [LegSheet(i, arm, {KEY: Measure(v, 64)}) for i, (arm, v) in enumerate(zip(ORDER, series, strict=True), start=1)]
        c = compare(sheets, "mtp", "v2g", KEY)
        assert c.ratio is not None
        assert c.low is not None
        assert c.high is not None
        drift = max(series[0::2]) / min(series[0::2]) - 1
        values = ", ".join(f"{v:g}" for v in series)
        rows.append(
            [name, values, f"{100 * drift:+.0f} %", f"{c.ratio:.3f} [{c.low:.3f}, {c.high:.3f}]", "worse" if c.high < 1 else "?"]
        )
    return table(
        ["load", "tok/s of production, candidate, production, ...", "production moved by", "ratio [95 %]", "candidate"], rows
    )


def diagnosis(seed: int, rounds: int, megabytes: int) -> str:
    """Classes of the logs at hand, false alarms, a mixed corpus, speed."""
    right = sum(diagnose((FAILED / f"{n}.log").read_text().splitlines())[0].name == want for n, want in EXPECTED.items())
    alarms = sum(bool(diagnose(p.read_text().splitlines())) for p in HEALTHY)
    cases = list(mixed_corpus(seed, rounds))
    told = [(case, found[0].name if (found := diagnose(case.lines)) else None) for case in cases]
    said = [(case, name) for case, name in told if name is not None]
    exact = sum(case.expected == name for case, name in said)
    sick = [case for case in cases if case.expected is not None]
    rows = [
        ["logs of failures that get their class", f"{right} of {len(EXPECTED)}"],
        ["false alarms on healthy boots", f"{alarms} of {len(HEALTHY)}"],
        ["mixed corpus: logs under 7 kinds of prefixes, with traffic and neighbours in between", str(len(cases))],
        ["- precision: diagnoses that name the right cause", percent(exact, len(said))],
        ["- recall: failures that get the right cause", percent(exact, len(sick))],
        [
            "- false alarms on its healthy logs",
            percent(len(said) - sum(c.expected is not None for c, _ in said), len(cases) - len(sick)),
        ],
        ["signatures", str(len(shipped_signatures()))],
    ]
    log = long_healthy_log(megabytes << 20, seed)
    pieces = [log[i : i + (1 << 20)] for i in range(0, len(log), 1 << 20)]
    best = min(_cpu(lambda: diagnose_blocks(pieces)) for _ in range(3))
    rows.append(
        [f"speed on a healthy log of {megabytes} MiB, one core, best of 3", f"{len(log) / best / 1e6:.0f} MB/s of CPU time"]
    )
    remark = (
        "The corpus is made from the logs that the signatures were written for: it shows that prefixes, traffic and neighbours do "
        "no harm, not how many failures of other servers are known."
    )
    return f"{table(['what', 'figure'], rows)}\n\n{remark}"


def speed(count: int, events: int) -> str:
    """Judging many request records."""
    spike = make_spike([{"metric": "output_tok_s", "workload": "users", "ratio_to": "v2g", "at_least": LIMIT}],
                       workloads=[{"name": "users", "users": 32, "requests": count // 5, "max_tokens": 512}])  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        plans = [
            LegPlan(arm, rate, tokens=3 * events) for arm, rate in zip(ORDER, (100.0, 150.0, 101.0, 151.0, 100.5), strict=True)
        ]
        folder = build_run(Path(name), spike, plans)
        size = sum(p.stat().st_size for p in folder.rglob("*.jsonl"))
        (folder / "spike.resolved.json").write_text(spike.model_dump_json(exclude_unset=True))
        took, walls = [], []
        for _ in range(5):
            before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
            done = subprocess.run([sys.executable, "-m", "audition", "judge", str(folder)], capture_output=True, check=False)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            assert done.returncode == 0, done.stderr.decode()
            took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
            walls.append(time.perf_counter() - begun)
    every = ", ".join(f"{wall:.2f}" for wall in walls)
    return (
        f"`audition judge` on {count:,} request records of {events} events each ({size / 1e6:.0f} MB), the whole command with "
        f"its start and the records it writes: best of 5 {min(walls):.2f} s wall, {min(took):.2f} s CPU time (all: {every})."
    )


def _cpu(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def _method(seed: int, scale: float) -> str:
    return (
        f"Made by `make verdicts` (seed {seed}, scale {scale:g}) with Python {platform.python_version()} on {os.cpu_count()} CPUs "
        f"({platform.machine()}, load {os.getloadavg()[0]:.1f} at the start). Simulated spikes: slow drift of up to ±40 % over the "
        f"spike (both arms alike), every boot {100 * BOOT_SD:.0f} % apart (log-normal), every leg another {100 * LEG_SD:.0f} %, "
        "requests inside a leg correlated. How the judge works: `docs/verdict.md`."
    )


def main() -> None:
    """Make the page."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seed", type=int, default=20261201)
    arguments.add_argument("--scale", type=float, default=1.0, help="share of the full number of trials, to try the script")
    given = arguments.parse_args()
    seed = given.seed

    def n(full: int) -> int:
        return max(20, int(full * given.scale))

    parts: dict[str, Callable[[], str]] = {
        "Equal arms": lambda: aa_spikes(seed, n(600)),
        "Coverage of the interval": lambda: coverage(seed, n(4000)),
        "Power": lambda: power(seed, n(1200)),
        "Ending early": lambda: early(seed, n(200)),
        "Broken evidence": lambda: broken(seed, n(600)),
        "Series seen in the field": field,
        "Diagnosis": lambda: diagnosis(seed, 4, 200),
        "Speed": lambda: speed(100_000, 64),
    }
    text = ["# How good the verdicts are", "", _method(seed, given.scale)]
    for title, make in parts.items():
        print(title, file=sys.stderr, flush=True)
        text += ["", f"## {title}", "", make()]
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text("\n".join(text) + "\n", encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
