from __future__ import annotations

import base64
import difflib
import html
import json
import os
import re
import shlex
import time
from collections.abc import Callable
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from audition.report.mask import MASK, mask
from audition.report.notes import insert_entry, marker

TEXT = "# Notes\n\n## Spec dec\n\nold entry\n\n### Sub\n\nmore\n\n## Next\n\nend\n"


def test_the_entry_goes_to_the_end_of_its_section() -> None:
    new = insert_entry(TEXT, "## Spec dec", "fresh\nlines", "r1")
    assert new == TEXT.replace("more\n\n", f"more\n\n{marker('r1', 'Spec dec')}\nfresh\nlines\n\n")


def test_never_twice_for_one_run_but_again_for_another() -> None:
    once = insert_entry(TEXT, "Spec dec", "fresh", "r1")
    assert insert_entry(once, "Spec dec", "changed", "r1") == once
    twice = insert_entry(once, "Spec dec", "second", "r2")
    assert twice.index("fresh") < twice.index("second") < twice.index("## Next")


def test_a_missing_heading_is_made_at_the_end() -> None:
    assert insert_entry("", "Spec dec", "e", "r") == f"## Spec dec\n\n{marker('r', 'Spec dec')}\ne\n"
    assert insert_entry("x", "# Top", "e", "r") == f"x\n\n# Top\n\n{marker('r', 'Top')}\ne\n"


def test_headings_inside_code_are_not_headings() -> None:
    text = "```\n## Spec dec\n```\n\n## Spec dec\n\nreal\n"
    assert insert_entry(text, "## Spec dec", "e", "r").endswith(f"real\n\n{marker('r', 'Spec dec')}\ne\n")


def test_line_ends_of_the_file_are_kept() -> None:
    new = insert_entry("## A\r\n\r\nx\r\n\r\n## B\r\n", "A", "e\nf", "r")
    assert new == f"## A\r\n\r\nx\r\n\r\n{marker('r', 'A')}\r\ne\r\nf\r\n\r\n## B\r\n"


@given(st.lists(st.sampled_from(["# A", "## B", "text", "", "```", "- item", "## C  "]), max_size=30), st.booleans())
def test_nothing_else_is_touched(lines: list[str], ends: bool) -> None:
    text = "\n".join(lines) + ("\n" if ends and lines else "")
    new = insert_entry(text, "## B", "ENTRY", "run-1")
    same = next((n for n, (a, b) in enumerate(zip(text, new, strict=False)) if a != b), len(text))
    assert new.endswith(text[same:])  # one piece was put in, and nothing else changed
    added = set(new[same : len(new) - len(text) + same].splitlines())
    assert added <= {"", "ENTRY", marker("run-1", "## B"), "## B", "```"}
    assert new.count("ENTRY") == 1
    assert insert_entry(new, "## B", "ENTRY", "run-1") == new


SECRETS = [
    "hf_AbCdEfGhIjKlMnOpQrStUv",
    "sk-proj-abcdefghijklmnop1234",
    "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
    "AKIAIOSFODNN7EXAMPLE",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_what_looks_like_a_key_is_masked(secret: str) -> None:
    assert secret not in mask(f"before {secret} after")


@pytest.mark.parametrize(
    "text",
    [
        "--api-key s3cr3tvalue",
        "--api-key=s3cr3tvalue",
        "VLLM_API_KEY=s3cr3tvalue",
        '"api_key": "s3cr3tvalue"',
        "'password': 's3cr3tvalue'",
        "HF_TOKEN=s3cr3tvalue",
        "command:\n  - --api-key\n  - s3cr3tvalue\n",
        json.dumps(["--hf-token", "s3cr3tvalue"], indent=1),
        repr(["--some-password", "s3cr3tvalue"]),
        "Authorization: Bearer s3cr3tvalue",
        "http://user:s3cr3tvalue@proxy:8080/",
        json.dumps({"line": '{"api_key": "s3cr3tvalue"}'}),
    ],
)
def test_named_values_are_masked(text: str) -> None:
    assert "s3cr3tvalue" not in mask(text)
    assert mask(mask(text)) == mask(text)


@pytest.mark.parametrize(
    "text",
    [
        "max_tokens: 256, 322000 tokens, pad_token: 0",
        json.dumps(["--max-num-batched-tokens", "auto", "--tokenizer", "acme/x", "--ssl-keyfile", "a.pem", "--api-key", "--port"]),
        json.dumps({"secrets": ["HF_TOKEN", "OTHER_NAME"], "x": ["api_key", "value"]}),
        '{"a": "http://h:1", "b": "x@y"} {"a":"http://h:1","b":"x@y"}',
        "--model cyankiwi/Qwen3.6-35B-A3B-AWQ-4bit --max-model-len 131072",
        '"api_key": null, "secrets": []',
        "basic completion works; the bearer of this note",
        "sha256:" + "ab" * 32,
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert mask(text) == text


@given(st.text(min_size=4, max_size=30), st.text(max_size=50), st.text(max_size=50))
def test_a_known_secret_never_survives(secret: str, before: str, after: str) -> None:
    if secret in MASK * 20:
        return
    assert secret not in mask(before + secret + after, [secret]).replace(MASK, "\x00")
    assert json.dumps(secret)[1:-1] not in mask(json.dumps(before + secret + after), [secret]).replace(MASK, "\x00")


FRAGMENTS = [
    "api_key", "secret", "_token", "password", "bearer ", "Basic ", "://", "user", ":", "=", "@", "/", '"', "'", ",", ".", " ",
    "\n", "-", "eyJ", "hf_", "sk-", "abcdefgh", "A1b2C3d4E5f6G7h8", "0", "***", "\\", "{", "\udcff",
]  # fmt: skip


@given(st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join), st.lists(st.sampled_from(["abcd", "e=ab", "****", "p***"])))
def test_masking_twice_changes_nothing(text: str, secrets: list[str]) -> None:
    once = mask(text, secrets)
    assert mask(once, secrets) == once


def test_tokens_in_three_parts_are_masked_wherever_they_stand() -> None:
    token = "eyJhbGciOiJI.eyJzdWIiOiIx.SflKxwRJSMeKKF2QT4"
    assert mask(f"x {token} y") == f"x {MASK} y"
    text = mask(f"aaaaaaaaaaaa.{token}.{token}.eyJ.short-{token}")
    assert "eyJhbG" not in text
    assert "SflKxw" not in text
    assert mask("www.example.com eyJ.a.b 1.2.3") == "www.example.com eyJ.a.b 1.2.3"


NASTY: dict[str, Callable[[int], str]] = {
    "words joined by dashes": lambda n: "a-" * (n // 2),
    "beginnings of tokens": lambda n: "eyJAAAAAAAA-" * (n // 12),
    "parts joined by dots": lambda n: "eyJAAAAAAAA." * (n // 12) + "-",
    "hexadecimal words": lambda n: "-".join(os.urandom(4).hex() for _ in range(n // 9)),
    "random text without an end": lambda n: base64.urlsafe_b64encode(os.urandom(n * 3 // 4)).decode(),
    "a name and blanks": lambda n: "password" + " " * n,
    "names and blanks": lambda n: "api_key " * (n // 8),
    "names joined": lambda n: "a-secret_" * (n // 9),
    "addresses": lambda n: "://a:" * (n // 5),
    "bearers": lambda n: "bearer aaaaaaaa-" * (n // 16),
    "backslashes": lambda n: "secret" + "\\" * n,
    "an option and blank lines": lambda n: "--api-key" + "\n" * n,
    "options in a list": lambda n: "--api-key,\n" * (n // 11),
    "keys in a row": lambda n: "sk-" * (n // 3),
}


@pytest.mark.parametrize("kind", NASTY)
def test_the_work_grows_with_the_text_alone(kind: str) -> None:
    """Eight times the text may take thirty times as long, on a busy machine too; a quadratic pattern takes sixty-four times."""

    def cost(size: int) -> int:
        text = NASTY[kind](size)
        best = 0
        for _ in range(3):
            began = time.thread_time_ns()  # of this thread: what other processes do does not count
            mask(text)
            took = time.thread_time_ns() - began
            best = min(best, took) if best else took
        return best

    assert cost(800_000) <= 30 * cost(100_000)


@pytest.mark.parametrize("secret", [b"k\xff\xfesecret\x80".decode("utf-8", "surrogateescape"), "lone\ud800half"])
def test_a_secret_that_is_no_utf8_is_masked_and_never_raises(secret: str) -> None:
    lenient = secret.encode("utf-8", "surrogatepass" if "\ud800" in secret else "surrogateescape").decode("utf-8", "replace")
    for text in (secret, lenient, json.dumps(secret), repr(secret)):
        assert mask(f"<{text}>", [secret]) in (f"<{MASK}>", f'<"{MASK}">', f"<'{MASK}'>")


FORMS: dict[str, Callable[[str], str]] = {
    "plain": lambda s: s,
    "JSON": json.dumps,
    "JSON in JSON": lambda s: json.dumps(json.dumps({"key": s})),
    "JSON with its own letters": lambda s: json.dumps(s, ensure_ascii=False),
    "repr": repr,
    "URL": lambda s: quote(s, safe=""),
    "URL with slashes": quote,
    "form": lambda s: urlencode({"k": s}),
    "URL in lower case": lambda s: re.sub("%..", lambda m: m[0].lower(), quote(s, safe="")),
    "credentials in a URL": lambda s: f"https://user:{quote(s, safe='')}@host/x",
    "base64": lambda s: base64.b64encode(s.encode()).decode(),
    "base64 for URLs": lambda s: base64.urlsafe_b64encode(s.encode()).decode(),
    "basic authorisation": lambda s: "x-auth=" + base64.b64encode(f"user:{s}".encode()).decode(),
    "in the middle of base64": lambda s: base64.b64encode(f"ab{s}cd".encode()).decode(),
    "HTML": html.escape,
    "shell": shlex.quote,
    "YAML": lambda s: "'" + s.replace("'", "''") + "'",
    "header": lambda s: f"X-Key: {s}",
    "option": lambda s: f"--whatever={s}",
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("secret", ["pl4nted-s3cret", 'a"b\\c/d e+f', "schlüssel'9|x&y<z>", "line one\nline two"])
def test_a_known_secret_is_masked_in_every_form(form: str, secret: str) -> None:
    spelled = FORMS[form](secret)
    masked = mask(f"before {spelled} after", [secret])

    assert MASK in masked
    assert secret not in masked
    left = masked.removeprefix("before ").removesuffix(" after")
    assert longest_common(left, spelled) < max(8, len("https://user:"), len("x-auth="), len("--whatever=")) + 3
    assert mask(masked, [secret]) == masked


def longest_common(one: str, other: str) -> int:
    """Length of the longest piece that two texts share."""
    return difflib.SequenceMatcher(None, one, other, autojunk=False).find_longest_match().size


@pytest.mark.parametrize("text", ["a4f3 is a word, base64 of cGxh too", "sha256:" + "0f" * 32, "Qwen3.6-35B-A3B-AWQ-4bit"])
def test_short_secrets_do_not_blot_out_ordinary_words(text: str) -> None:
    assert mask(text, ["pla", "abc", "q"]) == text


@pytest.mark.parametrize(
    "text",
    [
        "the variable VLLM_API_KEY is set nowhere; compose leaves it empty",
        "`--api-key` wants a value, and the next word is an option",
        "vllm serve m --api-key --port 8000",
    ],
)
def test_a_sentence_about_a_key_keeps_its_words(text: str) -> None:
    assert mask(text) == text
