"""Whatever is done to a valid spike file, reading it gives a spike or one BadInput: never another error."""

import string
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from audition.errors import BadInput
from audition.spike.document import read_document
from audition.spike.model import Spike
from audition.spike.parse import parse_spike
from audition.spike.reference import reference_text
from spike.spike_texts import BASE

DATA: dict[str, Any] = read_document(reference_text()).data

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**20), 10**20),
    st.floats(),
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.sampled_from(
        ["candidate", "production", "compose", "single", "users-16", "ttft", "canary",
         "5m", "-1s", "1e400s", "9" * 400 + "s", "'", "\\",
         "http://[::1", "http://a:b", "http://h:99999", "2026-02-30T00:00:00Z", "9999-12-31T23:59:59-23:59",
         "0001-01-01T00:00:00+23:59",
         "$HOME", "~x", ""]
    ),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3), max_leaves=6
)


def places(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    rows = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        rows += places(inner, (*path, key))
    return rows


PLACES = places(DATA)
NAMES = sorted({str(part) for path in PLACES for part in path if isinstance(part, str)})


def mutate(data: Any, path: tuple[str | int, ...], how: str, value: Any, name: str) -> Any:
    """A copy of the data with the value at ``path`` replaced, removed, doubled, wrapped in a list, or its key renamed."""
    part, rest = path[0], path[1:]
    copy: Any = dict(data) if isinstance(data, dict) else list(data)
    if rest:
        copy[part] = mutate(copy[part], rest, how, value, name)
    elif how == "remove":
        del copy[part]
    elif how == "rename" and isinstance(copy, dict):
        copy[name] = copy.pop(part)
    elif how == "double" and isinstance(copy, list):
        copy.append(copy[int(part)])
    elif how == "wrap":
        copy[part] = [copy[part]]
    else:
        copy[part] = value
    return copy


def reads_or_is_bad_input(text: str) -> bool:
    try:
        spike = parse_spike(text, "spike.yaml")
    except BadInput as error:
        said, code = str(error), error.exit_code
    else:
        assert isinstance(spike, Spike)
        assert spike.production.role == "production"
        assert spike.candidate.role == "candidate"
        assert all(spike.arm(leg.arm) for leg in spike.planned_legs())
        return True
    assert said.startswith("spike.yaml")
    assert code == 2
    return False


MUTATION = st.tuples(
    st.sampled_from(PLACES), st.sampled_from(["replace", "remove", "rename", "double", "wrap"]), VALUES, st.sampled_from(NAMES)
)


@settings(max_examples=100, deadline=None)
@given(st.lists(MUTATION, min_size=1, max_size=3))
def test_any_change_of_the_data_gives_a_spike_or_bad_input(mutations: list[tuple[Any, str, Any, str]]) -> None:
    data: Any = DATA
    for path, how, value, name in mutations:
        try:
            data = mutate(data, path, how, value, name)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError):
            continue  # an earlier mutation took this place away
    reads_or_is_bad_input(yaml.safe_dump(data, allow_unicode=True, sort_keys=False))


@settings(max_examples=250, deadline=None)
@given(
    st.integers(0, len(BASE)),
    st.integers(0, 12),
    st.text(st.one_of(st.sampled_from(string.punctuation + " \t\n\r\0"), st.characters()), max_size=8),
)
def test_any_change_of_the_text_gives_a_spike_or_bad_input(at: int, cut: int, put: str) -> None:
    reads_or_is_bad_input(BASE[:at] + put + BASE[at + cut :])


@settings(max_examples=200, deadline=None)
@given(st.text(st.one_of(st.sampled_from(":-{}[]&*!|>'\"%@`,?#<~ \n\tax"), st.characters()), max_size=60))
def test_any_text_gives_bad_input(text: str) -> None:
    assert not reads_or_is_bad_input(text)


def test_the_unchanged_data_is_a_spike() -> None:
    assert reads_or_is_bad_input(yaml.safe_dump(DATA, sort_keys=False))
