"""Everything known about a checkpoint, made from plain data. Pure: ``reader`` is the edge that finds the data.

What must not live here: files, memory of a GPU, what to say about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from audition.checkpoint.config import Shape, read_shape
from audition.checkpoint.mtp import Mtp, read_mtp, unknown_mtp
from audition.checkpoint.quantisation import Quantisation, read_quantisation
from audition.checkpoint.tensors import Tensor, group_of
from audition.checkpoint.weights import Weights, read_weights
from audition.units import NoData


@dataclass(frozen=True)
class Facts:
    """A checkpoint: ``source`` as it was named, its shape, quantisation, MTP heads and bytes of weights."""

    source: str
    shape: Shape
    quantisation: Quantisation
    mtp: Mtp
    weights: Weights | NoData


def build(
    source: str,
    config: Mapping[str, Any],
    tensors: tuple[Tensor, ...] | NoData,
    *,
    stray: tuple[Tensor, ...] = (),
    quantisation_file: Mapping[str, Any] | None = None,
) -> Facts:
    """Facts from a config.json, the tensors of the headers, tensors in files that the index does not name, and a quantisation file.

    Raises CheckpointError when the config cannot be a model's.
    """
    shape = read_shape(config)
    quantisation = read_quantisation(_quantisation_config(config) or quantisation_file)
    if isinstance(tensors, NoData):
        return Facts(source, shape, quantisation, unknown_mtp(shape, tensors), tensors)
    layers = len(shape.layers)
    grouped = [(tensor, group_of(tensor.name, layers)) for tensor in tensors]
    passed_over = [tensor for tensor in stray if group_of(tensor.name, layers) == "mtp"]
    return Facts(source, shape, quantisation, read_mtp(shape, quantisation, grouped, passed_over), read_weights(grouped))


def _quantisation_config(config: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The quantisation config inside config.json: at the top, or inside the language model's part."""
    for part in (config, config.get("text_config")):
        for key in ("quantization_config", "compression_config"):
            if isinstance(part, Mapping) and isinstance(found := part.get(key), Mapping):
                return found
    return None
