"""The index of the search: words, synonyms, scores and leads, against what is computed by hand."""

import json
import math
from collections import Counter

import pytest
from markupsafe import Markup
from material.plugins.search.plugin import Parser

from proofbook.generator.kinds.glossary.glossary import Glossary
from proofbook.generator.kinds.glossary.words import GlossaryFile, Term
from proofbook.generator.kinds.search import index as search
from proofbook.generator.pages import facts
from proofbook.generator.pages.elements.element import Heading, Waiting
from proofbook.generator.pages.elements.programs import ListedProgram, WholeProgram

OOM = ("OOM", "out of memory")
SAYS = {"modes": {"trace": "Trace"}, "search": {"statement": "A statement", "figure": "A figure"}}


def found(*entries, leads=None, terms=()):
    written = [
        {"location": place, "title": title, "text": text, "boost": 1.0}
        for place, title, text in entries
    ]
    file = GlossaryFile(terms=[*terms], synonyms=[[*OOM]], leads=leads or {})
    return [*search.sections(written, Glossary(file), SAYS)]


def files(sections):
    return {name: json.loads(text.partition("=")[2]) for name, text in search.index(sections)}


@pytest.mark.parametrize(
    ("text", "whole", "parts"),
    [
        ("ZeRO-3", "zero3", ["zero", "3"]),
        ("find_unused_parameters", "findunusedparamet", ["find", "unused", "paramet"]),
        ("SyncBatchNorm", "syncbatchnorm", ["sync", "batch", "norm"]),
        ("averaged", "averag", []),
        ("clipping", "clip", []),
        ("GiB", "gib", []),
    ],
)
def test_a_name_is_read_in_one_word_and_by_its_parts(text, whole, parts):
    assert search.words(text) == [(whole, parts)]


def test_numbers_that_runs_measured_are_no_words_and_those_of_names_are():
    assert [whole for whole, _ in search.words("24.7 ms, 65536 bytes, 1F1B, exit -9")] == [
        *("ms", "byte", "1f1b", "exit", "9"),
    ]


@pytest.mark.parametrize("text", ["It runs out of memory.", "an out-of-memory error"])
def test_a_phrase_is_known_however_its_words_are_joined(text):
    assert search.Synonyms([OOM]).of(text) == Counter(["oom"])


def test_a_word_within_another_word_is_none_and_a_plural_is_one():
    synonyms = search.Synonyms([("rank", "worker")])
    assert not synonyms.of("It is frank.")
    assert synonyms.of("Four ranks.") == Counter(["worker"])


def test_a_section_is_found_by_the_titles_of_its_page_and_topic():
    *_, section = found(
        ("topics/ddp/index.html", "Replicas", ""),
        ("topics/ddp/trace.html", "Step by step", ""),
        ("topics/ddp/trace.html#faster", "Is it faster?", ""),
    )
    assert {"replica", "step", "by"} == {*section.fields["above"]}
    assert section.shown[4:] == ["Step by step", "Replicas · Trace"]


def test_what_waits_for_an_answer_finds_its_section_and_is_not_shown():
    answer = Markup('<p>Only zebras.</p><h3 id="x">Their stripes</h3>')
    code = Markup("held = <b>DTensor</b>(codes, float8_e4m3fn)  # <i>a comment</i>")
    program = WholeProgram(ListedProgram(Markup("Codes"), "", code, 1, "", None))
    content = [Markup("<p>Who?</p>"), Waiting("asked", "what", [answer]), program]
    html = facts.searched(content, Heading(1, Markup("Ranks"), "ranks"), is_markdown=False)
    parser = Parser()
    parser.feed(html)
    (own,) = found(*(("a.html", "".join(one.title), "".join(one.text)) for one in parser.data))
    assert own.shown[1:3] == ["Ranks", "Who?"]
    assert {"zebra", "strip", "dtensor", "float8e4m3fn"} <= {*own.fields["behind"]}
    assert "comment" not in own.fields["behind"]


def test_a_word_of_one_text_is_scored_as_bm25_has_it():
    sections = found(("a.html", "", "muon muon x"), ("b.html", "", "x"), ("c.html", "", "y"))
    weight, of = search.scores(sections)["muon"]
    frequency = 2.2 * 2 / (1 - 0.4 + 0.4 * 3 / ((3 + 1 + 1) / 3))
    assert weight == pytest.approx(math.log(1 + (3 - 1 + 0.5) / (1 + 0.5)))
    assert of == {0: pytest.approx(weight * frequency / (search.SATURATION + frequency))}


def test_a_lead_stands_at_its_rarest_word_with_the_others():
    sections = found(
        ("a.html", "Fit", "layers"), ("b.html", "Plan", ""), ("c.html", "Of layers", ""),
        leads={"b.html": ["layers fit"]},
    )  # fmt: skip
    leads = {word: of for word, *_, of in files(sections)["words-0.js"]}
    assert [[number, others] for number, _, others in leads["fit"]] == [[1, ["layer"]]]
    assert leads["layer"] == []


def test_a_name_of_a_term_leads_to_it():
    term = Term(id="bubble", term="bubble", definition="Idle time.")
    sections = found(
        ("glossary.html#term-bubble", "bubble", "Idle time."), ("a.html", "Other", ""), terms=[term]
    )
    leads = {word: of for word, *_, of in files(sections)["words-0.js"]}
    assert [others for _, _, others in leads["bubbl"]] == [[]]


def test_each_part_begins_where_the_index_says(monkeypatch):
    monkeypatch.setattr(search, "BYTES", {"words": 40, "sections": 40})
    written = files(found(*((f"{name}.html", name * 3, f"{name * 4} text") for name in "abcdef")))
    for kind in ("words", "sections"):
        starts = written["index.js"][kind]
        parts = [written[f"{kind}-{number}.js"] for number in range(len(starts))]
        assert len(parts) > 1
        keys = [row[0] for part in parts for row in part]
        if kind == "words":
            assert keys == sorted(keys)
            assert starts == [part[0][0] for part in parts]
        else:
            assert keys == [f"{name}.html" for name in "abcdef"]
            assert starts == [sum(map(len, parts[:number])) for number in range(len(parts))]
