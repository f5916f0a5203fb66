"""Synonyms: whoever types one word of a group also finds the entries that say another."""

from __future__ import annotations

import pytest

from generator.website import search

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


def test_what_an_entry_says_itself_is_not_said_again():
    entry = with_words(("OOM", "out of memory", "memory error"), text="OOM: out of memory")
    assert entry["text_synonyms"] == "memory error"


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
        "DistributedDataParallel DDP",
        "Step by step DistributedDataParallel DDP",
        None,
    ]


def test_words_are_added_once_however_often_a_page_is_built():
    entries = [{"location": "a.html", "title": "OOM", "text": ""}]
    search.add_words(entries, [OOM])
    before = dict(entries[0])
    search.add_words(entries, [OOM])
    assert entries[0] == before


def test_a_group_of_one_word_is_refused(copy):
    copy.append("synonyms.yml", "  - [alone]\n")
    assert "synonyms.yml:3" in str(copy.errors())
