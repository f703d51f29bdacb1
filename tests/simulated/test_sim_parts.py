"""The pure parts of the simulated server: settings, faults, arguments, tokens, answers, schema, KV, timing."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from audition.simulated.answers import Ask, Script, arithmetic, choose_tools, compose, exact_answer
from audition.simulated.arguments import ArgumentsError, SpeculativeError, parse_arguments
from audition.simulated.bootlog import kv_lines
from audition.simulated.faults import FAULT_KINDS, FAULT_PARAMETERS, FaultError, parse_faults
from audition.simulated.kv import KvCache, PrefixCache
from audition.simulated.recall import recall
from audition.simulated.schema import instance
from audition.simulated.serving import prefix_caching
from audition.simulated.settings import Settings, SettingsError, load_settings, parse_settings
from audition.simulated.timing import accepted_drafts, step_seconds
from audition.simulated.tokens import render_chat, split_tokens
from audition.simulated.vocabulary import ENGLISH, FRENCH, language_of


def ask(**values: object) -> Ask:
    base = {"last_user": "Tell me a story.", "thinking": False, "reasoning_parsed": True, "max_tokens": 4096}
    return Ask(**{**base, **values})  # type: ignore[arg-type]


def whole(script: Script, at_once: int = 7, limit: int = 100_000) -> list[tuple[str, str, int]]:
    parts: list[tuple[str, str, int]] = []
    while not script.exhausted and sum(part[2] for part in parts) < limit:
        parts += script.take(at_once)
    return parts


def text(parts: list[tuple[str, str, int]], kind: str = "content") -> str:
    return "".join(part[1] for part in parts if part[0] == kind)


def repeated_share(words: str, size: int = 4) -> float:
    tokens = words.split()
    grams = [tuple(tokens[at : at + size]) for at in range(len(tokens) - size + 1)]
    return 1 - len(set(grams)) / len(grams)


def test_settings_have_defaults_and_come_inline_or_from_a_file(tmp_path: Path) -> None:
    assert load_settings({}) == Settings()
    assert load_settings({"AUDITION_SIM": '{"seed": 7, "gpus": [0, 1]}'}).gpus == (0, 1)
    path = tmp_path / "sim.json"
    path.write_text('{"version": "0.28.0"}', encoding="utf-8")
    assert load_settings({"AUDITION_SIM": str(path)}).release == (0, 28, 0)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"sped": 1}, "unknown key 'sped'"),
        ({"boot_s": "fast"}, "boot_s must be a number"),
        ({"park": 1}, "park must be true or false"),
        ({"kv_tokens": 0}, "kv_tokens must be above zero"),
        ({"acceptance": [0.5, 0.6]}, "non-increasing"),
        ({"acceptance": []}, "non-increasing"),
        ({"faults": [{"kind": "fire"}]}, "unknown fault kind 'fire'"),
        ({"version": "nightly"}, "version must look like"),
        ([], "must be a JSON object"),
    ],
)
def test_bad_settings_name_the_key(values: object, expected: str) -> None:
    with pytest.raises(SettingsError, match=expected):
        parse_settings(values)


def test_settings_that_are_not_json_say_so(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="not JSON"):
        load_settings({"AUDITION_SIM": "{seed: 1}"})
    with pytest.raises(SettingsError, match="neither inline JSON nor a readable file"):
        load_settings({"AUDITION_SIM": str(tmp_path / "absent.json")})


def test_every_fault_kind_has_a_sentence_and_parameters() -> None:
    assert set(FAULT_KINDS) == set(FAULT_PARAMETERS)
    assert all(sentence.endswith(".") for sentence in FAULT_KINDS.values())
    assert [fault.kind for fault in parse_faults([{"kind": kind} for kind in FAULT_KINDS])] == list(FAULT_KINDS)


@pytest.mark.parametrize(
    "entry",
    ["oom", {"kind": "oom", "when": 1}, {"kind": "http-5xx", "share": "half"}, {"kind": "die-mid-leg", "mode": "slow"}],
)
def test_bad_faults_are_refused(entry: object) -> None:
    with pytest.raises(FaultError):
        parse_faults([entry])


def test_arguments_of_the_reference_candidate_are_read() -> None:
    arguments = parse_arguments(
        ["--model", "m", "--served-model-name", "a", "b", "--tensor-parallel-size=2", "--kv-cache-dtype", "fp8",
         "--max-model-len", "131072", "-sc", '{"method":"mtp","num_speculative_tokens":3}', "--no-enable-prefix-caching",
         "--enable-expert-parallel", "--max_num_seqs", "16", "-cc.mode=none", "-O3", "--api-key", "k",
         "--override-generation-config", '{"temperature":0.6}', "--port", "9", "--limit-mm-per-prompt", '{"image":4}'],
        {},
    )  # fmt: skip
    assert arguments.model == "m"
    assert arguments.served_names == ("a", "b")
    assert (arguments.tensor_parallel_size, arguments.max_model_len, arguments.max_num_seqs) == (2, 131072, 16)
    assert arguments.speculative is not None
    assert arguments.speculative.tokens == 3
    assert arguments.prefix_caching is False
    assert arguments.api_keys == ("k",)
    assert arguments.temperature == 0.6
    assert arguments.given["compilation_config"] == {"mode": "none"}
    assert "api_key" not in arguments.given  # never printed


def test_short_forms_and_environment() -> None:
    arguments = parse_arguments(["m", "-tp", "2", "--spec-method", "mtp", "--spec-tokens", "2"], {"VLLM_API_KEY": "s"})
    assert (arguments.tensor_parallel_size, arguments.api_keys, arguments.served_names) == (2, ("s",), ("m",))
    assert arguments.speculative is not None
    assert arguments.speculative.tokens == 2
    assert parse_arguments(["m", "--max-model-len", "32k"], {}).max_model_len == 32_000
    assert parse_arguments(["m", "--speculative-config", "null"], {}).speculative is None


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["m", "--no-such-flag", "3"], "unrecognized arguments: --no-such-flag 3"),
        (["m", "-sc", "{bad}"], "argument --speculative-config/-sc: Value {bad} cannot be converted"),
        (["m", "--port", "x"], "invalid int value: 'x'"),
        (["m", "--port"], "argument --port: expected one argument"),
        (["m", "n"], "unrecognized arguments: n"),
    ],
)
def test_wrong_arguments_are_refused_in_vllms_words(words: list[str], expected: str) -> None:
    with pytest.raises(ArgumentsError) as error:
        parse_arguments(words, {})
    assert expected in str(error.value)


def test_speculative_configuration_is_checked() -> None:
    with pytest.raises(SpeculativeError, match="Unexpected keyword argument"):
        parse_arguments(["m", "-sc", '{"num_spec_tokens": 3}'], {})
    rates = {"rejection_sample_method": "synthetic", "synthetic_acceptance_rates": [0.9, 0.8], "num_speculative_tokens": 2}
    speculative = parse_arguments(["m", "-sc", json.dumps(rates)], {}).speculative
    assert speculative is not None
    assert speculative.synthetic_rates == (0.9, 0.8)


def test_tokens_join_to_the_text_and_special_markers_are_one() -> None:
    words = "Hello,  wörld! unbelievable\n\n<|im_end|> 12345678 9"
    assert "".join(split_tokens(words)) == words
    assert split_tokens("<|im_start|>user\n") == ["<|im_start|>", "user", "\n"]
    assert split_tokens("unbelievable") == ["unbeliev", "able"]
    one = len(split_tokens(render_chat([{"role": "user", "content": "Hello"}], None, False)))
    two = len(split_tokens(render_chat([{"role": "user", "content": "Hello there"}], None, False)))
    assert two == one + 1


def test_an_answer_depends_on_seed_and_prompt_only() -> None:
    one = whole(compose(Settings(), ask(), "prompt"), 1)
    four = whole(compose(Settings(), ask(), "prompt"), 4)
    assert text(one) == text(four)
    assert sum(part[2] for part in one) == sum(part[2] for part in four)
    assert text(one) != text(whole(compose(Settings(), ask(), "other prompt")))
    assert text(one) != text(whole(compose(Settings(seed=1), ask(), "prompt")))


def test_prose_hardly_repeats_itself_and_degenerate_text_does() -> None:
    prose = whole(compose(Settings(), ask(ignore_eos=True), "long"), 50, 4000)
    assert repeated_share(text(prose)) < 0.02
    assert "".join(split_tokens(text(prose))) == text(prose)
    broken = whole(compose(Settings(), ask(), "long", degenerate=True), 50, 500)
    assert repeated_share(text(broken)) > 0.9


def test_thinking_comes_first_and_the_ends_count_as_tokens() -> None:
    parts = whole(compose(Settings(), ask(thinking=True), "p"))
    kinds = [part[0] for part in parts]
    assert kinds.index("content") > 0
    assert kinds == sorted(kinds, reverse=True)  # reasoning, then content
    unparsed = whole(compose(Settings(), ask(thinking=True, reasoning_parsed=False), "p"))
    assert "</think>" in text(unparsed)


def test_min_tokens_lengthens_a_short_answer() -> None:
    parts = whole(compose(Settings(), ask(last_user="What is 2 + 2?", min_tokens=64), "p"))
    assert sum(part[2] for part in parts) == 64


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("What is 17 + 25?", "17 + 25 = 42."),
        ("What is 17 + 25? Answer with the number only.", "42"),
        ("Compute 12 * 12, just the number", "144"),
        ("Reply with exactly: blue harbour 7", "blue harbour 7"),
        ('Answer exactly "yes", nothing else.', "yes"),
        ("Reply with exactly the word pineapple.", "pineapple"),
        ("What is the capital of France?", "Paris"),
        ("Hello there", None),
    ],
)
def test_prompts_with_one_right_answer_get_it(prompt: str, answer: str | None) -> None:
    assert exact_answer(prompt, {}) == answer


def test_a_fact_stated_earlier_is_recalled() -> None:
    notes = "\n".join(f"Note {n}: shelf {n} holds {n * 3} letters." for n in range(200))
    fact = "Note: the code word for the north archive is marigold-58."
    question = "Which code word is given in the notes above for the north archive? Answer with the code word only."
    assert recall(f"{notes}\n{fact}\n{notes}\n\n{question}") == "marigold-58"
    assert recall("My cat is called Biscuit and is shy.\nWhat is my cat called? Answer with the name only.") == "Biscuit"
    assert recall("My dog is called Rex.\nWhat is the capital of Peru? Answer with one word only.") is None
    assert recall("My dog is called Rex. Tell me a story.") is None


def test_french_questions_get_french_words() -> None:
    assert language_of("En cinq phrases, décris ce que l'on voit dans un village.") is FRENCH
    assert language_of("Translate into French: The last train is late.") is ENGLISH


def test_configured_answers_come_first() -> None:
    assert exact_answer("What is 1 + 1? (probe 9)", {"PROBE 9": "two"}) == "two"
    assert arithmetic("3 / 0") == "Division by zero has no answer."


def test_tools_are_chosen_by_the_prompt() -> None:
    def tool(name: str, properties: dict[str, object]) -> dict[str, object]:
        return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}

    tools = [tool("get_weather", {"city": {"type": "string"}}), tool("add", {"a": {"type": "integer"}})]
    assert choose_tools(tools, "auto", "What is the weather in Oslo?") == [("get_weather", '{"city": "Oslo"}')]
    assert choose_tools(tools, "auto", "Good morning") == []
    assert choose_tools(tools, "required", "Good morning")[0][0] == "get_weather"
    assert choose_tools(tools, {"type": "function", "function": {"name": "add"}}, "7 please") == [("add", '{"a": 7}')]


def test_schema_instances_have_the_asked_shape() -> None:
    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "minLength": 3},
            "age": {"type": "integer", "minimum": 18},
            "kind": {"enum": ["cat", "dog"]},
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 2},
            "inner": {"$ref": "#/$defs/inner"},
        },
        "$defs": {"inner": {"type": "object", "properties": {"ok": {"type": "boolean"}}}},
    }
    value = instance(schema, "a dog of 5 years in Bergen")
    assert value["kind"] == "dog"
    assert value["age"] == 18
    assert value["name"] == "Bergen"
    assert len(value["tags"]) == 2
    assert value["inner"] == {"ok": True}


def test_prefix_cache_counts_whole_blocks_and_mtp_loses_one() -> None:
    prompt = " ".join(["word"] * 100)
    for drop, expected in ((False, 96), (True, 80)):
        cache = PrefixCache(16, 1000, drop)
        hashes = cache.hashes(prompt)
        assert cache.lookup(hashes, 100) == 0
        cache.remember(hashes)
        assert cache.lookup(hashes, 100) == expected
    short = PrefixCache(16, 1000, False)
    hashes = short.hashes(" ".join(["word"] * 96))
    short.remember(hashes)
    assert short.lookup(hashes, 96) == 80  # at least one token is always computed


def test_prefix_cache_forgets_the_oldest() -> None:
    cache = PrefixCache(16, 6, False)
    first, second = cache.hashes(" one" * 96), cache.hashes(" two" * 96)
    cache.remember(first)
    cache.remember(second)
    assert cache.lookup(first, 96) == 0
    assert cache.lookup(second, 96) == 80


@pytest.mark.parametrize(("version", "lines"), [("0.20.0", 2), ("0.27.1", 2), ("0.28.0", 1)])
def test_kv_size_stands_on_two_lines_then_on_one(version: str, lines: int) -> None:
    settings = Settings(version=version, kv_tokens=322_000, kv_logged_tokens=2_030_000)
    texts = [line.text for line in kv_lines(settings, 32_768)]
    assert len(texts) == lines
    logged = "2,030,000" if version == "0.20.0" else "322,000"  # up to 0.20.0 the figure came from another formula
    assert ", ".join(texts) == (f"GPU KV cache size: {logged} tokens, Maximum concurrency for 32,768 tokens per request: 9.83x")


@pytest.mark.parametrize(
    ("version", "flags", "expected"),
    [("0.27.1", [], False), ("0.27.1", ["--enable-prefix-caching"], True), ("0.28.0", [], True),
     ("0.28.0", ["--no-enable-prefix-caching"], False)],
)  # fmt: skip
def test_prefix_caching_default_follows_the_release(version: str, flags: list[str], expected: bool) -> None:
    assert prefix_caching(parse_arguments(["m", *flags], {}), Settings(version=version)) is expected


def test_kv_blocks() -> None:
    cache = KvCache(100, 16)
    assert (cache.total, cache.blocks_for(1), cache.blocks_for(16), cache.blocks_for(17)) == (6, 1, 1, 2)


def test_step_time_follows_the_stated_formula() -> None:
    settings = Settings(step_per_ktoken_ms=0.5)
    expected = 7.6 + 0.73 * 4 + 0.5 * 2 + 3 * (0.6 + 0.2 * 4) + 1000 * 80 / 8000
    assert step_seconds(settings, 4, 2000, 80, 3) == pytest.approx(expected / 1000)
    assert step_seconds(settings, 0, 0, 0, 3) == pytest.approx(0.0076)


def test_default_timing_is_the_reference_production() -> None:
    settings = Settings()
    assert 1 / step_seconds(settings, 1, 1000, 0, 0) == pytest.approx(120, rel=0.01)
    assert 16 / step_seconds(settings, 16, 16_000, 0, 0) == pytest.approx(829, rel=0.01)


def test_acceptance_is_unconditional_per_position() -> None:
    rates, draws, rng = (0.85, 0.70, 0.55), 20_000, Random(1)
    accepted = [accepted_drafts(rng.random(), rates) for _ in range(draws)]
    for position, rate in enumerate(rates):
        assert sum(number > position for number in accepted) / draws == pytest.approx(rate, abs=0.02)
