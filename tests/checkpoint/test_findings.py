"""What is said about a checkpoint before it is served."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from audition.checkpoint.facts import Facts, build
from audition.checkpoint.findings import findings
from audition.checkpoint.problem import Problem
from audition.checkpoint.reader import read_folder
from audition.checkpoint.serving import GIB, Serving, Speculation
from audition.checkpoint.tensors import Tensor
from audition.units import NoData
from checkpoint.making import QWEN36, TINY, TINY_TEXT, Spec, model_tensors, quantised, write_checkpoint, write_safetensors

MTP3 = Speculation("mtp", 3)
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "modules_to_not_convert": ["mtp", "visual"]}
ON_4090 = Serving(24_564 * 2**20, 131_072, kv_cache_dtype="fp8", tensor_parallel=2, speculation=MTP3, version=(0, 19, 1))


def codes(problems: list[Problem], level: str | None = None) -> list[str]:
    return [problem.code for problem in problems if level is None or problem.level == level]


def one(problems: list[Problem], code: str) -> Problem:
    [found] = [problem for problem in problems if problem.code == code]
    return found


def made(specs: list[Spec], *, quantisation: dict[str, Any] | None = None, **text: Any) -> Facts:
    """Facts from a list of tensors, no file."""
    config = {**TINY, "text_config": {**TINY_TEXT, **text}}
    if quantisation:
        config["quantization_config"] = quantisation
    tensors = tuple(Tensor(name, dtype, shape, 8, "model.safetensors") for name, dtype, shape in specs)
    return build("tiny", config, tensors)


def test_a_good_checkpoint() -> None:
    found = findings(made(model_tensors(TINY_TEXT)), speculation=MTP3)
    assert codes(found) == ["mtp-present", "mtp-reused"]
    assert codes(found, "ok") == codes(found)
    assert "k = 3 with 1 MTP head: each is used 3 times a step" in one(found, "mtp-reused").text


@pytest.mark.parametrize("method", ["mtp", "qwen3_5_mtp", "deepseek_mtp"])
@pytest.mark.parametrize("quantisation", [None, AWQ])
def test_no_mtp_tensors_would_boot_with_zero_acceptance(method: str, quantisation: dict[str, Any] | None) -> None:
    specs = model_tensors(TINY_TEXT, mtp=False)
    if quantisation:
        specs = quantised(specs, "awq", keep=())
    found = findings(made(specs, quantisation=quantisation), speculation=Speculation(method, 3))
    assert codes(found, "blocking") == ["mtp-absent"]
    problem = one(found, "mtp-absent")
    assert "would boot with 0 % acceptance" in problem.text
    assert "mtp_num_hidden_layers: 1" in problem.text
    assert problem.hint
    assert problem.reference.startswith("https://")


def test_no_mtp_tensors_matter_only_to_mtp() -> None:
    facts = made(model_tensors(TINY_TEXT, mtp=False))
    assert findings(facts) == []
    assert codes(findings(facts, speculation=Speculation("ngram", 3))) == ["no-drafter-needed"]
    assert codes(findings(facts, speculation=Speculation("eagle3", 3, "org/drafter"))) == ["drafter-separate"]
    assert codes(findings(facts, speculation=Speculation("eagle3", 3)), "blocking") == ["drafter-missing"]
    assert codes(findings(facts, speculation=Speculation("brandnew", 3)), "warning") == ["method-unknown"]
    assert codes(findings(made(model_tensors(TINY_TEXT)))) == ["mtp-unused"]


def test_a_grafted_file_that_the_index_does_not_name(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TINY, model_tensors(TINY_TEXT, mtp=False), shards=2)
    write_safetensors(tmp_path / "mtp.safetensors", [spec for spec in model_tensors(TINY_TEXT) if spec[0].startswith("mtp.")])
    problem = one(findings(read_folder(tmp_path), speculation=MTP3), "mtp-absent")
    assert "MTP tensors lie in mtp.safetensors, but model.safetensors.index.json does not name that file" in problem.text
    assert "weight_map" in problem.hint


@pytest.mark.parametrize("method", ["awq", "gptq", "compressed-tensors", "fp8", "bitsandbytes"])
def test_quantised_mtp_layers(method: str) -> None:
    config = {"quant_method": method, "bits": 4}
    found = findings(made(quantised(model_tensors(TINY_TEXT), method, keep=()), quantisation=config), speculation=MTP3)
    assert codes(found, "warning") == ["mtp-quantised"]
    problem = one(found, "mtp-quantised")
    assert problem.text.startswith("The MTP layers are quantised")
    for number in ("47828", "39475", "58807"):
        assert number in problem.reference


def test_only_some_mtp_modules_quantised() -> None:
    specs = quantised(model_tensors(TINY_TEXT), "awq", keep=("mtp.fc", "mtp.layers.0.self_attn"))
    problem = one(findings(made(specs, quantisation={"quant_method": "awq"}), speculation=MTP3), "mtp-quantised")
    assert problem.text.startswith("Some modules of the MTP layers are quantised")


def test_ignore_list_and_tensors_that_disagree() -> None:
    plain = quantised(model_tensors(TINY_TEXT), "awq", keep=("mtp.",))
    assert codes(findings(made(plain, quantisation=AWQ), speculation=MTP3), "warning") == []
    unlisted = findings(made(plain, quantisation={**AWQ, "modules_to_not_convert": ["visual"]}), speculation=MTP3)
    assert codes(unlisted, "warning") == ["mtp-not-ignored"]
    whole = quantised(model_tensors(TINY_TEXT), "awq", keep=())
    assert "mtp-ignored-but-quantised" in codes(findings(made(whole, quantisation=AWQ), speculation=MTP3), "warning")


def test_heads_and_k() -> None:
    two = [*model_tensors(TINY_TEXT), *_second_head()]
    assert codes(findings(made(two, mtp_num_hidden_layers=2), speculation=Speculation("mtp", 2))) == ["mtp-present"]
    odd = findings(made(two, mtp_num_hidden_layers=2), speculation=MTP3)
    assert codes(odd, "blocking") == ["mtp-k"]
    assert one(odd, "mtp-k").hint == "Take k = 2."
    missing = findings(made(model_tensors(TINY_TEXT), mtp_num_hidden_layers=3), speculation=MTP3)
    assert codes(missing, "blocking") == ["mtp-heads-missing"]


def _second_head() -> list[Spec]:
    first = [spec for spec in model_tensors(TINY_TEXT) if spec[0].startswith("mtp.layers.0")]
    return [(name.replace("layers.0", "layers.1"), dtype, shape) for name, dtype, shape in first]


def test_tensors_that_the_config_does_not_declare() -> None:
    text = {key: value for key, value in TINY_TEXT.items() if key != "mtp_num_hidden_layers"}
    tensors = tuple(Tensor(name, dtype, shape, 8, "f") for name, dtype, shape in model_tensors(TINY_TEXT))
    facts = build("tiny", {**TINY, "text_config": text}, tensors)
    assert codes(findings(facts, speculation=MTP3), "blocking") == ["mtp-not-declared"]
    assert (
        "mtp_num_hidden_layers: 0"
        in one(findings(made(model_tensors(TINY_TEXT), mtp_num_hidden_layers=0), speculation=MTP3), "mtp-not-declared").text
    )


def test_a_head_without_its_experts() -> None:
    """A conversion that ships the projection and the attention, and loses the experts."""
    specs = [spec for spec in model_tensors(TINY_TEXT) if not spec[0].startswith("mtp.layers.0.mlp")]
    problem = one(findings(made(specs), speculation=MTP3), "mtp-incomplete")
    assert "mlp.experts" in problem.text


@pytest.mark.parametrize("mine", ["one-by-one", "fused"])
def test_fused_and_single_experts_are_the_same_module(mine: str) -> None:
    """Main layers quantised one by one and an MTP head with fused experts is a complete head."""
    specs = [spec for spec in model_tensors(TINY_TEXT) if not spec[0].startswith("mtp.")]
    specs += [spec for spec in model_tensors(TINY_TEXT, experts=mine) if spec[0].startswith("mtp.")]
    assert codes(findings(made(specs), speculation=MTP3), "warning") == []


def test_what_could_not_be_looked_at() -> None:
    found = findings(build("shape", QWEN36, NoData("no safetensors file")), serving=ON_4090)
    assert codes(found, "warning") == ["tensors-unknown", "mtp-unknown", "memory-unknown"]
    broken = {**AWQ, "quant_method": "compressed-tensors", "ignore": ["re:(", "re:" + "a" * 2000]}
    assert "quantisation-pattern" in codes(findings(made(model_tensors(TINY_TEXT), quantisation=broken)), "warning")
    assert "quantisation-unknown" in codes(findings(made(model_tensors(TINY_TEXT), quantisation={"bits": 4})), "warning")


def at(weights_gib: float, **changed: Any) -> list[Problem]:
    """Memory findings of Qwen3.6 with so many GiB of weights on each of two RTX 4090."""
    facts = build("shape", QWEN36, NoData("shape alone"))
    return findings(facts, serving=replace(ON_4090, weights_bytes=int(weights_gib * GIB), **changed))


def test_memory_that_fits_does_not_fit_or_may_fit() -> None:
    good = at(10, language_model_only=True)
    assert "capacity" in codes(good, "ok")
    assert codes(at(33), "blocking") == ["weights-do-not-fit"]
    tight = at(19.7, language_model_only=True)
    assert codes(tight, "blocking") + codes(tight, "warning") == [
        "tensors-unknown",
        "mtp-unknown",
        "context-may-not-fit",
        "kv-figure-formula",
    ]
    assert "lower --max-model-len" in one(tight, "context-may-not-fit").hint
    none = at(19.7, language_model_only=True, max_model_len=262_144, kv_cache_dtype="auto", kv_cache_memory_bytes=GIB)
    assert codes(none, "blocking") == ["context-does-not-fit"]


def test_the_older_formula_is_said_only_where_it_misleads() -> None:
    assert "kv-figure-formula" in codes(at(10), "warning")
    assert "40691" in one(at(10), "kv-figure-formula").reference
    assert "kv-figure-formula" not in codes(at(10, version=(0, 20, 1)))
    assert "kv-figure-formula" not in codes(at(10, version=NoData("unknown image")))


def test_division_over_gpus() -> None:
    assert "kv-heads-copied" in codes(at(10, tensor_parallel=4), "ok")
    assert codes(at(10, tensor_parallel=3), "blocking") == ["heads-indivisible", "gdn-heads-indivisible"]
    block = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    facts = build("shape", {**QWEN36, "quantization_config": block}, NoData("shape alone"))
    serving = replace(ON_4090, tensor_parallel=8, weights_bytes=5 * GIB)
    assert "fp8-block-indivisible" in codes(findings(facts, serving=serving), "blocking")
    assert "fp8-block-indivisible" not in codes(findings(facts, serving=replace(serving, expert_parallel=True)))


def test_context_beyond_the_model() -> None:
    assert codes(at(10, max_model_len=300_000), "blocking") == ["context-beyond-model"]
    stretched = {**QWEN36, "text_config": {**QWEN36["text_config"], "rope_parameters": {"rope_type": "yarn", "factor": 4.0}}}
    facts = build("shape", stretched, NoData("shape alone"))
    found = findings(facts, serving=replace(ON_4090, max_model_len=300_000, weights_bytes=10 * GIB))
    assert "context-beyond-model" not in codes(found)


def test_texts_are_whole_sentences() -> None:
    """Every finding of the cases above reads as one: no type names, no line breaks, a full stop."""
    specs = model_tensors(TINY_TEXT)
    cases = [
        findings(made(specs), speculation=MTP3),
        findings(made(model_tensors(TINY_TEXT, mtp=False)), speculation=MTP3),
        findings(made(quantised(specs, "awq", keep=()), quantisation=AWQ), speculation=MTP3),
        at(10),
        at(33),
        at(19.7, language_model_only=True),
        at(10, tensor_parallel=3),
        at(10, pipeline_parallel=2),
    ]
    for problem in [problem for case in cases for problem in case]:
        for text in (problem.text, problem.hint):
            assert "\n" not in text
            assert "NoData" not in text
            assert "Estimate" not in text
            assert not text or text.endswith((".", "!"))
