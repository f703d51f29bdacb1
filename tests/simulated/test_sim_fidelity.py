"""The simulated server against what real vLLM 0.24.0 wrote: metric names and buckets, event shapes, boot lines."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from simulated.simserver import Server

REAL = Path(__file__).parents[1] / "data" / "vllm-0.24-h200"


def samples(text: str) -> set[str]:
    """Sample names with their labels, without values, model name and the long label set of the cache configuration."""
    names = {line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")}
    return {re.sub(r'model_name="[^"]*"', "M", name) for name in names if not name.startswith(("vllm:cache_config", "http_"))}


def test_every_metric_has_a_name_labels_and_buckets_of_vllms(mtp: Server) -> None:
    real = samples((REAL / "mtp.metrics.txt").read_text(encoding="utf-8"))
    ours = samples(mtp.get("/metrics").body.decode())
    assert ours - real == set()
    assert len(ours) > 200


def test_help_and_type_lines_are_vllms(mtp: Server) -> None:
    real = (REAL / "mtp.metrics.txt").read_text(encoding="utf-8").splitlines()
    ours = [line for line in mtp.get("/metrics").body.decode().splitlines() if line.startswith("# ")]
    assert [line for line in ours if line not in real] == []


def test_cache_configuration_has_labels_of_vllms(mtp: Server) -> None:
    def labels(text: str) -> set[str]:
        line = next(line for line in text.splitlines() if line.startswith("vllm:cache_config_info{"))
        return set(re.findall(r"(\w+)=", line))

    real = labels((REAL / "mtp.metrics.txt").read_text(encoding="utf-8"))
    assert labels(mtp.get("/metrics").body.decode()) - real == set()


def shape(value: Any) -> Any:
    """The keys of an event, in order, without its values."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    return [shape(inner) for inner in value] if isinstance(value, list) else None


def test_events_have_the_shape_of_vllms(mtp: Server) -> None:
    lines = (REAL / "mtp.sse.txt").read_text(encoding="utf-8").splitlines()
    real = [json.loads(line.partition("data: ")[2]) for line in lines if '{"id"' in line]
    options = {"include_usage": True, "continuous_usage_stats": True}
    ours = mtp.stream("Think.", max_tokens=24, ignore_eos=True, stream_options=options)
    for at in (0, 1, -2, -1):  # role, first token, last token, usage
        assert json.dumps(shape(ours[at])) == json.dumps(shape(real[at])), (ours[at], real[at])
    assert ours[-1]["system_fingerprint"].startswith("vllm-0.24.0-")


def messages(log: str) -> set[str]:
    """What vLLM's logger said, without times, line numbers, figures and names of models."""
    found = re.findall(r"^\(\w+ pid=\d+\) (?:INFO|WARNING) \S+ \S+ \[(\S+?):\d+\] (.+)$", log, re.MULTILINE)
    return {f"{source} " + re.sub(r"[\d.,]+|acme/\S+|/models/\S+|tcp://\S+", "#", text) for source, text in found}


def test_boot_lines_are_vllms_own(mtp: Server) -> None:
    real = messages((REAL / "mtp-k3.boot.log").read_text(encoding="utf-8"))
    ours = messages(mtp.log.partition("Started server process")[0])
    # The arguments and routes are this server's own; the capture leaves the engine's line out and adds the compilation's time.
    own = ("api_utils.py non-default args", "launcher.py Route", "core.py Initializing a V# LLM engine", "core.py init engine")
    assert {line for line in ours - real if not line.startswith(own)} == set()
    assert len(ours) >= 15
