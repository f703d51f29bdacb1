"""Progress lines: masked, never blocking, never failing, whatever the terminal does."""

from __future__ import annotations

import io
import os
import threading

from audition.report.mask import mask
from audition.run.reporter import MOST_WAITING, Reporter


def test_lines_are_marked_timed_and_masked() -> None:
    out = io.StringIO()
    reporter = Reporter(rehearsal=True, stream=out)
    reporter.secrets = ["sk-planted"]
    reporter.say("the key is sk-planted")
    reporter.warn("two\nlines")
    reporter.flush()
    lines = out.getvalue().splitlines()
    assert [line[:10] for line in lines] == ["REHEARSAL "] * 3
    assert "sk-planted" not in out.getvalue()
    assert lines[0].endswith("the key is ***")


def test_a_pipe_that_nobody_reads_holds_nothing_up() -> None:
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w")
    reporter = Reporter(rehearsal=False, stream=stream)
    done = threading.Event()

    def talk() -> None:
        for _ in range(3 * MOST_WAITING):
            reporter.say("x" * 200)
        reporter.flush(0.1)
        done.set()

    threading.Thread(target=talk, daemon=True).start()
    assert done.wait(60), "the speaker was held up by a full pipe"
    os.close(reading)


def test_a_closed_stream_and_odd_text_do_not_fail() -> None:
    out = io.StringIO()
    out.close()
    reporter = Reporter(rehearsal=False, stream=out)
    reporter.say("nobody hears \udcff this")
    reporter.flush()
    heard = io.StringIO()
    other = Reporter(rehearsal=False, stream=heard)
    other.say("odd \udcff bytes")
    other.flush()
    assert "odd" in heard.getvalue()


def test_masking_long_lines_grows_with_their_length_alone() -> None:
    """Counted in work, not in time: ten times the text must not need a hundred times the steps (it once did)."""
    assert mask("a-" * 50_000) == "a-" * 50_000
    assert mask("a" * 1_000_000) == "a" * 1_000_000
