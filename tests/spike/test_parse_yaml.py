"""Reading the file and its YAML: everything that can be wrong before a key of the spike is looked at."""

import os
from pathlib import Path

import pytest

from audition.errors import BadInput
from audition.spike.document import MAX_BYTES, read_document
from audition.spike.parse import load_spike, parse_spike, resolve
from audition.spike.problems import BadSpike
from spike.spike_texts import BASE, changed, only_problem, problems_of


def test_a_valid_file_is_loaded_with_its_place_and_source(tmp_path: Path) -> None:
    path = tmp_path / "spike.yaml"
    path.write_text(BASE)
    loaded = load_spike(path)
    assert loaded.spike.name == "base"
    assert loaded.path == path
    assert loaded.folder == tmp_path
    assert loaded.source == BASE


def test_the_folder_of_a_linked_file_is_where_the_file_really_is(tmp_path: Path) -> None:
    real = tmp_path / "real"
    real.mkdir()
    (real / "spike.yaml").write_text(BASE)
    (tmp_path / "link").symlink_to(real)
    assert load_spike(tmp_path / "link" / "spike.yaml").folder == real


def test_a_byte_order_mark_and_windows_line_ends_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "spike.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + BASE.replace("\n", "\r\n").encode())
    assert load_spike(path).spike.name == "base"
    path.write_bytes(BASE.replace("\n", "\r\n").replace("users: 16", "users: many").encode())
    with pytest.raises(BadSpike) as caught:
        load_spike(path)
    assert [(p.line, p.path) for p in caught.value.problems] == [(18, "workloads[1].users")]


FILES = {
    "missing": (None, "there is no such file"),
    "folder": ("folder", "this is a folder"),
    "binary": (b"\x7fELF\0\0\1", "binary"),
    "utf-16": (BASE.encode("utf-16"), "binary (or UTF-16)"),
    "too long": (b"# " + b"x" * MAX_BYTES, "longer than 256 KiB"),
}


@pytest.mark.parametrize("case", FILES)
def test_a_file_that_is_no_text_gives_one_clear_message(tmp_path: Path, case: str) -> None:
    content, said = FILES[case]
    path = tmp_path / "spike.yaml"
    if content == "folder":
        path.mkdir()
    elif isinstance(content, bytes):
        path.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        load_spike(path)
    assert caught.value.exit_code == 2
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    path = tmp_path / "spike.yaml"
    os.mkfifo(path)
    with pytest.raises(BadInput, match="not a regular file"):
        load_spike(path)


def test_a_file_that_the_system_cannot_read_is_named() -> None:
    with pytest.raises(BadInput, match="/proc/self/mem: the file cannot be read: Input/output error"):
        load_spike(Path("/proc/self/mem"))


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_an_impossible_path_is_bad_input(name: str) -> None:
    with pytest.raises(BadInput):
        load_spike(Path(name))


def test_text_that_is_not_utf_8_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "spike.yaml"
    path.write_bytes(BASE.encode().replace(b"faster?", b"faster, caf\xe9?"))
    with pytest.raises(BadSpike) as caught:
        load_spike(path)
    assert [(p.line, p.text) for p in caught.value.problems] == [(3, "byte 0xE9 is not UTF-8 text")]


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n"])
def test_an_empty_file(text: str) -> None:
    assert only_problem(text).text == "the file is empty"


@pytest.mark.parametrize(
    ("text", "found"), [("- a\n- b\n", "a list"), ("just words\n", "a single value"), ("42\n", "a single value")]
)
def test_a_document_that_is_no_mapping(text: str, found: str) -> None:
    problem = only_problem(text)
    assert problem.text == f"expected a mapping (lines of `key: value`) at the top of the file, found {found}"
    assert problem.line == 1


SYNTAX = [
    # what to change, into what, line, part of the message
    ("  - name: new", "\t- name: new", 9, "a tab stands where YAML wants spaces"),
    ("question: Is", "question: Answer: Is", 3, "a `:` where no key can stand"),
    ("    role: candidate", "  role: candidate", 10, "the line does not fit the ones above"),
    ("name: base", "name: 'base", 2, "the quote opened on line 2 is not closed"),
    ("name: base", "name: @base", 2, "a text cannot begin with @"),
    ("name: base", "name: *base", 2, "no anchor &base stands above the alias *base"),
    ("gates:", "---\ngates:", 19, "found a second one"),
    ("name: base", "name: base\n!!!", 3, "not valid YAML"),
    ("name: base", "name: ba\x07se", 2, "U+0007 is not allowed"),
    ("files: [a.yml]", "files: [a.yml", 7, "not valid YAML"),
    ("gates:", "gates", 19, "not valid YAML"),
]


@pytest.mark.parametrize(("old", "new", "line", "said"), SYNTAX, ids=[case[3] for case in SYNTAX])
def test_a_syntax_error_has_line_column_and_excerpt(old: str, new: str, line: int, said: str) -> None:
    problem = only_problem(changed(old, new))
    assert said in problem.text
    assert problem.line == line
    assert problem.column >= 1
    assert problem.excerpt
    assert f"spike.yaml:{line}: " in problem.render("spike.yaml")


def test_a_key_given_twice() -> None:
    problem = only_problem(changed("    role: candidate", "    role: candidate\n    name: other"))
    assert (problem.line, problem.path) == (11, "arms[1].name")
    assert problem.text == "the key `name` is given twice; the first is on line 9"


def test_a_key_that_is_a_list() -> None:
    problem = only_problem(BASE + "? [a, b]\n: 1\n")
    assert problem.text == "expected a text as a key, found a list or a mapping"
    assert problem.line == 22


@pytest.mark.parametrize("tag", ["!!python/object:os.system", "!mine", "!!int"])
def test_tags_have_no_meaning(tag: str) -> None:
    problem = only_problem(changed("name: base", f"name: {tag} base"))
    assert (problem.line, problem.path) == (2, "name")
    assert "has no meaning in a spike file" in problem.text


TRAPS = {
    "no": "truth value",
    "off": "truth value",
    "On": "truth value",
    "yes": "truth value",
    "22:00": "base 60",
    "0755": "octal",
    "0o17": "octal",
    "1_000": "a number to one YAML reader and a text to the next",
    "0b11": "a number to one YAML reader and a text to the next",
    ".inf": "finite",
    ".nan": "finite",
}


@pytest.mark.parametrize("word", TRAPS)
@pytest.mark.parametrize("key", ["model: m}", "users: 16"])
def test_a_word_that_yaml_readers_take_differently(word: str, key: str) -> None:
    name = key.split(":", maxsplit=1)[0]
    text = BASE.replace(key, f"{name}: {word}" + ("}" if key.endswith("}") else ""))
    problem = only_problem(text)
    assert TRAPS[word] in problem.text
    assert word in problem.text
    assert problem.path in ("arms[0].endpoint.model", "workloads[1].users")
    assert problem.line == (8 if name == "model" else 18)


def test_the_same_words_in_quotes_are_texts() -> None:
    for word in TRAPS:
        spike = parse_spike(changed("question: Is the candidate faster?", f'question: "{word}"'), "x")
        assert spike.question == word


def test_such_words_are_ordinary_keys() -> None:
    text = BASE + "records: {notes: [{file: n.md, heading: h, on: [GO]}]}\n"
    assert parse_spike(text, "x").records.notes[0].on == ["GO"]
    problem = only_problem(changed("name: base", "name: base\noff: 1"))
    assert (problem.line, problem.text) == (3, "unknown key `off`")


def test_numbers_that_are_the_same_everywhere() -> None:
    data = read_document("a: 1e3\nb: -5\nc: 0x1F\nd: 1.5\ne: +7\nf: 0\ng: .5\n").data
    assert data == {"a": 1000.0, "b": -5, "c": 31, "d": 1.5, "e": 7, "f": 0, "g": 0.5}


@pytest.mark.parametrize("number", ["9" * 40, "1e999"])
def test_a_number_beyond_all_use(number: str) -> None:
    problem = only_problem(changed("at_least: 700", f"at_least: {number}"))
    assert (problem.line, problem.path, problem.text) == (20, "gates[0].at_least", "the number is too large")


def test_anchors_aliases_and_merge_keys_work() -> None:
    text = changed("{name: single, users: 1, requests: 8}", "&w {name: single, users: 1, requests: 8}")
    text = changed("{name: many, users: 16, requests: 64}", "{<<: *w, name: many, users: 4}", text)
    many = parse_spike(text, "x").workloads[1]
    assert (many.name, many.users, many.requests) == ("many", 4, 8)


def test_an_error_behind_a_merge_key_has_the_line_where_it_is_written() -> None:
    text = changed("{name: single, users: 1, requests: 8}", "&w {name: single, users: one, requests: 64}")
    text = changed("{name: many, users: 16, requests: 64}", "{<<: *w, name: many}", text)
    assert [(p.line, p.path) for p in problems_of(text)] == [(17, "workloads[0].users"), (17, "workloads[1].users")]


@pytest.mark.parametrize("text", ["a: &x [*x]\n", "a: &x {b: *x}\n", "a: &x\n  <<: *x\n"])
def test_an_alias_that_leads_back_to_itself(text: str) -> None:
    assert any("leads back to itself" in p.text for p in problems_of(text))


def test_an_alias_bomb_is_stopped() -> None:
    rows = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    rows += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    problem = only_problem("\n".join(rows))
    assert "more than 20000 values" in problem.text


@pytest.mark.parametrize("text", ["a: " + "[" * 5000, "a: " + "{b: " * 40 + "1" + "}" * 40])
def test_deep_nesting_is_stopped(text: str) -> None:
    assert "more than 32 levels of nesting" in only_problem(text).text


def test_nesting_that_aliases_deepen_is_stopped() -> None:
    rows = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 60)]
    assert any("levels of nesting once aliases are followed" in p.text for p in problems_of("\n".join(rows)))


def test_resolve_takes_relative_paths_from_the_folder_and_knows_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("PLACE", "/elsewhere")
    assert resolve(tmp_path, "a/b.yml") == tmp_path / "a" / "b.yml"
    assert resolve(tmp_path, "/abs/b.yml") == Path("/abs/b.yml")
    assert resolve(tmp_path, "~/b.yml") == Path("/home/someone/b.yml")
    assert resolve(tmp_path, "$PLACE/b.yml") == tmp_path / "$PLACE" / "b.yml"
    with pytest.raises(BadInput, match="home folder cannot be found"):
        resolve(tmp_path, "~no-such-user-here/b.yml")
    with pytest.raises(BadInput, match="zero byte"):
        resolve(tmp_path, "a\0b")
