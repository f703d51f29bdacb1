"""The report in a real headless Chromium: drawn, silent, offline, readable at every width, in both schemes and on paper."""

from __future__ import annotations

import re
import unicodedata
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Page

Scheme = Literal["light", "dark"]
DESKTOP, PHONE = (1280, 900), (390, 844)
VIEWS: list[tuple[str, tuple[int, int], Scheme]] = [
    ("real", DESKTOP, "light"),
    ("real", PHONE, "dark"),
    ("rehearsal", DESKTOP, "dark"),
    ("rehearsal", PHONE, "light"),
    ("hostile", DESKTOP, "dark"),
    ("hostile", PHONE, "light"),
]
CHECKED = {("real", "light"), ("rehearsal", "dark"), ("rehearsal", "light"), ("hostile", "light")}
"""Views that axe checks, which takes long: both schemes and both widths."""


@dataclass
class Opened:
    """A page with what it said and asked for while it was open."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


@contextmanager
def opened(
    browser: Browser, file: Path, size: tuple[int, int] = DESKTOP, scheme: Scheme = "light", script: bool = True
) -> Iterator[Opened]:
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, java_script_enabled=script, reduced_motion="reduce"
    )
    made = Opened(context.new_page())
    made.page.on("console", lambda message: made.said.append(message.text))
    made.page.on("pageerror", lambda error: made.said.append(str(error)))
    made.page.on("request", lambda request: made.asked.append(request.url))
    made.page.goto(file.as_uri())
    if script:
        made.page.wait_for_function(
            "[...document.querySelectorAll('[data-chart]')].every((p) => p.dataset.drawn || p.offsetParent === null)"
        )
    yield made
    context.close()


@pytest.mark.parametrize(("name", "size", "scheme"), VIEWS)
def test_page_is_drawn_silent_offline_accessible_and_no_wider_than_its_window(
    browser: Browser, reports: dict[str, Path], name: str, size: tuple[int, int], scheme: Scheme
) -> None:
    with opened(browser, reports[name], size, scheme) as it:
        assert it.said == []
        assert it.asked == [reports[name].as_uri()]
        places = it.page.locator("[data-chart]").count()
        assert places >= 5
        assert it.page.locator("[data-chart] svg[role=img]").count() >= places
        marks = it.page.locator("[data-chart] svg").evaluate_all(
            "(all) => all.map((s) => s.querySelectorAll('path, circle, rect').length)"
        )
        assert min(marks) > 0, "a chart without a mark"
        assert it.page.evaluate("document.documentElement.scrollWidth") <= size[0]
        assert it.page.evaluate("window.broken") is None
        if (name, scheme) in CHECKED:
            found = Axe().run(it.page, options={"resultTypes": ["violations"]})
            assert found.violations_count == 0, found.generate_report()


def test_every_chart_of_the_real_run_shows_its_data(browser: Browser, reports: dict[str, Path]) -> None:
    with opened(browser, reports["real"]) as it:
        legs = it.page.locator("#workloads figure").first
        assert legs.locator("svg").count() == 4
        first = legs.locator("svg").first
        assert {"199.3", "213.8", "198.4", "304.9", "201.4"} <= set(first.locator("text").all_text_contents())
        assert "leg 2 mtp-k3 213.8" in str(first.get_attribute("aria-label"))
        ratio = it.page.locator("#ratios svg")
        assert "1.204 [1.048, 1.383]  better" in ratio.locator("text").all_text_contents()
        curves = it.page.locator("#workloads figure:has(figcaption:has-text('Latency')) svg").first
        assert curves.locator("g[stroke-width='1.6'] path, path[stroke-width='1.6']").count() >= 5


def test_without_script_every_chart_has_its_data_as_a_table(browser: Browser, reports: dict[str, Path]) -> None:
    with opened(browser, reports["real"], script=False) as it:
        assert it.page.locator("svg").count() == 0
        assert it.page.get_by_text("Charts are drawn by JavaScript, which is off").is_visible()
        figures = it.page.locator("figure")
        assert figures.count() == it.page.locator("figure details.data table").count() > 10
        assert it.page.locator("figure details.data tbody tr").count() > figures.count()
        figures.first.locator("summary").click()
        assert figures.first.locator("table").is_visible()


def test_keyboard_reaches_the_report_and_headings_are_in_order(browser: Browser, reports: dict[str, Path]) -> None:
    with opened(browser, reports["rehearsal"], PHONE) as it:
        it.page.keyboard.press("Tab")
        assert it.page.evaluate("document.activeElement.className") == "skip"
        assert it.page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
        assert it.page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        it.page.keyboard.press("Enter")
        assert it.page.evaluate("document.activeElement.id") == "main"
        levels = [int(tag[1]) for tag in it.page.locator("h1, h2, h3, h4").evaluate_all("(all) => all.map((h) => h.tagName)")]
        assert levels[0] == 1
        assert levels.count(1) == 1
        assert all(after <= before + 1 for before, after in pairwise(levels))
        assert it.page.locator("th:not([scope])").count() == 0
        assert it.page.locator("figure:not(:has(figcaption))").count() == 0


def test_verdict_stands_in_the_first_screen(browser: Browser, reports: dict[str, Path]) -> None:
    with opened(browser, reports["real"], PHONE) as it:
        for text in ("INCONCLUSIVE", "Stay on production for now", "Production is back and verified."):
            box = it.page.get_by_text(text).first.bounding_box()
            assert box is not None
            assert box["y"] + box["height"] < PHONE[1], text


def test_paper_says_rehearsal_on_every_page_and_is_light_in_a_dark_scheme(
    browser: Browser, reports: dict[str, Path], tmp_path: Path
) -> None:
    with opened(browser, reports["rehearsal"], scheme="dark") as it:
        it.page.emulate_media(media="print")
        assert it.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        data = it.page.pdf(prefer_css_page_size=True)
    pages = pdf_texts(data)
    assert len(pages) > 3
    for number, text in enumerate(pages, start=1):
        assert "REHEARSAL, simulated figures" in text, f"page {number}: {text[:200]}"
    with opened(browser, reports["real"]) as it:
        assert not any("REHEARSAL" in text for text in pdf_texts(it.page.pdf(prefer_css_page_size=True)))


def pdf_texts(data: bytes) -> list[str]:
    """The text of each page of a PDF as Chromium writes it: glyph numbers turned into characters by each font's own map."""
    objects = {int(m[1]): m[2] for m in re.finditer(rb"(?s)(?:^|\n)(\d+) 0 obj\s(.*?)\nendobj", data)}
    maps = {number: _glyph_map(_stream(objects[int(m[1])])) for number, body in objects.items()
            if (m := re.search(rb"/ToUnicode (\d+) 0 R", body))}  # fmt: skip
    pages = [body for body in objects.values() if re.search(rb"/Type /Page\b", body)]
    return [_page_text(body, objects, maps) for body in pages]


def _page_text(body: bytes, objects: dict[int, bytes], maps: dict[int, dict[int, str]]) -> str:
    fonts = {name.decode(): maps.get(int(number), {}) for name, number in re.findall(rb"/(F\d+) (\d+) 0 R", body)}
    contents = re.search(rb"/Contents (\d+) 0 R", body)
    assert contents is not None
    text: list[str] = []
    glyphs: dict[int, str] = {}
    for name, shown in re.findall(rb"/(F\d+) [\d.]+ Tf|<([0-9A-Fa-f]+)>", _stream(objects[int(contents[1])])):
        if name:
            glyphs = fonts.get(name.decode(), {})
        else:
            text += [glyphs.get(int(shown[i : i + 4], 16), "") for i in range(0, len(shown), 4)]
    return unicodedata.normalize("NFKC", "".join(text))  # ligatures


def _stream(body: bytes) -> bytes:
    raw = body.split(b"stream\n", 1)[1].rsplit(b"\nendstream", 1)[0]
    return zlib.decompress(raw) if b"/FlateDecode" in body else raw


def _glyph_map(text: bytes) -> dict[int, str]:
    found: dict[int, str] = {}
    for block in re.findall(rb"(?s)beginbfchar\n(.*?)endbfchar", text):
        for glyph, char in re.findall(rb"<([0-9A-Fa-f]+)> <([0-9A-Fa-f]+)>", block):
            found[int(glyph, 16)] = bytes.fromhex(char.decode()).decode("utf-16-be")
    for block in re.findall(rb"(?s)beginbfrange\n(.*?)endbfrange", text):
        for low, high, char in re.findall(rb"<([0-9A-Fa-f]+)> <([0-9A-Fa-f]+)> <([0-9A-Fa-f]+)>", block):
            for n in range(int(low, 16), int(high, 16) + 1):
                found[n] = chr(int(char, 16) + n - int(low, 16))
    return found
