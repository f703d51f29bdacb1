"""Whatever stands in the files of a checkpoint, the answer is facts or one CheckpointError; never another exception."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from audition.checkpoint.facts import Facts, build
from audition.checkpoint.findings import findings
from audition.checkpoint.predict import predict
from audition.checkpoint.problem import CheckpointError
from audition.checkpoint.quantisation import read_quantisation
from audition.checkpoint.reader import read_folder
from audition.checkpoint.serving import Serving, Speculation
from audition.units import NoData
from checkpoint.making import TINY, TINY_TEXT, header_bytes, model_tensors, write_checkpoint

QUICK = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
SCALARS = st.none() | st.booleans() | st.integers(-3, 2**70) | st.floats() | st.text(max_size=12)
JSON = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4), max_leaves=12
)
KEYS = [*TINY_TEXT, "sliding_window", "kv_lora_rank", "qk_rope_head_dim", "mtp_config", "rope_scaling", "num_nextn_predict_layers"]
QUANTISATION_KEYS = [
    *("quant_method", "bits", "group_size", "dynamic", "config_groups", "ignore", "modules_to_not_convert", "weight_block_size"),
    *("quantization", "kv_cache_scheme", "extra_config", "load_in_4bit", "quant_algo", "exclude_modules", "format"),
]
METHODS = st.sampled_from(["awq", "gptq", "compressed-tensors", "fp8", "bitsandbytes", "modelopt", "mxfp4", "quark"])
SERVING = Serving(24 * 2**30, tensor_parallel=2, speculation=Speculation("mtp", 3), version=(0, 19, 1))


def either(attempt: Callable[[], Facts]) -> Facts | CheckpointError:
    """The facts or the one kind of error; anything else fails the test."""
    try:
        return attempt()
    except CheckpointError as error:
        return error


@QUICK
@given(st.dictionaries(st.sampled_from(KEYS), JSON | st.integers(0, 200), max_size=5))
def test_any_config(changed: dict[str, Any]) -> None:
    outcome = either(lambda: build("tiny", {**TINY, "text_config": {**TINY_TEXT, **changed}}, NoData("none")))
    if isinstance(outcome, CheckpointError):
        assert "\n" not in outcome.what
    else:
        assert findings(outcome, serving=SERVING, prediction=predict(outcome, SERVING))


@QUICK
@given(METHODS, st.dictionaries(st.sampled_from(QUANTISATION_KEYS), JSON, max_size=6))
def test_any_quantisation_config(method: str, config: dict[str, Any]) -> None:
    found = read_quantisation({"quant_method": method, **config})
    assert found.layout or found.method == ""
    assert found.keeps_out("mtp.layers.0.mlp.experts.0.up_proj") in (True, False)


@QUICK
@given(st.dictionaries(st.sampled_from(["lm_head.weight", "a", "mtp.fc.weight"]), JSON, max_size=3))
def test_any_header(tmp_path: Path, entries: dict[str, Any]) -> None:
    raw = json.dumps(entries).encode()
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    (tmp_path / "model.safetensors").write_bytes(len(raw).to_bytes(8, "little") + raw)
    if entries:
        with pytest.raises(CheckpointError, match=r"model\.safetensors is broken"):
            read_folder(tmp_path)
    else:
        assert read_folder(tmp_path).mtp.tensors == 0


@QUICK
@given(st.integers(0, 10**6), st.binary(min_size=1, max_size=3))
def test_a_header_with_bytes_overwritten(tmp_path: Path, place: int, written: bytes) -> None:
    write_checkpoint(tmp_path, TINY, model_tensors(TINY_TEXT))
    length = len(header_bytes(model_tensors(TINY_TEXT))[0])
    with (tmp_path / "model.safetensors").open("r+b") as handle:
        handle.seek(place % length)
        handle.write(written)
    outcome = either(lambda: read_folder(tmp_path))
    assert not isinstance(outcome, CheckpointError) or "model.safetensors" in outcome.what


@QUICK
@given(JSON)
def test_any_index(tmp_path: Path, index: Any) -> None:
    write_checkpoint(tmp_path, TINY, model_tensors(TINY_TEXT))
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    with pytest.raises(CheckpointError, match=r"model\.safetensors\.index\.json"):
        read_folder(tmp_path)
