"""What was predicted beside what the engine reported, after a run. Pure.

What must not live here: predicting, reading logs (``audition.observe.logs`` does; its figures come in as plain data).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from audition.checkpoint.predict import Prediction
from audition.checkpoint.serving import GIB, Estimate, exactly
from audition.units import NoData

_NOT_LOGGED = NoData("the engine did not report it")


@dataclass(frozen=True)
class Reported:
    """What an engine said about itself at boot; of one engine, per GPU, as in its log lines.

    ``logged_tokens``: the figure behind "KV cache size", by whichever formula its version has.
    """

    weights_gib: float | NoData = _NOT_LOGGED
    kv_memory_gib: float | NoData = _NOT_LOGGED
    block_tokens: float | NoData = _NOT_LOGGED
    concurrency: float | NoData = _NOT_LOGGED
    capacity_tokens: float | NoData = _NOT_LOGGED
    logged_tokens: float | NoData = _NOT_LOGGED


@dataclass(frozen=True)
class Comparison:
    """One figure: predicted and reported in ``unit``. ``ratio``: reported / expected. ``inside``: within the predicted range."""

    name: str
    unit: str
    predicted: Estimate | NoData
    reported: float | NoData
    ratio: float | NoData
    inside: bool | NoData


def compare(prediction: Prediction, reported: Reported) -> tuple[Comparison, ...]:
    """Each figure that both can have, in a fixed order. A figure that either lacks keeps the reason."""
    layout = prediction.layout
    block = layout if isinstance(layout, NoData) else exactly(layout.block_tokens)
    return (
        _row("weights", "GiB per GPU", _gib(prediction.weights_bytes), reported.weights_gib),
        _row("kv_memory", "GiB per GPU", _gib(prediction.kv_memory_bytes), reported.kv_memory_gib),
        _row("block", "tokens", block, reported.block_tokens),
        _row("concurrency", "requests", prediction.concurrency, reported.concurrency),
        _row("capacity", "tokens", prediction.capacity_tokens, reported.capacity_tokens),
        _row("logged", "tokens", prediction.logged_tokens, reported.logged_tokens),
    )


def reported_from(facts: Mapping[str, Any]) -> Reported:
    """What a leg's facts (``leg.json``) hold of this; an absent key, or a value that is no number, is ``NoData``."""
    markers = facts.get("boot_markers")
    found = markers if isinstance(markers, Mapping) else {}
    return Reported(
        weights_gib=_last(found.get("weights_gib")),
        kv_memory_gib=_last(found.get("kv_memory_gib")),
        block_tokens=_last(found.get("attention_block_tokens")),
        concurrency=_number(facts.get("max_concurrency")),
        capacity_tokens=_number(facts.get("kv_capacity_tokens")),
        logged_tokens=_number(facts.get("kv_tokens_logged")),
    )


def _last(values: Any) -> float | NoData:
    return _number(values[-1]) if isinstance(values, list) and values else _NOT_LOGGED


def _number(value: Any) -> float | NoData:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return _NOT_LOGGED
    try:
        return float(value)
    except ValueError:
        return NoData(f"the engine reported {value[:40]!r}" if isinstance(value, str) else "no number")


def _gib(estimate: Estimate | NoData) -> Estimate | NoData:
    return estimate if isinstance(estimate, NoData) else estimate.times(1 / GIB)


def _row(name: str, unit: str, predicted: Estimate | NoData, reported: float | NoData) -> Comparison:
    if isinstance(predicted, NoData):
        return Comparison(name, unit, predicted, reported, predicted, predicted)
    if isinstance(reported, NoData):
        return Comparison(name, unit, predicted, reported, reported, reported)
    ratio = reported / predicted.expected if predicted.expected > 0 else NoData("nothing was expected")
    return Comparison(name, unit, predicted, reported, ratio, predicted.holds(reported))
