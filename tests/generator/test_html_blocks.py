"""What is set aside while Markdown is read: a page comes out as if nothing had been."""

from __future__ import annotations

from markdown import Markdown

from generator.pages.rendering import render
from generator.website import html_blocks


def _converted(text: str) -> str:
    """What Markdown makes of a page, as MkDocs calls it."""
    return Markdown(extensions=["attr_list", "toc"]).convert(text)


def _by_headings(text: str) -> str:
    aside = html_blocks.set_aside(text)
    headings = html_blocks.between_headings(aside.text)
    between = html_blocks.put_back(_converted(headings.text), headings.blocks)
    return html_blocks.put_back(between, aside.blocks)


def _lines(html: str) -> list[str]:
    return [line.strip() for line in html.splitlines() if line.strip()]


def test_markdown_makes_of_headings_alone_what_it_makes_of_the_whole_page(book):
    for path, page in render(book).items():
        body = page.split("\n---\n", 1)[1]
        assert _lines(_by_headings(body)) == _lines(_converted(body)), path


def test_only_headings_are_left_to_markdown(book):
    for path, page in render(book).items():
        body = page.split("\n---\n", 1)[1]
        left = html_blocks.between_headings(html_blocks.set_aside(body).text).text.splitlines()
        others = [line for line in left if line and not line.startswith("#")]
        assert all(line.startswith("<!--pb-aside-") for line in others), path
        assert any(line.startswith("# ") for line in left), path


def test_a_line_of_code_that_looks_like_a_heading_is_none():
    code = "<pre><code>one = 1\n\n# two\ntwo = 2\n</code></pre>"
    html = _by_headings(f"\n# Title\n\n{code}\n\n## Section\n\n<p>Text</p>\n")
    assert html.count("<h") == 2
    assert code in html


def test_ids_of_a_page_are_found_in_what_was_set_aside():
    assert html_blocks.ids('<p id="first"><a class="x" id="second" href="#third"></a></p>') == {
        "first", "second",
    }  # fmt: skip
