"""Reading checkpoints from disk: layouts as people publish them, caches, and files that are broken in every way."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from audition.checkpoint.facts import Facts
from audition.checkpoint.header import HEADER_LIMIT, read_header
from audition.checkpoint.locate import CacheRoots, locate
from audition.checkpoint.problem import CheckpointError, NotInCache
from audition.checkpoint.reader import read, read_folder
from audition.checkpoint.serving import GIB
from audition.errors import EXIT_BAD_INPUT
from audition.units import NoData
from checkpoint.making import (
    TINY,
    TINY_TEXT,
    header_bytes,
    model_tensors,
    quantised,
    write_checkpoint,
    write_index,
    write_safetensors,
)
from environments.live_vllm import LiveVllm
from environments.vllm_cpu.install import HERE

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def tiny(folder: Path, **changed: Any) -> Path:
    return write_checkpoint(folder, TINY, model_tensors(TINY_TEXT), **changed)


def test_tiny_model_with_and_without_mtp(tmp_path: Path) -> None:
    whole = read_folder(tiny(tmp_path / "whole"))
    assert whole.shape.layers == ("linear", "linear", "linear", "full")
    assert (whole.shape.kv_heads, whole.shape.head_dim, whole.shape.dtype) == (1, 64, "bfloat16")
    assert (whole.mtp.declared, whole.mtp.key, whole.mtp.heads) == (1, "mtp_num_hidden_layers", (0,))
    assert whole.mtp.missing == ()
    assert whole.mtp.present is True
    dropped = read_folder(write_checkpoint(tmp_path / "dropped", TINY, model_tensors(TINY_TEXT, mtp=False)))
    assert (dropped.mtp.declared, dropped.mtp.tensors, dropped.mtp.present) == (1, 0, False)


@pytest.mark.live
def test_real_tiny_checkpoint_with_and_without_mtp(live_vllm: LiveVllm, tmp_path: Path) -> None:
    """The checkpoint that real vLLM serves in the live tests, and one made with --drop-mtp: both written by safetensors itself."""
    with_mtp = read_folder(live_vllm.model_dir)
    maker = HERE / "tiny_model.py"
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    subprocess.run([live_vllm.python, maker, tmp_path / "dropped", "--drop-mtp"], check=True, env=environment, capture_output=True)
    without = read_folder(tmp_path / "dropped")
    assert with_mtp.mtp.present is True
    assert with_mtp.mtp.missing == ()
    assert (without.mtp.declared, without.mtp.tensors) == (1, 0)
    for facts in (with_mtp, without):
        assert facts.shape.layers == ("linear", "linear", "linear", "full")
        assert not isinstance(facts.weights, NoData)
        assert facts.weights.expert_bytes == 4 * 8 * 3 * 64 * 64 * 2
    assert not isinstance(with_mtp.weights, NoData)
    assert not isinstance(without.weights, NoData)
    assert not isinstance(with_mtp.mtp.size_bytes, NoData)
    assert with_mtp.weights.total_bytes - without.weights.total_bytes == with_mtp.mtp.size_bytes


LAYOUTS: list[tuple[str, dict[str, Any], str]] = [
    (
        "awq",
        {
            "quant_method": "awq",
            "bits": 4,
            "group_size": 32,
            "version": "gemm",
            "modules_to_not_convert": ["mtp", "visual", "mlp.gate"],
        },
        "AWQ gemm, 4 bit, groups of 32",
    ),
    (
        "gptq",
        {"quant_method": "gptq", "bits": 4, "group_size": 32, "dynamic": {"-:.*mtp.*": {}, "-:.*visual.*": {}}},
        "GPTQ, 4 bit, groups of 32",
    ),
    (
        "compressed-tensors",
        {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4, "group_size": 32, "type": "int"}}},
            "ignore": ["lm_head", "re:.*visual.*", "re:^mtp.*"],
        },
        "compressed-tensors pack-quantized, 4 bit, groups of 32",
    ),
    (
        "fp8",
        {
            "quant_method": "fp8",
            "activation_scheme": "dynamic",
            "weight_block_size": [128, 128],
            "modules_to_not_convert": ["lm_head", "mtp.fc", "mtp.layers.0"],
        },
        "FP8 dynamic, 8 bit, blocks of 128 x 128",
    ),
    (
        "bitsandbytes",
        {
            "quant_method": "bitsandbytes",
            "load_in_4bit": True,
            "bnb_4bit_quant_type": "nf4",
            "llm_int8_skip_modules": ["lm_head", "mtp"],
        },
        "bitsandbytes nf4, 4 bit",
    ),
]


@pytest.mark.parametrize(("method", "config", "layout"), LAYOUTS, ids=[one[0] for one in LAYOUTS])
@pytest.mark.parametrize("shards", [1, 3])
def test_quantised_layouts(tmp_path: Path, method: str, config: dict[str, Any], layout: str, shards: int) -> None:
    """Each layout once with MTP kept out, as its config says, and once with MTP quantised and not in the list."""
    plain = quantised(model_tensors(TINY_TEXT), method, keep=("mtp.",))
    facts = read_folder(write_checkpoint(tmp_path / "kept", TINY, plain, shards=shards, quantisation=config))
    assert facts.quantisation.layout == layout
    assert facts.mtp.quantised_modules == ()
    assert facts.mtp.kept_out == 1.0
    assert facts.quantisation.keeps_out("model.language_model.layers.3.self_attn.q_proj") is False

    silent = {
        key: value
        for key, value in config.items()
        if key not in ("modules_to_not_convert", "ignore", "dynamic", "llm_int8_skip_modules")
    }
    whole = quantised(model_tensors(TINY_TEXT), method, keep=())
    facts = read_folder(write_checkpoint(tmp_path / "all", TINY, whole, shards=shards, quantisation=silent))
    assert facts.mtp.plain_modules == ()
    assert "mtp.layers.0.self_attn.q_proj" in facts.mtp.quantised_modules
    assert facts.mtp.kept_out == 0.0
    assert not isinstance(facts.weights, NoData)
    assert facts.weights.files == shards


def test_deepseek_style_layers_beyond_the_last(tmp_path: Path) -> None:
    config = {
        "architectures": ["DeepseekV3ForCausalLM"],
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "kv_lora_rank": 32,
        "qk_rope_head_dim": 8,
        "num_nextn_predict_layers": 1,
    }
    layer = [(f"model.layers.{number}.self_attn.q_proj.weight", "BF16", (64, 64)) for number in range(3)]
    extra = [("model.layers.2.eh_proj.weight", "BF16", (64, 128)), ("model.layers.2.embed_tokens.weight", "BF16", (100, 64))]
    facts = read_folder(write_checkpoint(tmp_path, config, [*layer, *extra]))
    assert facts.shape.layers == ("mla", "mla")
    assert (facts.mtp.declared, facts.mtp.heads, facts.mtp.tensors) == (1, (0,), 3)
    assert not isinstance(facts.weights, NoData)
    assert {part.sharing for part in facts.weights.parts if part.group == "mtp"} == {"split", "shared"}


def test_quantisation_config_in_a_file_of_its_own(tmp_path: Path) -> None:
    tiny(tmp_path)
    inner = {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "group_size": 16, "exclude_modules": ["lm_head", "mtp*"]}
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": inner}))
    found = read_folder(tmp_path).quantisation
    assert (found.method, found.bits, found.kv_cache_fp8) == ("modelopt", 4, True)
    assert found.keeps_out("mtp.layers.0.self_attn.q_proj")


def test_files_outside_the_index_are_not_loaded(tmp_path: Path) -> None:
    """MTP tensors grafted into a file that the index does not name: an engine passes that file over."""
    without = model_tensors(TINY_TEXT, mtp=False)
    write_checkpoint(tmp_path, TINY, without, shards=2)
    write_safetensors(tmp_path / "mtp.safetensors", [one for one in model_tensors(TINY_TEXT) if one[0].startswith("mtp.")])
    facts = read_folder(tmp_path)
    assert facts.mtp.tensors == 0
    assert facts.mtp.stray == ("mtp.safetensors",)


def test_a_folder_without_weights_is_no_error(tmp_path: Path) -> None:
    """As served with random weights (--load-format dummy)."""
    (tmp_path / "config.json").write_text(json.dumps(TINY))
    facts = read_folder(tmp_path)
    assert isinstance(facts.weights, NoData)
    assert isinstance(facts.mtp.present, NoData)
    assert facts.mtp.declared == 1


def test_200_gb_take_two_reads(tmp_path: Path) -> None:
    """A sparse file of 200 GB: what is read is bounded by the header, shown by the bytes that the process asked the system for."""
    specs = [("model.embed_tokens.weight", "BF16", (100_000, 1_000_000)), ("model.layers.0.mlp.up_proj.weight", "BF16", (64, 64))]
    head, size = header_bytes(specs)
    path = tmp_path / "model.safetensors"
    write_safetensors(path, specs)
    assert path.stat().st_size == len(head) + size > 200 * 10**9
    before, peak = _read_by_this_process(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    tensors = read_header(path)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak
    assert sum(tensor.size_bytes for tensor in tensors) == size
    assert _read_by_this_process() - before < len(head) + 64 * 1024, "the header, and what reading /proc costs"
    assert grown < 64 * 1024, "KiB"


def _read_by_this_process() -> int:
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["rchar"])


def _truncated_header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:200])


def _cut_weights(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def _absurd_length(path: Path) -> None:
    path.write_bytes((2**62).to_bytes(8, "little") + b"{}")


def _length_beyond_limit(path: Path) -> None:
    with path.open("wb") as handle:
        handle.write((HEADER_LIMIT + 1).to_bytes(8, "little"))
        handle.truncate(HEADER_LIMIT + 100)


def _bytes(raw: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_bytes(raw)

    return damage


def _header(text: bytes) -> Callable[[Path], None]:
    return _bytes(len(text).to_bytes(8, "little") + text)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _dangling(path: Path) -> None:
    path.unlink()
    path.symlink_to("../../blobs/deadbeef")


DAMAGE: list[tuple[Callable[[Path], None], str]] = [
    (_truncated_header, "header is cut"),
    (_cut_weights, "weights are cut"),
    (_absurd_length, "which no safetensors file has"),
    (_length_beyond_limit, "which no safetensors file has"),
    (_bytes(b"abc"), "too few for a safetensors header"),
    (_bytes(b""), "has 0 bytes"),
    (_header(b"version https://git-lfs"), "not JSON"),
    (_header(b"\xff\xfe{}"), "not text in UTF-8"),
    (_header(b"[" * 100_000), "nested too deeply"),
    (_header(b"[1, 2]"), "holds list"),
    (_header(b'{"a": 1}'), "describes 'a' by int"),
    (_header(b'{"a": {"dtype": "Q4", "shape": [1], "data_offsets": [0, 1]}}'), "unknown type 'Q4'"),
    (_header(b'{"a": {"dtype": "U8", "shape": [-1], "data_offsets": [0, 1]}}'), "the shape [-1]"),
    (_header(b'{"a": {"dtype": "U8", "shape": [4], "data_offsets": [0]}}'), "the place [0]"),
    (_header(b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 4]}}'), "needs another number"),
    (_header(b'{"a": {"dtype": "F32", "shape": [' + b"9" * 5000 + b'], "data_offsets": [0, 4]}}'), "not JSON"),
    (_pipe, "not a plain file"),
    (_folder, "not a plain file"),
    (_dangling, "deadbeef, which is not there"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGE, ids=[words for _, words in DAMAGE])
@pytest.mark.parametrize("shards", [1, 2])
def test_a_broken_file_gives_one_clear_message(tmp_path: Path, damage: Callable[[Path], None], words: str, shards: int) -> None:
    tiny(tmp_path, shards=shards)
    path = tmp_path / ("model.safetensors" if shards == 1 else "model-00002-of-00002.safetensors")
    damage(path)
    with pytest.raises(CheckpointError) as caught:
        read_folder(tmp_path)
    assert words in caught.value.what
    assert path.name in caught.value.what
    assert "\n" not in caught.value.what
    assert len(caught.value.what) < 400
    assert caught.value.exit_code == EXIT_BAD_INPUT


def test_an_unreadable_file(tmp_path: Path) -> None:
    """As root everything can be read, so the reading process becomes nobody first."""
    tiny(tmp_path)
    (tmp_path / "model.safetensors").chmod(0)
    tmp_path.chmod(0o755)
    program = (
        "import os\n"
        "from pathlib import Path\n"
        "from audition.checkpoint.header import read_header\n"
        "os.getuid() or os.setresuid(65534, 65534, 65534)\n"
        "try: read_header(Path('model.safetensors'))\n"
        "except Exception as error: print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.stdout == "CheckpointError model.safetensors cannot be read: Permission denied\n", done.stderr


def test_missing_shards_are_named_together(tmp_path: Path) -> None:
    tiny(tmp_path, shards=5)
    for number in (2, 4):
        (tmp_path / f"model-0000{number}-of-00005.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"2 of 5 files .* not there: model-00002-of-00005.safetensors, model-00004"):
        read_folder(tmp_path)


def test_an_index_that_names_tensors_no_shard_has(tmp_path: Path) -> None:
    tiny(tmp_path, shards=2)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())["weight_map"]
    one = "model-00001-of-00002.safetensors"
    write_index(tmp_path, {**index, "mtp.layers.1.fc.weight": one, "mtp.layers.2.fc.weight": one})
    with pytest.raises(
        CheckpointError, match=r"names 2 tensors that their files do not hold: mtp\.layers\.1\.fc\.weight, mtp\.layers\.2"
    ):
        read_folder(tmp_path)


def test_names_from_a_checkpoint_cannot_write_on_the_terminal(tmp_path: Path) -> None:
    tiny(tmp_path, shards=2)
    write_index(tmp_path, {"a\x1b[2Jb\ud800": "model-00001-of-00002.safetensors"})
    with pytest.raises(CheckpointError) as caught:
        read_folder(tmp_path)
    assert caught.value.what.isprintable()
    assert r"a\x1b[2Jb\ud800" in caught.value.what


@pytest.mark.parametrize("file", ["../../../etc/passwd", "/etc/passwd", "", 7, "a\0b"])
def test_an_index_cannot_point_outside(tmp_path: Path, file: Any) -> None:
    tiny(tmp_path, shards=2)
    write_index(tmp_path, {"lm_head.weight": file})
    with pytest.raises(CheckpointError, match="which is no file of this folder"):
        read_folder(tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("[]", "holds list"),
        ("{}", "does not state num_hidden_layers|does not state hidden_size"),
        (json.dumps({**TINY_TEXT, "num_hidden_layers": "four"}), "num_hidden_layers is 'four'"),
        (json.dumps({**TINY_TEXT, "num_hidden_layers": 10**9}), "num_hidden_layers is '1000000000'"),
        (json.dumps({**TINY_TEXT, "num_attention_heads": 0}), "states 0 for num_attention_heads"),
        (json.dumps({**TINY_TEXT, "layer_types": ["full_attention"]}), "layer_types has 1 entries for 4 layers"),
        (json.dumps({**TINY_TEXT, "linear_num_key_heads": True}), "linear_num_key_heads is 'True'"),
        (json.dumps({**TINY, "text_config": "qwen"}), "text_config is str"),
        ('{"hidden_size": NaN}', "hidden_size is 'nan'"),
    ],
)
def test_a_config_that_is_no_models(tmp_path: Path, text: str, words: str) -> None:
    tiny(tmp_path)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=words):
        read_folder(tmp_path)


def _cached(home: Path, hub: Path, *, blobs: bool = True) -> Path:
    """The tiny model in a Hugging Face cache: blobs, a snapshot of links, a ref."""
    repository = hub / "models--org--tiny"
    snapshot = repository / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (repository / "blobs").mkdir()
    source = tiny(home / "source", shards=2)
    for number, file in enumerate(sorted(source.iterdir())):
        blob = repository / "blobs" / f"{number:064x}"
        if blobs or file.suffix != ".safetensors":
            file.rename(blob)
        (snapshot / file.name).symlink_to(Path("../../blobs") / blob.name)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    return repository


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"hf_home": "{home}/elsewhere"},
        {"hf_hub_cache": "{home}/direct", "hf_home": "{home}/wrong"},
        {"huggingface_hub_cache": "{home}/older", "hf_home": "{home}/wrong"},
        {"xdg_cache_home": "{home}/xdg"},
        {"hf_home": "~/tilde"},
    ],
)
def test_a_model_id_in_a_cache(tmp_path: Path, variables: dict[str, str]) -> None:
    cache = CacheRoots(tmp_path, **{name: value.format(home=tmp_path) for name, value in variables.items()})
    _cached(tmp_path, cache.hub())
    facts: Facts = read("org/tiny", cache=cache)
    assert facts.source == "org/tiny"
    assert facts.mtp.present is True
    assert locate("org/tiny", cache, COMMIT).name == COMMIT
    assert locate(str(cache.hub() / "models--org--tiny"), cache).name == COMMIT, "the repository's own folder, as a mount"


def test_missing_blobs_are_named(tmp_path: Path) -> None:
    cache = CacheRoots(tmp_path)
    _cached(tmp_path, cache.hub(), blobs=False)
    with pytest.raises(CheckpointError, match=r"model-00001-of-00002.safetensors is a link to .*blobs/0+1, which is not there"):
        read("org/tiny", cache=cache)


def test_what_a_cache_can_lack(tmp_path: Path) -> None:
    cache = CacheRoots(tmp_path)
    with pytest.raises(NotInCache, match="org/tiny is not in the cache"):
        read("org/tiny", cache=cache)
    repository = _cached(tmp_path, cache.hub())
    with pytest.raises(NotInCache, match="nothing says which snapshot its revision v2 is"):
        read("org/tiny", cache=cache, revision="v2")
    with pytest.raises(NotInCache, match="has no snapshot ffff"):
        read("org/tiny", cache=cache, revision="f" * 40)
    (repository / "refs" / "main").write_text("../../../etc")
    with pytest.raises(CheckpointError, match="does not hold a commit"):
        read("org/tiny", cache=cache)
    with pytest.raises(CheckpointError, match="is no revision"):
        read("org/tiny", cache=cache, revision="../../x")


@pytest.mark.parametrize("model", ["/no/such/folder", "./nowhere", "a/b/c", "../up", "org/../up", "", "~/models/x"])
def test_names_that_are_neither_folder_nor_id(tmp_path: Path, model: str) -> None:
    if model == "":
        model = str(tmp_path / "gone")
    with pytest.raises(CheckpointError, match="there is no folder"):
        locate(model, CacheRoots(tmp_path))


def test_a_large_model_is_read_whole(tmp_path: Path) -> None:
    """Every expert of 40 layers in three tensors each, over eight files: 60,000 entries, as published 4-bit models have them."""
    text = {**TINY_TEXT, "num_hidden_layers": 40, "num_experts": 128}
    del text["layer_types"]
    specs = quantised(model_tensors(text), "compressed-tensors", keep=("mtp.",))
    facts = read_folder(write_checkpoint(tmp_path, {**TINY, "text_config": text}, specs, shards=8))
    assert not isinstance(facts.weights, NoData)
    assert facts.weights.tensors == len(specs) > 40_000
    assert facts.weights.total_bytes < GIB
    assert facts.mtp.heads == (0,)
