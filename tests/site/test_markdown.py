"""The Markdown beside each page, and `llms.txt`: held against the HTML, read by other parsers."""

import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from mdit_py_plugins.footnote import footnote_plugin

from tests.popovers import popovers_of
from tests.site.html_reading import pages, read

MARKDOWN = MarkdownIt("commonmark").enable("table").use(footnote_plugin).use(dollarmath_plugin)
REAL = ("topics/ddp/learn", "topics/ddp/trace", "topics/sharding/recall", "plan/llama_8b", "index")
# Of a page: what waits for an answer, what a script works, and what is not said in words.
CLOSED = {"pb-answer", "pb-bars", "pb-hint"}
WORKED = {"pb-live", "pb-operate", "pb-player", "pb-budget-set", "pb-hidden", "pb-survive-on",
          "pb-limit", "pb-contents", "pb-controls"}  # fmt: skip
UNSAID = {"nav", "script", "style", "template", "button", "select", "output", "svg"}
HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")


def squeezed(text):
    return re.sub(r"\s", "", text)


def is_closed(within):
    return any(tag.classes & CLOSED or "data-after" in tag.attributes for tag in within)


def is_said(within):
    """Whether Markdown has to have it: the article has it, open, for readers without a script."""
    names = [tag.name for tag in within]
    return "article" in names and not (
        is_closed(within)
        or UNSAID.intersection(names)
        or any(tag.classes & WORKED or "hidden" in tag.attributes for tag in within)
        or ("math" in names and "annotation" not in names)
        or (any("pb-terms" in tag.classes for tag in within) and "details" in names)
        or any("pb-row" in tag.classes for tag in within) > ("label" in names)
        or any(tag.attributes.get("aria-hidden") == "true" for tag in within)
    )


@cache
def parsed(path):
    """The tokens of a page's Markdown."""
    return MARKDOWN.parse(path.with_suffix(".md").read_text(encoding="utf-8"))


def words(token):
    """What a token says, as readers see it, without the numbers of footnotes."""
    kept = ("text", "code_inline", "math_inline", "fence", "math_block")
    parts = token.children or [token]
    return squeezed("".join(part.content for part in parts if part.type in kept))


@pytest.fixture(scope="module")
def paths(frozen_site, built_site):
    real = [built_site / f"{name}.html" for name in REAL]
    return [*pages(frozen_site), *real]


@pytest.fixture(scope="module")
def readings(paths):
    return {path: read(path) for path in paths}


def test_all_that_a_page_says_openly_is_in_its_markdown(readings):
    lost, num_said = [], 0
    for path, reading in readings.items():
        text = "".join(map(words, parsed(path)))
        said = [squeezed(text) for text, within in reading.texts if is_said(within)]
        num_said += len(said)
        lost += [(path.name, one) for one in said if one not in text]
    assert lost == []
    assert num_said > 5_000


def without_footnotes(tokens):
    kinds = [token.type for token in tokens]
    return (
        tokens[: kinds.index("footnote_block_open")] if "footnote_block_open" in kinds else tokens
    )


def test_no_answer_that_a_page_closes_is_in_its_markdown(readings):
    told, num_closed = [], 0
    for path, reading in readings.items():
        text = "".join(map(words, without_footnotes(parsed(path))))
        openly = "".join(squeezed(text) for text, within in reading.texts if is_said(within))
        closed = {squeezed(text) for text, within in reading.texts if is_closed(within)}
        closed = {one for one in closed if len(one) > 25 and one not in openly}
        num_closed += len(closed)
        told += [(path.name, one) for one in closed if one in text]
        assert "Correct." not in text or "Correct." in openly, path
    assert told == []
    assert num_closed > 300


def test_headings_and_rows_of_tables_are_those_of_the_page(readings):
    num_rows = 0
    for path, reading in readings.items():
        headings, rows = [], Counter()
        for tag in reading.tags:
            within = tag.around
            if not is_said([*within, tag]):
                continue
            tables = [id(outer) for outer in within if outer.name == "table"]
            headings += [tag.name] if tag.name in HEADINGS else []
            rows.update(tables if tag.name == "tr" and len(tables) == 1 else ())
        tokens = parsed(path)
        written = [token.tag for token in tokens if token.type == "heading_open"]
        assert written == headings, path
        starts = [at for at, token in enumerate(tokens) if token.type == "table_open"]
        ends = [at for at, token in enumerate(tokens) if token.type == "table_close"]
        in_markdown = [
            sum(token.type == "tr_open" for token in tokens[start:end])
            for start, end in zip(starts, ends, strict=True)
        ]
        assert in_markdown == [*rows.values()], path
        num_rows += sum(in_markdown)
    assert num_rows > 300


def test_every_number_has_the_source_that_its_popover_shows(readings):
    num_checked = Counter()
    for path, reading in readings.items():
        shown = [
            1 + int(tag.attributes["data-v"])
            for tag in reading.tags
            if "data-v" in tag.attributes and is_said(tag.around)
        ]
        markdown = path.with_suffix(".md").read_text(encoding="utf-8")
        body, *notes = re.split(r"^\[\^(\d+)\]: ", markdown, flags=re.MULTILINE)
        sources = dict(zip(map(int, notes[::2]), notes[1::2], strict=True))
        tokens = [one for token in parsed(path) for one in token.children or ()]
        labels = [int(one.meta["label"]) for one in tokens if one.type == "footnote_ref"]
        assert labels == shown, path
        assert sources.keys() == set(shown), path
        popovers = popovers_of(path.read_text(encoding="utf-8"))
        for number, said in sources.items():
            one = popovers[number - 1]
            num_checked[one.kind] += 1
            if one.kind == "stated":
                assert "#claim-" in said, said
                continue
            assert said.startswith(f"{one.kind}: "), said
            expected = [one.source and one.source.replace(" · ", "."), one.nature]
            expected += [one.formula] if one.kind == "computed" else []
            expected += [f"{text} ({kind})" for text, kind in one.inputs]
            expected += [one.exactly] if one.exactly != one.shown else []
            assert [part for part in expected if part and part not in said] == [], (path, said)
            assert one.command is None or one.command.rpartition("reproduce")[0] in body
    assert min(num_checked[kind] for kind in ("given", "measured", "computed", "cited")) > 5


def _links(path):
    tokens = MARKDOWN.parse(path.read_text(encoding="utf-8"))
    inline = (part for token in tokens for part in token.children or ())
    return [part.attrs["href"] for part in inline if part.type == "link_open"]


def test_links_lead_to_markdown_or_to_a_file_of_the_site(paths):
    lost = []
    for path in paths:
        for link in _links(path.with_suffix(".md")):
            target, _, anchor = link.partition("#")
            if "://" in link:
                continue
            if not (path.parent / target).is_file():
                lost.append((path.name, link))
            if target.endswith(".html"):  # of answers alone
                assert target == path.name, link
                assert not anchor or f'id="{anchor}"' in path.read_text("utf-8"), link
    assert lost == []


@pytest.mark.parametrize("site", ["frozen_site", "built_site"])
def test_llms_txt_lists_every_page_once_in_the_order_of_the_sections(site, request):
    site = request.getfixturevalue(site)
    text = (site / "llms.txt").read_text(encoding="utf-8")
    title, law, _, first, *_ = text.split("\n\n")
    assert title == "# Proofbook"
    assert law.startswith("> ")
    assert first.startswith("## ")
    links = _links(site / "llms.txt")
    assert Counter(links) == Counter(
        path.relative_to(site).with_suffix(".md").as_posix() for path in pages(site)
    )
    sections = [
        tag.attributes["href"]
        for tag in read(site / "index.html").tags
        if tag.name == "a" and any("pb-sections" in outer.classes for outer in tag.around)
    ]
    sections = [one for one in sections if (site / one).is_file()]
    assert links[: len(sections) + 1] == [
        Path(one).with_suffix(".md").as_posix() for one in ("index.html", *sections)
    ]
    lines = [line for line in text.splitlines() if line.startswith("- ")]
    assert all(re.fullmatch(r"- \[[^]]+\]\([^)]+\.md\)(: \S.*)?", line) for line in lines)


def test_every_page_leads_to_its_markdown(readings):
    """By no `link`: at one whose `rel` is `alternate`, the theme asks for a site map beside it."""
    for path, reading in readings.items():
        name = path.with_suffix(".md").name
        typed = [tag for tag in reading.tags if tag.attributes.get("type") == "text/markdown"]
        links = [(tag.name, tag.attributes["href"]) for tag in typed]
        assert links == [("a", name)], path
