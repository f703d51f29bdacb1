"""The documentation: generated pages are fresh, links and commands hold; and the checks find what is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:  # benchmarks is no installed package
    sys.path.insert(0, str(ROOT))

from benchmarks import docs, docs_check, docs_story  # noqa: E402

from audition.cli.app import VERBS  # noqa: E402
from audition.faults.signature import shipped_signatures  # noqa: E402
from audition.spike import keys  # noqa: E402


def test_generated_pages_are_fresh() -> None:
    assert docs.stale() == []


def test_links_anchors_commands_and_references_hold() -> None:
    assert docs_check.problems_of(ROOT) == []


def test_the_story_is_dated_and_what_does_not_change_is_as_printed_now() -> None:
    assert docs_story.stale_story() == []


def test_the_story_never_poses_as_a_measurement() -> None:
    blocks = docs_story.blocks_of(docs_story.STORY.read_text(encoding="utf-8"))
    for name in ("verdict", "decision", "judge", "upstream", "rehearse", "fault"):
        assert "REHEARSAL" in blocks[name], name


def test_every_key_verb_and_signature_has_its_place() -> None:
    spike_file, commands, trouble = (
        docs.pages()[docs.REFERENCE / name] for name in ("spike-file.md", "commands.md", "troubleshooting.md")
    )
    assert [k for k in keys.all_keys() if f"| `{k.name}` |" not in spike_file] == []
    assert [verb for verb in VERBS if f"## audition {verb}\n" not in commands] == []
    anchors = docs_check.anchors(trouble)
    for signature in shipped_signatures():
        assert signature.name in anchors
        assert all(link in trouble for link in signature.references)


WRONG = {
    "a link that leads nowhere": ("See [this](nowhere.md).", "leads nowhere"),
    "a link out of the project": ("See [this](../../else.md).", "leaves the project"),
    "an anchor that is not there": ("# Title\n\n[up](#titel)", "no anchor #titel"),
    "a verb that is not there": ("```console\n$ audition rehears mtp-k3\n```", "no verb rehears"),
    "an option that is not there": ("```console\n$ audition run --quickly spike.yaml\n```", "--quickly"),
    "an argument too few": ("```console\n$ audition diagnose --json\n```", "missing"),
    "an option in running text": ("Type `audition status --loud` now.", "--loud"),
    "a command after another": ("```sh\ncd x && audition recover --fast\n```", "--fast"),
    "a command with a variable before it": ("```sh\nA=b audition recovr\n```", "no verb recovr"),
    "a reference that is not https": ("[x](http://example.org/a)", "no https"),
    "a bare reference": ("see http://example.org/a for it", "no https"),
    "quotes that do not end": ("```sh\naudition status 'x\n```", "no shell reads this"),
}


@pytest.mark.parametrize("case", sorted(WRONG))
def test_what_is_wrong_is_found(case: str, tmp_path: Path) -> None:
    text, word = WRONG[case]
    (tmp_path / "README.md").write_text(text + "\n")
    found = docs_check.problems_of(tmp_path)
    assert len(found) == 1, found
    assert word in found[0]
    assert found[0].startswith("README.md:")


RIGHT = """\
# A title: with `code`, and (more)

[up](#a-title-with-code-and-more) [again](#twice-1) [site](https://example.org/x_(y)) <!-- c -->

## twice
## twice

`audition recover`, `audition judge RUN`, `[not](a-link.md)`, http://127.0.0.1:8000/v1

```console
$ audition run spike.yaml --json
anything audition foo --bar says
$ audition status
```

```sh
mkdir audition ; cd audition
audition check spike.yaml --elsewhere | tail -1   # a comment's apostrophe
```

```text
[not](a-link.md) http://not.a/reference
```
"""


def test_what_is_right_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text(RIGHT)
    assert docs_check.problems_of(tmp_path) == []


def test_a_stale_page_and_a_stale_story_are_found(tmp_path: Path) -> None:
    story = tmp_path / "story.md"
    text = docs_story.STORY.read_text(encoding="utf-8")
    story.write_text(text.replace("copy.deepcopy", "copy.shallow").replace("<!-- date -->20", "<!-- date -->"))
    found = "\n".join(docs_story.stale_story(story))
    assert "diagnose is stale" in found
    assert "no date" in found
    (tmp_path / "commands.md").write_text(docs.commands_page().replace("--json", "--jsn", 1))
    assert len(docs.stale(tmp_path)) == 3
