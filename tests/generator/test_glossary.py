"""The glossary's terms, linked where a lesson uses them first, and synonyms of the search."""

import re

import pytest

from proofbook.generator.content.glossary import Term
from proofbook.generator.pages.term_links import TermLinks
from proofbook.generator.printing.markdown import render
from proofbook.generator.website import search


def links(*terms):
    found = [
        Term(id=term.replace(" ", "-"), term=term, also=also, definition="It.", run="a.b")
        for term, *also in terms
    ]
    return TermLinks(found, "../../")


def linked(page, text):
    html = page.linked(render(text, lambda _: "<span>rank</span>", str, inline=False))
    return re.findall(r'<a class="pb-term" href="([^"]+)">([^<]+)</a>', html)


def test_a_term_is_linked_where_the_page_uses_it_first_and_nowhere_else():
    page = links(("rank", "ranks"))
    assert linked(page, "Two ranks and a rank.") == [("../../glossary.html#term-rank", "ranks")]
    assert linked(page, "A rank.") == []


def test_the_longest_term_is_linked_and_words_that_hold_one_are_not():
    page = links(("gradient",), ("gradient accumulation",))
    assert linked(page, "Gradient\naccumulation of gradients, gradient-free.") == [
        ("../../glossary.html#term-gradient-accumulation", "Gradient\naccumulation")
    ]
    assert linked(page, "A gradient.") == [("../../glossary.html#term-gradient", "gradient")]


@pytest.mark.parametrize(
    "text",
    ["[a *rank*](x.html)", "`rank`", '![a rank](x.png "rank")', "$\\text{rank}$", "{{ a.rank }}",
     "[`rank`](x.html)", "```\nrank\n```"],
)  # fmt: skip
def test_no_term_is_linked_in_a_link_code_a_formula_or_a_value(text):
    page = links(("rank",))
    assert linked(page, text) == []
    assert linked(page, f"{text}\n\n**rank**")


def test_a_long_page_keeps_the_links_of_its_first_terms_only():
    page = links(*((letter * 2,) for letter in "abcd"))
    page.most = 2
    assert [words for _, words in linked(page, "aa bb aa cc")] == ["aa", "bb"]
    assert linked(page, "dd") == []
    assert page.used == {"aa", "bb", "cc", "dd"}


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
