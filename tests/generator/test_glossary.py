"""The glossary: each term once, with a run that is there, linked where a lesson uses it first."""

from __future__ import annotations

import re

import pytest
from markupsafe import Markup

from generator.content.glossary import Term
from generator.pages.term_links import MOST_LINKS, TermLinks, limit_links


def links(*terms):
    found = [
        Term(id=term.replace(" ", "-"), term=term, also=also, definition="It.", run="a.b")
        for term, *also in terms
    ]
    return TermLinks(found, "../../")


def linked(page, html):
    return re.findall(r'<a class="pb-term" href="([^"]+)">([^<]+)</a>', page.linked(Markup(html)))


def test_a_term_is_linked_where_the_page_uses_it_first_and_nowhere_else():
    page = links(("rank", "ranks"))
    found = linked(page, "<p>Two ranks and a rank.</p>")
    assert found == [("../../glossary.html#term-rank", "ranks")]
    assert linked(page, "<p>A rank.</p>") == []


def test_the_longest_term_is_linked_and_words_that_hold_one_are_not():
    page = links(("gradient",), ("gradient accumulation",))
    assert linked(page, "<p>Gradient accumulation of gradients, gradient-free.</p>") == [
        ("../../glossary.html#term-gradient-accumulation", "Gradient accumulation")
    ]
    assert linked(page, "<p>A gradient.</p>") == [("../../glossary.html#term-gradient", "gradient")]


@pytest.mark.parametrize(
    "html",
    ['<p><a href="x">rank</a></p>', "<p><code>rank</code></p>", '<p title="rank">Nothing.</p>'],
)
def test_no_term_is_linked_in_a_link_code_or_a_value(html):
    page = links(("rank",))
    assert page.linked(Markup(html)) == html
    assert linked(page, f"{html}<p>rank</p>")


TERM = '<a class="pb-term" href="g.html#term-rank">rank</a>'


def test_a_long_page_keeps_the_links_of_its_first_terms_only():
    value, apart = '<a data-v="0" href="e.html">2</a>', f"<table><tr><td>{TERM}</td></tr></table>"
    others = '<a href="x.html">x</a>' * (MOST_LINKS - 2)
    assert limit_links(f"{value * 9}{apart}{TERM}{others}{TERM}{TERM}") == (
        f"{value * 9}{apart}{TERM}{others}{TERM}rank"
    )
    assert limit_links(TERM * MOST_LINKS) == TERM * MOST_LINKS
    assert limit_links(f"{others * 2}{TERM}") == f"{others * 2}rank"
