"""The glossary: each term once, with a run that is there, linked where a lesson uses it first."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from markupsafe import Markup

from generator.content.errors import ContentErrors
from generator.content.glossary import Term
from generator.evidence.units import COUNT
from generator.evidence.value import Origin, Value
from generator.pages import rendering
from generator.pages.term_links import TermLinks
from generator.pages.views.glossary import Use
from tests.site.html_reading import read

FILE = "glossary.yml"
ENTRY = """\
  - id: {id}
    term: {term}
    definition: What the word means.
    run: {run}
"""


def entry(id="rank", term="rank", run="tiny_training.averaged"):
    return ENTRY.format(id=id, term=term, run=run)


def links(*terms):
    return TermLinks(
        [
            Term(
                id=spelled[0].replace("_", "-").lower(),
                term=spelled[0],
                also=spelled[1:],
                definition="It.",
                run="a.b",
            )
            for spelled in terms
        ],
        "../../",
    )


def linked(page, html):
    return re.findall(r'<a class="pb-term" href="([^"]+)">([^<]+)</a>', page.linked(Markup(html)))


def test_a_term_is_linked_where_the_page_uses_it_first_and_nowhere_else():
    page = links(("rank", "ranks"))
    found = linked(page, "<p>Two ranks and a rank.</p>")
    assert found == [("../../glossary.html#term-rank", "ranks")]
    assert linked(page, "<p>A rank.</p>") == []


def test_the_longest_term_is_linked_and_words_that_hold_one_are_not():
    page = links(("gradient",), ("gradient-accumulation",))
    assert linked(page, "<p>Gradient-accumulation of gradients.</p>") == [
        ("../../glossary.html#term-gradient-accumulation", "Gradient-accumulation")
    ]
    assert linked(page, "<p>A gradient.</p>") == [("../../glossary.html#term-gradient", "gradient")]


def test_a_word_with_the_letters_of_a_name_is_not_the_name():
    page = links(("ZeRO", "ZeRO-1"))
    assert linked(page, "<p>Zero bubbles and a zero. Zero-1 is no stage.</p>") == []
    page.read(Markup("Zero bubble"))
    assert not page.used
    assert linked(page, "<p>ZeRO-1 shards.</p>") == [("../../glossary.html#term-zero", "ZeRO-1")]


@pytest.mark.parametrize(
    "html",
    [
        '<p><a href="x">rank</a></p>',
        "<p><code>rank</code></p>",
        '<p><button class="pb-value">rank</button></p>',
        "<pre><code>rank</code></pre>",
        '<p title="rank">Nothing.</p>',
    ],
)
def test_no_term_is_linked_in_a_link_code_or_a_value(html):
    page = links(("rank",))
    assert page.linked(Markup(html)) == html
    assert linked(page, "<p>rank</p>")


def test_a_term_that_only_code_or_a_heading_spells_counts_as_used():
    page = links(("all_reduce",), ("bucket",), ("rank",))
    page.linked(Markup("<p><code>all_reduce</code></p>"))
    assert page.read(Markup("Hooks, bucket, overlap")) == "Hooks, bucket, overlap"
    assert page.used == {"all-reduce", "bucket"}
    first = linked(page, "<p>A bucket, <code>rank</code>.</p>")
    assert first == [("../../glossary.html#term-bucket", "bucket")]
    assert linked(page, "<p>A bucket of a rank.</p>") == [("../../glossary.html#term-rank", "rank")]


def test_a_page_links_each_term_that_its_prose_uses(built_site):
    """Paragraphs, explanations of programs and stages, decisions: whatever an author wrote."""
    content = Path(__file__).parents[2] / "content"
    terms = yaml.safe_load((content / FILE).read_text(encoding="utf-8"))["terms"]
    spelled = {
        one["id"]: re.compile(rf"(?<![\w-])(?:{'|'.join(map(re.escape, names))})(?![\w-])")
        for one in terms
        for names in [(one["term"], *one.get("also", []))]
    }
    missing, num_linked = [], 0
    for path in sorted(built_site.glob("topics/*/*.html")):
        if path.stem in ("index", "recall", "summary"):
            continue
        page = read(path)
        linked = {
            t.attributes["href"].split("-", 1)[1] for t in page.tags if "pb-term" in t.classes
        }
        num_linked += len(linked)
        said = " ".join(text for text, within in page.texts if _is_prose(within))
        unlinked = [id for id, form in spelled.items() if id not in linked and form.search(said)]
        missing += [(path.parent.name, path.stem, id) for id in unlinked]
    assert missing == []
    assert num_linked > 500


def _is_prose(within):
    names, classes = {tag.name for tag in within}, set().union(*(tag.classes for tag in within))
    is_set_apart = names & {"a", "button", "code", "h2", "h3", "form", "th", "dl", "svg", "figure"}
    explains = {"pb-notes", "pb-stage", "pb-lede", "pb-insight"} & classes
    is_decision = "pb-decisions" in classes and names.isdisjoint({"small", "br"})
    return not is_set_apart and bool(explains or is_decision)


def test_the_page_of_the_glossary_links_the_run_and_the_lessons_that_use_a_term(book):
    pages = rendering.render(book)
    page = pages["glossary.md"]
    assert 'href="evidence/tiny_training.html#run-tiny_training-averaged"' in page
    folds = re.findall(r"<summary>Used on .*?</details>", page, re.DOTALL)
    counted = [int(re.search(r'">(\d+)</span> pages?</summary>', one)[1]) for one in folds]
    assert counted == [one.count('href="topics/') for one in folds] != []
    named = [link.replace(".html", ".md") for link in re.findall(r'href="(topics/[^"]+)"', page)]
    linking = {path for path, held in pages.items() if 'class="pb-term"' in held}
    assert linking
    assert linking <= set(named)
    for path in named:  # a heading or a title uses a term as well, and holds no link
        assert re.search(r"\bgradient", pages[path], re.IGNORECASE), path


def test_a_term_names_first_the_lessons_that_link_its_run(book):
    pages = rendering.render(book)
    (aside,) = re.findall(r"Shown by the run .*?</p>", pages["glossary.md"])
    shown = re.findall(r'<a href="(topics/[^"]+)">([^<]+: [^<]+)</a>', aside)
    run = "evidence/tiny_training.html#run-tiny_training-averaged"
    linking = [path for path, text in pages.items() if run in text and path.startswith("topics/")]
    assert [href.replace(".html", ".md") for href, _ in shown] == linking[:2] != []


def test_a_lesson_that_prints_a_value_of_a_terms_run_shows_it():
    term = Term(id="rank", term="rank", definition="It.", run="study.one")

    def use(run, content=b""):
        origin = Origin("desk", "study", run, "steps")
        leaf = Value(1, COUNT, "measured", f"study.{run}.steps", origin=origin)
        return Use.of("topics/a/learn.md", content, {"study": [leaf + leaf]}, term)

    assert use("one").shows
    assert not use("two").shows
    assert use("two", b'href="../../evidence/study.html#run-study-one"').shows
    assert not use("two", b'href="../../evidence/study.html#run-study-one-more"').shows
    without = Term(id="rank", term="rank", definition="It.")
    assert not Use.of("topics/a/learn.md", b"", {}, without).shows


def test_no_question_heading_or_recall_page_links_a_term(book):
    for path, text in rendering.render(book).items():
        assert not re.search(r"^#.*pb-term", text, re.MULTILINE), path
        for question in re.findall(r'<div class="pb-question".*?</form>', text, re.DOTALL):
            assert "pb-term" not in question, path
        if path.endswith(("recall.md", "index.md", "evidence.md")):
            assert "pb-term" not in text, path


def add(copy, text):
    """Write an entry below the others."""
    terms, below, rest = (copy.content / FILE).read_text().partition("\nsynonyms:")
    (copy.content / FILE).write_text(terms + text + below + rest)


def test_a_run_that_is_not_there_is_refused(copy):
    add(copy, entry(run="tiny_training.averagd"))
    assert "tiny_training has no run 'averagd'; did you mean 'averaged'?" in str(copy.errors())


def test_an_id_twice_is_refused(copy):
    add(copy, entry(id="gradient", term="slope"))
    assert "duplicate term id 'gradient'" in str(copy.errors())


def test_a_spelling_twice_is_refused(copy):
    add(copy, entry(id="slope", term="Gradients"))
    assert "'Gradients' stands in the glossary more than once" in str(copy.errors())


def test_a_term_that_no_lesson_uses_is_refused(copy):
    add(copy, entry(id="bubble", term="bubble"))
    with pytest.raises(ContentErrors, match="no lesson uses 'bubble'; delete the term, or use it"):
        rendering.render(copy.load())


def test_a_term_that_no_run_can_show_names_none(copy):
    add(copy, entry(id="averaging", term="averaging").rsplit("    run:", 1)[0])
    page = rendering.render(copy.load())["glossary.md"]
    assert "Shown by" not in page.split('id="term-averaging"')[1].split("</dd>")[0]


def test_a_collective_of_the_glossary_names_a_run_that_recorded_it():
    content = Path(__file__).parents[2] / "content"
    terms = yaml.safe_load((content / "glossary.yml").read_text(encoding="utf-8"))["terms"]
    names = {"all_reduce", "all_gather", "reduce_scatter", "broadcast"}
    found = 0
    for one in terms:
        for operation in names & {one["id"].replace("-", "_")}:
            experiment, run = one["run"].split(".")
            trace = content / "traces" / "reference-cpu-2c" / f"{experiment}.json"
            ranks = json.loads(trace.read_text(encoding="utf-8"))["runs"][run]["ranks"]
            assert operation in {call["operation"] for call in ranks[0]["collectives"]}
            found += 1
    assert found == len(names)
