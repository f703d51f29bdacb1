"""Multi-token-prediction heads of a checkpoint: declared, really there, complete, quantised or kept out. Pure.

The heads must be looked for in the tensors: a quantised checkpoint that declares one and ships none boots without a word and
accepts no draft (z-lab/paroquant#42).

What must not live here: what to say about it (``findings``), how many drafts a server asks for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from audition.checkpoint.config import Shape
from audition.checkpoint.quantisation import Quantisation
from audition.checkpoint.tensors import Group, Tensor, is_quantised, layer_of, split_name
from audition.units import NoData

_HEAD_NUMBER = re.compile(r"(?:^|\.)(?:mtp|mtp_layers|mtp_block|mtp\.layers|mtp\.\w+)\.(\d{1,6})(?:\.|$)")
_EXPERT_NUMBER = re.compile(r"\.experts\.\d+\.")
# Parts that no method quantises, or that engines build unquantised in any case: norms, routers, embeddings, the output head.
_NEVER = re.compile(r"norm|embed|lm_head|shared_head|(^|\.)(gate|shared_expert_gate|router)$|conv1d|rotary")

_NOT_QUANTISED = NoData("the checkpoint is not quantised")


@dataclass(frozen=True)
class Mtp:
    """``declared``: layers by the config. ``heads``: numbers of the layers that have tensors. ``size_bytes``: of all MTP tensors.

    ``quantised_modules`` and ``plain_modules``: linear modules by how their tensors are stored. ``kept_out``: share of these
    modules that the quantisation config leaves alone, 0 to 1. ``missing``: modules that a decoder layer has and the MTP layer
    lacks. ``stray``: files with MTP tensors that the index does not name, so that an engine passes them over.
    """

    declared: int | NoData
    key: str
    heads: tuple[int, ...]
    tensors: int | NoData
    size_bytes: int | NoData
    quantised_modules: tuple[str, ...] = ()
    plain_modules: tuple[str, ...] = ()
    kept_out: float | NoData = _NOT_QUANTISED
    missing: tuple[str, ...] = ()
    stray: tuple[str, ...] = ()

    @property
    def present(self) -> bool | NoData:
        """Whether any MTP tensor is there."""
        return self.tensors if isinstance(self.tensors, NoData) else self.tensors > 0


def unknown_mtp(shape: Shape, why: NoData) -> Mtp:
    """What the config alone says of MTP heads, when no tensor could be looked at."""
    return Mtp(shape.mtp_layers, shape.mtp_key, (), why, why, kept_out=why)


def read_mtp(
    shape: Shape, quantisation: Quantisation, grouped: Sequence[tuple[Tensor, Group]], stray: Iterable[Tensor] = ()
) -> Mtp:
    """The MTP heads of a checkpoint. ``stray``: MTP tensors in files that the index does not name."""
    own = [tensor for tensor, group in grouped if group == "mtp"]
    quantised, plain = _modules(own)
    return Mtp(
        declared=shape.mtp_layers,
        key=shape.mtp_key,
        heads=tuple(sorted({_head(tensor.name, len(shape.layers)) for tensor in own})),
        tensors=len(own),
        size_bytes=sum(tensor.size_bytes for tensor in own),
        quantised_modules=quantised,
        plain_modules=plain,
        kept_out=_kept_out(quantisation, quantised + plain),
        missing=_missing(shape, grouped, own),
        stray=tuple(sorted({tensor.file for tensor in stray})),
    )


def _head(name: str, decoder_layers: int) -> int:
    """The number of the MTP layer, from 0. Tensors that all heads share (``mtp.fc``) count to the first."""
    number = layer_of(name)
    if number is not None and number >= decoder_layers:
        return number - decoder_layers
    found = _HEAD_NUMBER.search(name)
    return int(found.group(1)) if found else 0


def _modules(own: Iterable[Tensor]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Linear modules, quantised ones and plain ones; the experts of a layer count as one module."""
    stored: dict[str, bool] = {}
    for tensor in own:
        module = _module(tensor.name)
        matrix = len(tensor.shape) >= 2 or is_quantised(tensor)
        if matrix and not _NEVER.search(module):
            stored[module] = stored.get(module, False) or is_quantised(tensor)
    names = sorted(stored)
    return tuple(name for name in names if stored[name]), tuple(name for name in names if not stored[name])


def _module(name: str) -> str:
    """The module's name with experts taken together; experts that share one tensor have no ``weight`` part of their own."""
    module, leaf = split_name(_EXPERT_NUMBER.sub(".experts.0.", name))
    return f"{module}.{leaf}" if module.endswith(".experts") else module


def _kept_out(quantisation: Quantisation, modules: tuple[str, ...]) -> float | NoData:
    if quantisation.none:
        return _NOT_QUANTISED
    if not modules:
        return NoData("there is no MTP module")
    if not quantisation.comparable(modules):
        return NoData("its quantisation config has too many rules to compare them with every MTP module")
    return sum(quantisation.keeps_out(module) for module in modules) / len(modules)


def _missing(shape: Shape, grouped: Iterable[tuple[Tensor, Group]], own: list[Tensor]) -> tuple[str, ...]:
    """Modules of the last attention layer that no MTP layer has, experts taken as one, norms left out."""
    numbers = [number for number, kind in enumerate(shape.layers) if kind in ("full", "mla", "sliding")]
    if not numbers or not own:
        return ()
    inside = f".{numbers[-1]}."
    decoder = [tensor.name for tensor, group in grouped if inside in tensor.name and group in ("experts", "rest")]
    wanted = {_within(name, numbers[-1]) for name in decoder}
    heads = {_within(tensor.name, None) for tensor in own}
    return tuple(sorted(name for name in wanted - heads - {""} if "norm" not in name))


def _within(name: str, layer: int | None) -> str:
    """A module's name inside its layer (``self_attn.q_proj``, ``mlp.experts``); empty outside layers or of another layer."""
    found = re.search(r"(?:^|\.)(?:layers|mtp_layers|mtp_block|h)\.(\d{1,6})\.(.+)$", name)
    if not found or (layer is not None and int(found.group(1)) != layer):
        return ""
    module = split_name(found.group(2))[0].replace("mtp_block.", "", 1)
    return module.split(".experts")[0] + ".experts" if ".experts" in module else module
