"""The glossary: each term once, with a run that is there, linked where a lesson uses it first."""

import re

import pytest
from markupsafe import Markup

from generator.content.glossary import Term
from generator.pages.term_links import MOST_LINKS, TermLinks, limit_links
from generator.website import search


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


# --- synonyms: one word of a group, typed, also finds the entries that say another


OOM = ("OOM", "out of memory")


def with_words(*groups, title="A title", text="", location="topics/a/deep.html"):
    entries = [{"location": location, "title": title, "text": text}]
    search.add_words(entries, groups)
    return entries[0]


@pytest.mark.parametrize(
    "text",
    ["It runs out of memory.", "<p>an out-of-memory error</p>", "<code>out_of_memory</code>"],
)
def test_a_phrase_is_known_however_its_words_are_joined(text):
    assert with_words(OOM, text=text)["text_synonyms"] == "OOM"
    assert with_words(OOM, title=text)["title_synonyms"] == "OOM"


def test_a_word_within_another_word_is_none_and_a_plural_is_one():
    assert "text_synonyms" not in with_words(("rank", "worker"), text="<p>It is frank.</p>")
    assert with_words(("rank", "worker"), text="<p>Four ranks.</p>")["text_synonyms"] == "worker"


def test_a_name_is_found_in_one_word_and_by_its_parts():
    found = with_words(title="ZeRO-3, SyncBatchNorm, AdamW, GiB, <code>no_sync</code>")
    assert found["title_synonyms"] == "ZeRO3, Sync Batch Norm"


def test_a_section_is_found_by_the_titles_of_its_page_and_topic_and_their_synonyms():
    entries = [
        {"location": "topics/ddp/index.html", "title": "DistributedDataParallel", "text": ""},
        {"location": "topics/ddp/trace.html", "title": "Step by step", "text": ""},
        {"location": "topics/ddp/trace.html#faster", "title": "Is it faster?", "text": ""},
        {"location": "evidence/ddp.html#runs", "title": "Runs", "text": ""},
    ]
    search.add_words(entries, [("DDP", "DistributedDataParallel")])
    assert [entry.get("above") for entry in entries] == [
        None,
        "DistributedDataParallel Distributed Data Parallel DDP",
        "Step by step DistributedDataParallel Distributed Data Parallel DDP",
        None,
    ]


def test_a_page_has_the_place_that_its_title_does_not_say_and_a_section_has_none():
    locations = ("topics/ddp/index.html", "topics/ddp/deep.html", "topics/ddp/deep.html#all-reduce")
    entries = [{"location": one, "title": f"<b>{one[7:]}</b>", "text": ""} for one in locations]
    entries += [
        {"location": "retracted.html#faster", "title": "DDP is faster.", "text": ""},
        {"location": "topics/ddp/deep.html#figure-ring", "title": "A ring", "text": ""},
    ]
    called = {"statement": "A statement, tested", "figure": "An interactive figure"}
    search.add_places(entries, {"modes": {"deep": "Deep"}, "search": called})
    places = {one["location"]: one["place"] for one in entries if "place" in one}
    assert places == {
        "topics/ddp/deep.html": "<b>ddp/index.html</b> · Deep",
        "retracted.html#faster": "A statement, tested",
        "topics/ddp/deep.html#figure-ring": "An interactive figure",
    }
