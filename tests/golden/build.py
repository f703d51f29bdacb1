"""Builds the small fixed run folders in ``data/`` that the golden records are made from: ``python -m golden.build`` in ``tests``.

The folders are committed and not built again by ``make golden``: only the records made from them are. Names, hosts, paths and keys
in them are invented, and planted so that the tests can see them taken out of what is meant for others.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from audition.judge.records import BootRecord, Caveat
from audition.spike.model import Spike
from judge.build_run import DAY, ORDER, LegPlan, build_run, legs_of

DATA = Path(__file__).parent / "data"
HASH = {"v2g": "sha256:" + "1f" * 32, "mtp": "sha256:" + "2e" * 32}
ARGUMENTS = {
    "v2g": "/home/maria/venv/bin/vllm serve acme/Model-35B-AWQ --served-model-name team-llm --host 10.20.30.40 --port 5002 "
    "--tensor-parallel-size 2 --kv-cache-dtype fp8 --max-model-len 262144 --enable-prefix-caching",
    "mtp": "/home/maria/venv/bin/vllm serve acme/Model-35B-AWQ --served-model-name team-llm --host 10.20.30.40 --port 5002 "
    "--tensor-parallel-size 2 --kv-cache-dtype fp8 --max-model-len 131072 --no-enable-prefix-caching --download-dir /data/maria/hf",
}
SPEC = ["--speculative-config", '{"method":"mtp","num_speculative_tokens":3}']
EXCERPT = """\
(EngineCore pid=91) INFO 12-01 10:20:11 [config.py:1482] Resolved architecture: Qwen3_5MoeMTP
(APIServer pid=7) Traceback (most recent call last):
(APIServer pid=7)   File "/usr/local/lib/python3.12/dist-packages/vllm/config/model.py", line 512, in get_config
(APIServer pid=7)     config = AutoConfig.from_pretrained(model, cache_dir="/data/maria/hf")
(APIServer pid=7)   File "/usr/local/lib/python3.12/dist-packages/transformers/configuration_utils.py", line 678, in get_config_dict
(APIServer pid=7)     original_kwargs = copy.deepcopy(kwargs)
(APIServer pid=7) TypeError: cannot pickle 'code' object"""
COUNTERS = {
    "spec_decode_num_drafts": 100.0,
    "spec_decode_num_draft_tokens": 300.0,
    "spec_decode_num_accepted_tokens": 210.0,
    "spec_decode_num_accepted_tokens_per_pos[0]": 85.0,
    "spec_decode_num_accepted_tokens_per_pos[1]": 70.0,
    "spec_decode_num_accepted_tokens_per_pos[2]": 55.0,
}
GATES = [
    {"name": "many-users", "metric": "output_tok_s", "workload": "users", "at_least": 200},
    {"name": "ratio", "metric": "output_tok_s", "workload": "users", "ratio_to": "v2g", "at_least": 1.05},
    {"name": "acceptance", "metric": "acceptance_rate", "workload": "users", "at_least": 0.5, "shadow": True},
]


def words(arm: str) -> list[str]:
    """The command line of an arm."""
    return ARGUMENTS[arm].split() + (SPEC if arm == "mtp" else [])


def spike() -> Spike:
    """One spike for all cases, with everything in it that is nobody else's business."""
    arms = [
        {
            "name": name,
            "role": role,
            "engine": {"kind": "process", "command": words(name), "cwd": "/home/maria/serving"},
            "endpoint": {"url": "http://gpu07.lab.example:5002", "model": "team-llm", "api_key_env": "TEAM_LLM_KEY"},
            "simulated": {"args": words(name)[2:]},
        }
        for name, role in (("v2g", "production"), ("mtp", "candidate"))
    ]
    data: dict[str, Any] = {
        "audition": 1,
        "name": "mtp-k3",
        "question": "Does MTP, k = 3, beat production on gpu07.lab.example (2 x RTX 4090)?",
        "gpus": [0, 1],
        "arms": arms,
        "workloads": [{"name": "users", "users": 2, "requests": 8, "max_tokens": 64}],
        "gates": GATES,
        "hypotheses": [
            {
                "name": "att4",
                "claim": "Att4 (crash at boot in transformers/configuration_utils.py:678) comes from the patched image.",
                "refuted_by": "deepcopy-poison",
                "when_supported": "The patched image is the origin.",
                "when_refuted": "It is a general bug: draft an upstream issue.",
            }
        ],
        "records": {"notes": [{"file": "project_spec_dec.md", "heading": "## MTP on Ada", "on": ["NO-GO", "INCONCLUSIVE"]}]},
    }
    return Spike.model_validate(data)


def facts(arm: str) -> dict[str, Any]:
    """What a leg on a real machine records of its surroundings."""
    gpus = [{"index": n, "name": "NVIDIA GeForce RTX 4090", "memory_total_mib": 24564} for n in (0, 1)]
    return {
        "arguments": words(arm),
        "engine_version": "0.19.1",
        "torch": "2.10.0",
        "image": "registry.lab.example:5000/team/patched:7" if arm == "v2g" else "vllm/vllm-openai:v0.19.1",
        "host": {"cpus": 32, "gpus": gpus, "driver": "580.65.06"},
        "kv_capacity_tokens": 322_437.0 if arm == "mtp" else 2_028_995.0,
        "max_concurrency": 2.46 if arm == "mtp" else 7.74,
    }


def dressed(legs: list[LegPlan]) -> list[LegPlan]:
    """Legs with facts, digests, counters and one caveat that names a person."""
    for number, leg in enumerate(legs, start=1):
        leg.facts = facts(leg.arm)
        leg.counters = COUNTERS if leg.arm == "mtp" else None
        leg.boot = leg.boot or BootRecord("booted", f"boot-{number}", 120.0 + number, True, image_digest=HASH[leg.arm])
    legs[0].caveats = [Caveat("other-tenants", "note", "GPU 1 was shared with others: python 4711 of maria")]
    legs[0].workload_caveats = [Caveat("few-requests", "note", "8 answers from 2 users")]
    return legs


def crashed() -> list[LegPlan]:
    """Production, then a candidate that does not boot."""
    boot = BootRecord(
        "booted", "boot-2", None, False, "the server exited during its boot (exit code 1): a copy of arguments fails",
        "deepcopy-poison", EXCERPT, 1, HASH["mtp"], "candidate",
    )  # fmt: skip
    return [
        *dressed([LegPlan("v2g"), LegPlan("mtp", 0.0, outcome="boot-failed", boot=boot)]),
        *(LegPlan(a, None) for a in ORDER[2:]),
    ]


def cut() -> list[LegPlan]:
    """The machine died in leg 3."""
    legs = dressed(legs_of([100.0, 150.0, 101.0, None, None]))
    legs[2].outcome, legs[2].detail, legs[2].complete = "cut", "workload users was cut short", False
    return legs


def cases() -> dict[str, tuple[list[LegPlan], dict[str, Any]]]:
    """Case -> its legs, and what its run.json has that a whole, real run has not."""
    return {
        "go": (dressed(legs_of([100.0, 150.0, 101.0, 151.0, 100.5])), {}),
        "no-go-boot": (crashed(), {"ended": "early-end", "end_reason": "mtp did not start"}),
        "inconclusive": (dressed(legs_of([100.0, 104.0, 103.0, 118.0, 99.0])), {}),
        "cut": (cut(), {"ended": "running", "ended_at": None, "production_back": None}),
        "rehearsal": (
            crashed(),
            {"ended": "early-end", "end_reason": "mtp did not start", "rehearsal": True, "fault": "boot-crash"},
        ),
    }


def build() -> None:
    """Write all folders anew."""
    shutil.rmtree(DATA, ignore_errors=True)
    given = spike()
    for case, (legs, run) in cases().items():
        fields = {"run_id": f"mtp-k3-2025-12-01-{case}", "started_at": DAY, **run}
        folder = build_run(DATA / case, given, legs, run=fields)
        (folder / "spike.resolved.json").write_text(json.dumps(given.model_dump(mode="json"), indent=1) + "\n")
        (folder / "spike.yaml").write_text("# the spike file as given\naudition: 1\nname: mtp-k3\n")
        if run.get("ended_at", 0) is None:
            (folder / "restore.json").unlink()


if __name__ == "__main__":
    build()
