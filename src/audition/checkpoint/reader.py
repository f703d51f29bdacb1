"""The edge: finds a checkpoint's files, reads their headers, and makes facts of them. Never reads a weight.

Which files count is decided as vLLM decides it: with an index, the files that it names (others in the folder are passed over);
without one, every ``*.safetensors`` in the folder, but a ``consolidated`` copy beside ``model`` files.
Source: ``filter_duplicate_safetensors_files`` in vllm/model_executor/model_loader/weight_utils.py.

What must not live here: meaning of what was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from audition.checkpoint.facts import Facts, build
from audition.checkpoint.header import Budget, read_header, read_json
from audition.checkpoint.locate import CacheRoots, locate
from audition.checkpoint.problem import CheckpointError, plain
from audition.checkpoint.tensors import Tensor
from audition.units import NoData

INDEX = "model.safetensors.index.json"
FILES_LIMIT = 10_000
# Quantisation configs outside config.json: ModelOpt, AutoGPTQ and AutoRound, AutoAWQ.
QUANTISATION_FILES = ("hf_quant_config.json", "quantize_config.json", "quantization_config.json", "quant_config.json")
_NAMES_SHOWN = 3


def read(model: str, *, cache: CacheRoots, revision: str = "main") -> Facts:
    """Facts of a checkpoint, by folder or by model id in a cache. Raises CheckpointError or NotInCache, one sentence each."""
    return read_folder(locate(model, cache, revision), source=model)


def read_folder(folder: Path, *, source: str = "") -> Facts:
    """Facts of the checkpoint in a folder. Raises CheckpointError when anything in it is missing or broken."""
    config = read_json(folder / "config.json")
    try:
        tensors, stray = _tensors(folder)
    except CheckpointError as error:
        raise _with_place(error, folder, source) from error
    return build(source or str(folder), config, tensors, stray=stray, quantisation_file=_quantisation_file(folder, config))


def _with_place(error: CheckpointError, folder: Path, source: str) -> CheckpointError:
    tried = error.tried or f"reading {source or folder}"
    return type(error)(error.what, tried=tried, seen=error.seen, next_step=error.next_step)


def _quantisation_file(folder: Path, config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if "quantization_config" in config or "compression_config" in config:
        return None
    for name in QUANTISATION_FILES:
        if (folder / name).is_file():
            return {"quant_method": "gptq" if name == "quantize_config.json" else "awq", **read_json(folder / name)}
    return None


def _tensors(folder: Path) -> tuple[tuple[Tensor, ...] | NoData, tuple[Tensor, ...]]:
    """Tensors that an engine loads, and those in files that it passes over."""
    try:
        there = sorted(path for path in folder.iterdir() if path.name.endswith(".safetensors"))
    except OSError as error:
        raise CheckpointError(f"the folder cannot be listed: {error.strerror}", tried=f"listing {folder}") from error
    if len(there) > FILES_LIMIT:
        raise CheckpointError(
            f"the folder holds {len(there):,} safetensors files; no checkpoint has that many", tried=f"listing {folder}"
        )
    budget = Budget()
    index = folder / INDEX
    if index.exists() or index.is_symlink():
        return _indexed(folder, read_json(index), there, budget)
    if not there:
        return NoData(f"{folder} holds no safetensors file, so its tensors are unknown"), ()
    plain = [path for path in there if not path.name.startswith("consolidated")]
    return tuple(tensor for path in plain or there for tensor in read_header(path, budget)), ()


def _indexed(
    folder: Path, index: Mapping[str, Any], there: list[Path], budget: Budget
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    named = _weight_map(index)
    files = sorted(set(named.values()))
    if len(files) > FILES_LIMIT:
        raise CheckpointError(f"{INDEX} names {len(files):,} files; no checkpoint has that many")
    absent = [name for name in files if not (folder / name).exists() and not (folder / name).is_symlink()]
    if absent:
        raise CheckpointError(
            f"{len(absent)} of {len(files)} files that {INDEX} names are not there: {_some(absent)}",
            next_step="Download the rest, or point to a complete copy.",
        )
    tensors = tuple(tensor for name in files for tensor in read_header(folder / name, budget))
    base = {file: PurePosixPath(file).name for file in files}
    held = {(tensor.name, tensor.file) for tensor in tensors}
    lost = [name for name, file in named.items() if (name, base[file]) not in held]
    if lost:
        raise CheckpointError(
            f"{INDEX} names {len(lost)} tensors that their files do not hold: {_some(lost)}",
            next_step="Index and files are from different versions of the checkpoint: download both again.",
        )
    stray = [path for path in there if path.name not in files and not path.name.startswith("consolidated")]
    return tensors, tuple(tensor for path in stray for tensor in read_header(path, budget))


def _weight_map(index: Mapping[str, Any]) -> dict[str, str]:
    """Tensor name to file name. Raises CheckpointError when the index has none, or names a file outside the folder."""
    named = index.get("weight_map")
    if not isinstance(named, dict) or not named:
        raise CheckpointError(f"{INDEX} has no weight_map", next_step="Download the index again.")
    for tensor, file in named.items():
        if not isinstance(file, str):
            raise _outside(tensor, file)
    for file in set(named.values()):
        if not file or file.startswith("/") or ".." in PurePosixPath(file).parts or "\0" in file:
            raise _outside(next(tensor for tensor, its in named.items() if its == file), file)
    return named


def _outside(tensor: str, file: Any) -> CheckpointError:
    return CheckpointError(f"{INDEX} gives {tensor[:80]!r} the file {str(file)[:80]!r}, which is no file of this folder")


def _some(names: list[str]) -> str:
    shown = ", ".join(plain(name[:120]) for name in names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown} and {len(names) - _NAMES_SHOWN} more"
