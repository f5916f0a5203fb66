"""The glossary: each term once, with a run that is there, linked where a lesson uses it first."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from markupsafe import Markup

from generator.content.glossary import Term
from generator.pages.term_links import TermLinks
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


@pytest.mark.parametrize(
    "html",
    [
        '<p><a href="x">rank</a></p>',
        "<p><code>rank</code></p>",
        '<p title="rank">Nothing.</p>',
    ],
)
def test_no_term_is_linked_in_a_link_code_or_a_value(html):
    page = links(("rank",))
    assert page.linked(Markup(html)) == html
    assert linked(page, "<p>rank</p>")


@pytest.mark.builds
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


def add(copy, text):
    """Write an entry below the others."""
    terms, below, rest = (copy.content / FILE).read_text().partition("\nsynonyms:")
    (copy.content / FILE).write_text(terms + text + below + rest)
