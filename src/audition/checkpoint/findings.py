"""What to say about a checkpoint before it is served. Pure.

What must not live here: reading, formulas, flags of vLLM versions, interactions between features (the check room's).
"""

from __future__ import annotations

from audition.checkpoint.facts import Facts
from audition.checkpoint.memory_findings import memory_findings
from audition.checkpoint.predict import Prediction, predict
from audition.checkpoint.problem import Problem, plain
from audition.checkpoint.serving import Serving, Speculation
from audition.units import NoData

_ZERO = "https://github.com/z-lab/paroquant/issues/42"
_VLLM = "https://github.com/vllm-project/vllm/issues/"
_MISLOADS = f"{_VLLM}47828 {_VLLM}39475 {_VLLM}58807"
_OWN_DRAFTER = frozenset({"eagle", "eagle3", "medusa", "mlp_speculator", "draft_model", "dflash", "custom_class"})
_NO_DRAFTER = frozenset({"ngram", "ngram_gpu", "suffix", "[ngram]"})


def findings(
    facts: Facts,
    *,
    speculation: Speculation | None = None,
    serving: Serving | None = None,
    prediction: Prediction | None = None,
) -> list[Problem]:
    """Everything worth saying: the checkpoint itself, its MTP heads against the speculation asked for, memory and context.

    ``serving`` carries its own speculation; give ``speculation`` alone when the GPUs are not known, and memory is left out.
    ``prediction``: what ``predict(facts, serving)`` gave, when the caller has it already.
    """
    found = _checkpoint(facts)
    found += speculation_findings(facts, serving.speculation if serving else speculation)
    if serving:
        found += memory_findings(facts, serving, prediction or predict(facts, serving))
    return found


def _checkpoint(facts: Facts) -> list[Problem]:
    """The checkpoint itself: quantisation that cannot be judged, tensors that could not be read."""
    found = []
    if isinstance(facts.weights, NoData):
        found.append(Problem("warning", "tensors-unknown", f"The tensors were not looked at: {facts.weights.reason}."))
    if facts.quantisation.method == "unknown":
        text = "The checkpoint has a quantisation config that names no method, so what it leaves alone is unknown."
        found.append(Problem("warning", "quantisation-unknown", text))
    if facts.quantisation.unreadable:
        first = plain(facts.quantisation.unreadable[0])
        text = f"The quantisation config has {len(facts.quantisation.unreadable)} patterns that are not understood: {first}."
        found.append(Problem("warning", "quantisation-pattern", text))
    return found


def speculation_findings(facts: Facts, speculation: Speculation | None) -> list[Problem]:
    """The MTP heads against what is asked of them. ``None``: no speculation."""
    if speculation is None:
        if not isinstance(facts.mtp.tensors, NoData) and facts.mtp.tensors:
            return [Problem("ok", "mtp-unused", f"The checkpoint ships {_heads(facts)}, which this arm does not load.")]
        return []
    if not speculation.by_mtp:
        return _other_method(speculation)
    if isinstance(facts.mtp.tensors, NoData):
        text = f"Whether the MTP heads are there is not known: {facts.mtp.tensors.reason}. Without them the arm accepts no draft."
        return [Problem("warning", "mtp-unknown", text, "Look into the folder of the real weights before the window.", _ZERO)]
    if facts.mtp.tensors == 0:
        return [_absent(facts)]
    found = _declared(facts, speculation)
    found += _stored(facts)
    if not any(problem.level != "ok" for problem in found):
        text = f"MTP: {_heads(facts)}, {_kept(facts)}."
        found.insert(0, Problem("ok", "mtp-present", text))
    return found


def _other_method(speculation: Speculation) -> list[Problem]:
    if speculation.method in _NO_DRAFTER:
        return [Problem("ok", "no-drafter-needed", f"{speculation.method} drafts without weights of its own.")]
    if speculation.method in _OWN_DRAFTER:
        if not speculation.model:
            text = f"{speculation.method} needs a drafter of its own, and the speculative config names none."
            return [Problem("blocking", "drafter-missing", text, 'Add "model" to --speculative-config.')]
        text = f"{speculation.method} drafts with {speculation.model}, a checkpoint of its own that was not looked at here."
        return [Problem("ok", "drafter-separate", text)]
    return [
        Problem(
            "warning", "method-unknown", f"The speculative method {speculation.method} is not known here, so nothing was checked."
        )
    ]


def _absent(facts: Facts) -> Problem:
    """No MTP tensor at all: the worst case, because nothing at boot says so."""
    declared = "" if isinstance(facts.mtp.declared, NoData) else f", though its config says {facts.mtp.key}: {facts.mtp.declared}"
    text = f"The checkpoint ships no MTP tensor{declared}. "
    if isinstance(facts.mtp.declared, NoData):
        text += (
            "Its config declares none either: vLLM refuses the method at boot, and an engine that does not would boot with "
            "0 % acceptance."
        )
    elif facts.quantisation.none:
        text += (
            "vLLM checks for missing weights in unquantised checkpoints alone; where that check does not cover the drafter, it "
            "would boot with 0 % acceptance."
        )
    else:
        text += "vLLM does not check quantised checkpoints for missing weights: it would boot with 0 % acceptance."
    hint = "Take a checkpoint that ships its mtp.* tensors, or drop --speculative-config."
    if facts.mtp.stray:
        lying = _few(facts.mtp.stray)
        text += f" MTP tensors lie in {lying}, but model.safetensors.index.json does not name that file, so vLLM skips it."
        hint = "Add the tensors of that file to the weight_map of model.safetensors.index.json, or take another checkpoint."
    return Problem("blocking", "mtp-absent", text, hint, _ZERO)


def _declared(facts: Facts, speculation: Speculation) -> list[Problem]:
    """What the config declares against the tensors and against k."""
    declared, heads, k = facts.mtp.declared, len(facts.mtp.heads), speculation.k
    if isinstance(declared, NoData) or declared == 0:
        said = "declares no MTP layer" if isinstance(declared, NoData) else f"says {facts.mtp.key}: 0"
        text = f"The checkpoint ships {_heads(facts)}, but its config {said}: vLLM refuses the method mtp at boot."
        return [Problem("blocking", "mtp-not-declared", text, "Restore the key in config.json from the original model.")]
    found = []
    if heads < declared:
        text = f"The config declares {declared} MTP layers, and tensors of {heads} are there: the others would draft noise."
        found.append(Problem("blocking", "mtp-heads-missing", text, "Take a complete checkpoint.", _ZERO))
    if facts.mtp.missing:
        text = f"The MTP layer lacks what a decoder layer has: {_few(facts.mtp.missing)}. Its drafts would hardly be accepted."
        found.append(Problem("warning", "mtp-incomplete", text, "Compare with the original model's tensors.", _ZERO))
    if k > declared and k % declared:
        text = f"k = {k} is no multiple of the {declared} MTP layers: vLLM refuses it at boot."
        found.append(Problem("blocking", "mtp-k", text, f"Take k = {k // declared * declared or declared}."))
    elif k > declared:
        heads_text = _plural(declared, "MTP head")
        text = f"k = {k} with {heads_text}: each is used {k // declared} times a step, so later drafts are accepted less often."
        found.append(Problem("ok", "mtp-reused", text, "Compare with a smaller k."))
    return found


def _stored(facts: Facts) -> list[Problem]:
    """How the MTP tensors are stored against what the quantisation config says about them."""
    mtp = facts.mtp
    found = []
    if mtp.quantised_modules:
        all_of = "The MTP layers are quantised" if not mtp.plain_modules else "Some modules of the MTP layers are quantised"
        text = f"{all_of} ({facts.quantisation.layout}): {_few(mtp.quantised_modules)}. Such heads mis-load or lose acceptance."
        hint = "Prefer a checkpoint that keeps MTP out of quantisation, and watch the acceptance of the first leg."
        found.append(Problem("warning", "mtp-quantised", text, hint, _MISLOADS))
    if isinstance(mtp.kept_out, NoData):
        return found
    plain = [name for name in mtp.plain_modules if not facts.quantisation.keeps_out(name)]
    if plain:
        text = (
            f"MTP modules are stored in full precision, but the quantisation config does not leave them out: {_few(plain)}. "
            "An engine that believes the config builds quantised modules and finds no weights for them."
        )
        hint = "Check that this vLLM loads them: acceptance above 0 in the first leg; else add them to the ignore list."
        found.append(Problem("warning", "mtp-not-ignored", text, hint, _MISLOADS))
    ignored = [name for name in mtp.quantised_modules if facts.quantisation.keeps_out(name)]
    if ignored:
        text = f"MTP modules are stored quantised, but the quantisation config says they are not: {_few(ignored)}."
        found.append(Problem("warning", "mtp-ignored-but-quantised", text, "Take another checkpoint.", _MISLOADS))
    return found


def _heads(facts: Facts) -> str:
    size = facts.mtp.size_bytes
    weight = "" if isinstance(size, NoData) else f" ({size / 2**30:.2f} GiB)" if size >= 2**26 else f" ({size / 2**20:.1f} MiB)"
    return f"{_plural(len(facts.mtp.heads), 'MTP head')}{weight}"


def _kept(facts: Facts) -> str:
    return "kept out of quantisation" if not facts.quantisation.none else "not quantised, like the rest"


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _few(names: tuple[str, ...] | list[str]) -> str:
    shown = ", ".join(plain(name[:120]) for name in names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3} more"
