"""A run in which every text that comes from a server, a log or a spike file tries to break out of the page that shows it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from audition.judge.records import BootRecord, Caveat, ProbeRecord
from audition.spike.model import Spike
from judge.build_run import LegPlan, build_run, legs_of, make_spike

HOSTILE = "</script></style></title></textarea><script>window.broken=1</script><img src=x onerror=window.broken=2>"
QUOTES = "\"'`--><!--<script \u2028 onmouseover=window.broken=3 "
GATES = [
    {"name": f"fast {HOSTILE}", "metric": "output_tok_s", "workload": "users", "at_least": 200},
    {"metric": "output_tok_s", "workload": "users", "ratio_to": "v2g", "at_least": 1.05},
]
COUNTERS = {
    "spec_decode_num_drafts": 100.0,
    "spec_decode_num_draft_tokens": 200.0,
    "spec_decode_num_accepted_tokens": 140.0,
    "spec_decode_num_accepted_tokens_per_pos[0]": 85.0,
    "spec_decode_num_accepted_tokens_per_pos[1]": 55.0,
}


def hostile_run(folder: Path) -> tuple[Path, Spike]:
    """A run folder and its spike."""
    hypothesis = {"name": "suspicion", "claim": HOSTILE, "refuted_by": "deepcopy-poison", "when_refuted": QUOTES}
    spike = make_spike(GATES, question=f"Does {HOSTILE} {QUOTES} leak?", hypotheses=[hypothesis], probes=["canary", "thinking"])
    legs = legs_of([100.0, 150.0, 101.0, 151.0, 100.5])
    broken = BootRecord("booted", "b", None, False, HOSTILE, "deepcopy-poison", f"{HOSTILE}\n{QUOTES}\0\x1b[31m", 1, HOSTILE)
    legs[3] = LegPlan("mtp", 0.0, outcome="boot-failed", detail=HOSTILE, boot=broken)
    for leg in legs:
        leg.facts = {
            "engine_version": HOSTILE, "arguments": ["serve", HOSTILE, QUOTES], "kv_lines": [HOSTILE], "kv_capacity_tokens": 1e5,
            "max_concurrency": 2.0, "boot_markers": {"load_s": [HOSTILE], "init_engine_s": "no list"},
            "host": {"cpus": 4, HOSTILE: HOSTILE, "gpus": [{"index": 0, "name": HOSTILE, "power_w_mean": 300.0, "energy_j": 1e4}]},
        }  # fmt: skip
        leg.counters = COUNTERS if leg.arm == "mtp" else None
        leg.caveats = [Caveat("odd", "note", f"{HOSTILE} {QUOTES}")]
    build_run(folder, spike, legs, run={"end_reason": HOSTILE, "run_id": HOSTILE, "audition_version": HOSTILE})
    answers = json.dumps([{"question": HOSTILE, "content": f"{HOSTILE}{QUOTES}", "reasoning": "\ud800 lone"}])
    probes = [ProbeRecord("canary", False, HOSTILE, answers), ProbeRecord("thinking", None, QUOTES, HOSTILE)]
    (folder / "legs" / "02-mtp" / "probes.json").write_text(json.dumps([asdict(probe) for probe in probes]))
    steps = [{"step": HOSTILE, "ok": False, "seconds": 1.0, "detail": QUOTES}, "no object"]
    (folder / "restore.json").write_text(json.dumps({"verified": True, "steps": steps, "problems": [HOSTILE], "manual": 5}))
    (folder / "spike.yaml").write_text(f"name: {HOSTILE}\n# {QUOTES}\n")
    return folder, spike
