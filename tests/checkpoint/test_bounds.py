"""Checkpoints that would take time or memory without end: the answer comes at once, as facts or as one error."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from audition.checkpoint.config import read_shape
from audition.checkpoint.header import HEADERS_LIMIT, Budget, read_header
from audition.checkpoint.locate import CacheRoots, locate
from audition.checkpoint.mtp import read_mtp
from audition.checkpoint.pattern import weight
from audition.checkpoint.problem import CheckpointError
from audition.checkpoint.quantisation import read_quantisation
from audition.checkpoint.reader import read_folder
from audition.checkpoint.tensors import Tensor
from audition.plain_file import NotPlain, read_bytes
from audition.units import NoData
from checkpoint.making import TINY, TINY_TEXT, model_tensors, write_checkpoint


def write_header(path: Path, text: bytes) -> Path:
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"\0")
    return path


@pytest.mark.parametrize("dimensions", [17, 200_000])
def test_a_shape_of_many_large_sides(tmp_path: Path, dimensions: int) -> None:
    shape = ",".join([str(2**63 - 1)] * dimensions)
    path = write_header(tmp_path / "a.safetensors", b'{"a":{"dtype":"U8","shape":[%s],"data_offsets":[0,1]}}' % shape.encode())
    with pytest.raises(CheckpointError, match="the shape"):
        read_header(path)


def test_sides_whose_product_no_file_has(tmp_path: Path) -> None:
    side = 2**63 - 1
    text = json.dumps({"a": {"dtype": "U8", "shape": [side] * 16, "data_offsets": [0, 1]}})
    with pytest.raises(CheckpointError, match="needs another number"):
        read_header(write_header(tmp_path / "a.safetensors", text.encode()))


def test_a_header_of_nothing_but_objects(tmp_path: Path) -> None:
    path = write_header(tmp_path / "a.safetensors", b"[" + b"{}," * 600_000 + b"{}]")
    with pytest.raises(CheckpointError, match="far more than one can need"):
        read_header(path)


def test_links_to_one_file_are_read_once(tmp_path: Path) -> None:
    write_checkpoint(tmp_path, TINY, model_tensors(TINY_TEXT))
    once = read_folder(tmp_path).weights
    (whole,) = tmp_path.glob("*.safetensors")
    for number in range(40):
        os.link(whole, tmp_path / f"other-{number}.safetensors")
        (tmp_path / f"link-{number}.safetensors").symlink_to(whole.name)
    again = read_folder(tmp_path).weights
    assert not isinstance(once, NoData)
    assert not isinstance(again, NoData)
    assert (again.tensors, again.total_bytes, again.files) == (once.tensors, once.total_bytes, 1)


def test_all_headers_together_have_a_bound(tmp_path: Path) -> None:
    budget = Budget()
    path = tmp_path / "a"
    path.touch()
    assert budget.take(path, path.stat(), HEADERS_LIMIT)
    other = tmp_path / "b"
    other.touch()
    with pytest.raises(CheckpointError, match="in all"):
        budget.take(other, other.stat(), 1)


def test_a_pipe_as_ref_of_a_cache(tmp_path: Path) -> None:
    repository = tmp_path / "models--org--m"
    (repository / "refs").mkdir(parents=True)
    (repository / "snapshots").mkdir()
    os.mkfifo(repository / "refs" / "main")
    with pytest.raises(CheckpointError, match="not a plain file"):
        locate("org/m", CacheRoots(tmp_path, hf_hub_cache=str(tmp_path)))


def test_devices_and_long_files_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "zero").symlink_to("/dev/zero")
    with pytest.raises(NotPlain):
        read_bytes(tmp_path / "zero", 10)
    (tmp_path / "long").write_bytes(b"12345678901")
    with pytest.raises(OSError, match="longer"):
        read_bytes(tmp_path / "long", 10)
    assert read_bytes(tmp_path / "long", 11) == b"12345678901"


@pytest.mark.parametrize(
    "pattern",
    [
        *("([a-z.0]+)+!", "^(mtp|[a-z.0-9_]+)*$", "((.+)+)+!", "(a|a)+!", "(ab|ab)" * 30 + "!", ".*a.*b.*c.*d", r"(a+)\1", "("),
        *("a" * 1001, "(?:a?){50}", "a?" * 40 + "!"),
    ],
)
def test_patterns_without_a_bound_are_not_understood(pattern: str) -> None:
    assert weight(pattern) is None
    config = {"quant_method": "compressed-tensors", "ignore": [f"re:{pattern}", "lm_head"]}
    quantisation = read_quantisation(config)
    assert quantisation.unreadable == (pattern[:80],)
    assert not quantisation.keeps_out("mtp.layers.0." + "a" * 200)
    assert quantisation.keeps_out("lm_head")


@pytest.mark.parametrize(
    "pattern", [".*mlp.gate$", "^mtp.*", r".*\.(q|k|v)_proj$", "visual.*", r"model\.layers\.(0|1|61)\..*", r".*layers\.\d+\.mlp.*"]
)
def test_patterns_as_published_are_understood(pattern: str) -> None:
    assert weight(pattern) is not None
    assert read_quantisation({"quant_method": "compressed-tensors", "ignore": [f"re:{pattern}"]}).unreadable == ()


def test_many_rules_times_many_modules_are_not_compared() -> None:
    config = {"quant_method": "compressed-tensors", "ignore": [f"model.m{number}" for number in range(20_000)]}
    quantisation = read_quantisation(config)
    own = [Tensor(f"mtp.layers.0.m{number}.weight", "BF16", (2, 2), 8, "a") for number in range(5_000)]
    mtp = read_mtp(read_shape(TINY), quantisation, [(tensor, "mtp") for tensor in own])
    assert isinstance(mtp.kept_out, NoData)
    assert "too many rules" in mtp.kept_out.reason
