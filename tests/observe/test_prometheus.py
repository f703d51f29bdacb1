"""Metrics text of all versions in one form; differences; restarts."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audition.observe.prometheus import CounterDifference, CounterReset, Snapshot, difference, read_snapshot, samples

DATA = Path(__file__).parents[1] / "data"


def capture(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def test_a_capture_of_vllm_0_24() -> None:
    snapshot = read_snapshot(capture("vllm-0.24-h200/mtp.metrics.txt"))
    assert snapshot.counters["spec_decode_num_drafts"] == 10967
    assert snapshot.counters["spec_decode_num_draft_tokens"] == 32901
    assert snapshot.counters["spec_decode_num_accepted_tokens"] == 22910
    per_position = [snapshot.counters[f"spec_decode_num_accepted_tokens_per_pos[{n}]"] for n in range(3)]
    assert per_position == [9269, 7634, 6007]
    assert sum(per_position) == snapshot.counters["spec_decode_num_accepted_tokens_per_pos"]
    assert snapshot.counters["request_success"] == snapshot.counters["request_success[length]"] == 134
    assert snapshot.counters["generation_tokens"] == 33840
    assert snapshot.counters["request_prompt_tokens_count"] == 134
    assert snapshot.gauges["num_requests_running"] == 0
    assert "kv_cache_usage_perc" in snapshot.gauges
    assert snapshot.info["cache_config_info"]["cache_dtype"] == "fp8"
    assert snapshot.process_started == pytest.approx(1.79609984393e9)
    assert not any(name.endswith(("_created", "_bucket")) for name in {**snapshot.counters, **snapshot.gauges})


def test_the_difference_of_two_captures_of_vllm_0_32() -> None:
    before, after = (read_snapshot(capture(f"vllm-0.32-cpu/real_mtp3.metrics.{when}.txt")) for when in ("before", "after"))
    change = difference(before, after)
    assert isinstance(change, CounterDifference)
    assert change.values["generation_tokens"] == 1248
    assert change.values["request_success"] == 26
    assert change.values["spec_decode_num_accepted_tokens"] == change.values["spec_decode_num_draft_tokens"] == 936
    # `iteration_tokens_total` is a histogram whose name ends like a counter's
    assert change.values["iteration_tokens_total_count"] == 171


def test_readings_of_two_processes_are_a_restart() -> None:
    one = read_snapshot(capture("vllm-0.32-cpu/real_mtp3.metrics.after.txt"))
    other = read_snapshot(capture("vllm-0.32-cpu/real_nospec_prefix.metrics.after.txt"))
    assert isinstance(difference(one, other), CounterReset)


def exposition(name: str, *rows: tuple[str, float], kind: str = "counter") -> str:
    return f"# TYPE {name} {kind}\n" + "".join(f"{name}{{{labels}}} {value}\n" for labels, value in rows)


def test_engines_are_summed_and_shares_are_not() -> None:
    text = exposition("vllm:generation_tokens_total", ('engine="0",model_name="m"', 3), ('engine="1",model_name="m"', 4))
    text += exposition("vllm:kv_cache_usage_perc", ('engine="0"', 0.25), ('engine="1"', 0.5), kind="gauge")
    text += exposition("vllm:num_requests_running", ('engine="0"', 2), ('engine="1"', 1), kind="gauge")
    snapshot = read_snapshot(text)
    assert snapshot.counters == {"generation_tokens": 7}
    assert snapshot.gauges == {"kv_cache_usage_perc": 0.5, "num_requests_running": 3}


@pytest.mark.parametrize("both", [True, False])
def test_old_names_become_the_new_ones_and_are_not_counted_twice(both: bool) -> None:
    text = exposition("vllm:gpu_prefix_cache_hits_total", ('engine="0"', 5))
    text += exposition("vllm:gpu_cache_usage_perc", ('engine="0"', 0.5), kind="gauge")
    if both:
        text += exposition("vllm:prefix_cache_hits_total", ('engine="0"', 5))
        text += exposition("vllm:kv_cache_usage_perc", ('engine="0"', 0.5), kind="gauge")
    snapshot = read_snapshot(text)
    assert snapshot.counters == {"prefix_cache_hits": 5}
    assert snapshot.gauges == {"kv_cache_usage_perc": 0.5}


def test_labels_with_quotes_commas_and_braces() -> None:
    rows = list(samples('vllm:x_total{a="b,\\"c\\"}",d="e\\\\f\\n"} 1.5e1 1700000000\n'))
    assert rows[0].labels == {"a": 'b,"c"}', "d": "e\\f\n"}
    assert rows[0].value == 15
    assert rows[0].kind == "counter"


def test_counters_without_declared_types_are_known_by_their_name() -> None:
    assert read_snapshot('vllm:generation_tokens_total{engine="0"} 4\n').counters == {"generation_tokens": 4}


def snapshot(counters: dict[str, float], started: float | None = None, created: dict[str, float] | None = None) -> Snapshot:
    return Snapshot(counters=counters, process_started=started, created=created or {})


@pytest.mark.parametrize(
    ("before", "after", "word"),
    [
        (snapshot({"a": 5.0}), snapshot({"a": 4.0}), "fell"),
        (snapshot({"a": 5.0}), snapshot({}), "vanished"),
        (snapshot({"a": 0.0}, 100.0), snapshot({"a": 9.0}, 200.0), "started anew"),
        (snapshot({"a": 0.0}, None, {"a_created": 1.0}), snapshot({"a": 9.0}, None, {"a_created": 9.0}), "created anew"),
    ],
)
def test_restarts_are_named(before: Snapshot, after: Snapshot, word: str) -> None:
    change = difference(before, after)
    assert isinstance(change, CounterReset)
    assert word in change.reason


def test_a_counter_that_appears_grew_from_nothing() -> None:
    assert difference(snapshot({"a": 1.0}), snapshot({"a": 1.0, "b[x]": 2.0})) == CounterDifference({"a": 0.0, "b[x]": 2.0})


@given(st.text(max_size=200))
def test_any_text_can_be_read(text: str) -> None:
    read = read_snapshot(text)
    assert isinstance(difference(read, read), CounterDifference)
