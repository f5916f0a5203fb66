"""Markdown of authors looks as our templates write HTML."""

from __future__ import annotations

import pytest
from markdown import Markdown

from generator.website.page_html import LikeOurs

VALUE = '<a class="pb-value" href="evidence.html">4 MiB</a>'


@pytest.mark.parametrize(
    ("written", "html"),
    [
        ("## A `b` & *c*", '<h2 id="a-b-c"><a href="#a-b-c">A <code>b</code> &amp; <em>c</em></a>'),
        ("# Title", '<h1 id="title">Title</h1>'),
        ("### [A](b.html)", '<h3 id="a"><a href="b.html">A</a></h3>'),
        (f"## It needs {VALUE}", f">It needs {VALUE}</h2>"),
        ("|a|\n|-|\n|1|", '<table class="pb-table">'),
        ("    code", '<pre><code tabindex="0">code'),
        ("<div markdown>\n## In it\n</div>", '<h2 id="in-it"><a href="#in-it">In it</a></h2>'),
    ],
)
def test_markdown_by_hand_becomes_what_templates_write(written, html):
    reader = Markdown(extensions=["tables", "md_in_html", "toc", LikeOurs()])
    assert html in reader.convert(written)
