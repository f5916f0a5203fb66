"""The real book as a newcomer's machine shows it: whole pages, each section from one machine.

The machine is the second one whose traces are committed. It ran what `make site` runs, and no
`--full`.
"""

import re
from pathlib import Path

import pytest

from generator.content.book import load
from generator.pages import rendering
from runners.plans.experiment import whole_is_full
from tests.conftest import ROOT
from tests.whole_pages import comes_first, holes, mixed, unsound

MACHINE = "cpu-2c-84b10e/1-of-2-cores"
REFERENCE = "reference-cpu-2c"
BOTH = (MACHINE, REFERENCE)


def never_stale(_):
    """What edits of code do to a trace is another test's."""
    return False


@pytest.fixture(scope="module")
def newcomers():
    return load(ROOT / "content", MACHINE, never_stale)


@pytest.fixture(scope="module")
def pages(newcomers):
    return rendering.render(newcomers)


@pytest.fixture(scope="module")
def lessons(pages):
    return {path: text for path, text in pages.items() if path.startswith("topics/")}


def read_as_book(path):
    """Whether people read a page as text, rather than look something up in it."""
    return not path.startswith(("evidence", "machines/"))


def test_the_machine_is_a_newcomers(newcomers):
    own = newcomers.machines[MACHINE].traces
    heavy = {n for n, one in newcomers.traces.items() if n not in own and not one.is_plan}
    assert heavy
    assert all(map(whole_is_full, heavy))
    assert any(run.status == "skipped" for trace in own.values() for run in trace.runs.values())


def test_no_page_that_people_read_has_a_hole(pages):
    assert {path: found for path, text in pages.items() if read_as_book(path)
            and (found := holes(text))} == {}  # fmt: skip


def test_nothing_stands_above_the_first_sentence_of_a_page(pages):
    found = {
        path: said
        for path, text in pages.items()
        if not path.startswith("machines/c") and not path.startswith("machines/r")
        and (said := comes_first(text, BOTH))
    }  # fmt: skip
    assert found == {}


def test_each_section_comes_from_one_machine(pages):
    found = {path: said for path, text in pages.items() if read_as_book(path)
             and (said := mixed(text))}  # fmt: skip
    assert found == {}


def test_both_machines_are_behind_the_lessons_and_the_foot_names_them(lessons):
    feet = [text.split('class="pb-measured"')[1].split("</p>")[0] for text in lessons.values()
            if "pb-measured" in text]  # fmt: skip
    assert sum(f'machines/{MACHINE}.html"' in foot for foot in feet) > len(feet) / 2
    assert sum("needs a measurement which" in foot for foot in feet) > len(feet) / 3


def test_every_item_has_its_key_on_the_page_of_this_machine(lessons, newcomers):
    assert {path: found for path, text in lessons.items() if (found := unsound(text))} == {}
    asked = {name for text in lessons.values() for name in re.findall(r'data-item="([^"]+)"', text)}
    assert asked == {name for topic in newcomers.topics for name in topic.items}


def test_other_machines_are_named_on_some_lessons_and_not_on_all(lessons):
    naming = [path for path, text in lessons.items() if "pb-other-machines" in text]
    assert 0 < len(naming) < len(lessons) / 2


def test_no_verdict_table_of_a_lesson_shows_a_digest(lessons):
    for path, text in lessons.items():
        tables = re.findall(r"<table.*?</table>", text, re.DOTALL)
        verdicts = " ".join(one for one in tables if "pb-verdict" in one)
        values = re.findall(r'class="pb-value[^>]*>([^<]*)<', verdicts)
        assert not [one for one in values if re.fullmatch(r"[0-9a-f]{8,}", one)], path
    assert any("equal to the bit</a>" in text for text in lessons.values())


# What the checks above find, where there is something to find.
PAGE = """---
title: x
---
# A page

<p class="pb-meta">Learn</p>

<div class="pb-lede"><p>A sentence.</p></div>

## One

<a data-v="0">1</a>

## Two

<a data-v="1">1</a>

<script type="application/json" id="pb-sources">{"runs": [["desk", "a", "b"], ["shed", "a", "b"]],
"values": [["1", 1, "loss", 0], ["1", 2, "2 * x", [2]], ["x", 1, "skipped here", 1]]}</script>
"""
CHOICE = (
    '<form class="pb-item" data-item="which" data-digest="d" data-kind="choice"{open}>'
    '<div class="pb-option"></div><div class="pb-option"></div></form>{answers}'
)
RIGHT, WRONG = '<li data-verdict="right" data-position="0">', '<li data-verdict="wrong">'


def test_a_sound_page_is_found_sound():
    assert holes(PAGE) == comes_first(PAGE, ("desk", "shed")) == mixed(PAGE) == []


@pytest.mark.parametrize(
    "said",
    [
        '<button class="pb-value pb-measured pb-absent">n/a</button>',
        "<button>not measured here</button>",
        "Does not apply here: a reason.",
        '<a class="pb-verdict pb-no-evidence" href="#">none</a>',
        "<p>The run was skipped here.</p>",
    ],
)
def test_a_hole_is_found(said):
    assert len(holes(PAGE.replace("A sentence.", said))) == 1


@pytest.mark.parametrize("above", ['<div class="pb-notice">', "measured on <code>desk</code>"])
def test_a_notice_or_a_machine_above_the_first_sentence_is_found(above):
    assert len(comes_first(PAGE.replace("Learn", above), ("desk", "shed"))) == 1


def test_a_section_from_two_machines_is_found():
    assert mixed(PAGE.replace("## Two\n", "")) == ["## One"]


@pytest.mark.parametrize(
    ("answers", "opened", "found"),
    [
        (RIGHT + WRONG, "", []),
        (WRONG + WRONG, "", ["which"]),
        (RIGHT + RIGHT, "", ["which"]),
        (RIGHT + WRONG, " data-open", ["which"]),
    ],
)
def test_an_item_without_one_right_option_is_found(answers, opened, found):
    assert unsound(CHOICE.format(answers=answers, open=opened)) == found


def test_a_number_without_its_value_is_found():
    item = CHOICE.replace("choice", "number").replace("{open}", "")
    assert unsound(item.format(answers='<li data-verdict="right" data-number="2">')) == []
    assert unsound(item.format(answers='<li data-verdict="right">')) == ["which"]


def test_machines_are_a_page_under_evidence():
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:")[1].split("\ntheme:")[0]
    assert "evidence.md" in nav
    assert "machines" not in nav


def test_every_page_of_a_machine_says_which_page_of_the_header_stands_for_it(pages):
    below = [path for path in pages if path.startswith(("machines/", "evidence/"))]
    assert below
    assert all("\nunder: evidence.md\n" in pages[path] for path in below)
    assert 'href="machines/index.html"' in pages["evidence.md"]
    assert Path("machines/index.md").as_posix() in pages


def test_the_number_of_a_trial_stands_in_the_printed_output_or_is_named(lessons):
    seen = 0
    for path, text in lessons.items():
        for trial in text.split("\n## ")[1:] if path.endswith("/try.md") else []:
            printed = re.search(r'<div class="pb-printed">(.*?)</div>', trial, re.DOTALL)
            told = re.search(r"look for, from the book(?:'|&#39;)s run: (.*?)</p>", trial)
            if printed and "which the output does not contain: " not in trial:
                number = re.sub(r"<[^>]+>", "", told[1]).replace("\u00a0", " ")
                assert number.rstrip(".") in printed[1], (path, number)
            seen += bool(printed)
    assert seen > 20


def test_the_figure_of_a_summary_leans_on_nothing_that_stands_in_the_lesson_alone(lessons):
    captions = [
        re.sub(r"<[^>]+>", "", caption)
        for path, text in lessons.items()
        if path.endswith("/summary.md")
        for caption in re.findall(r'<p class="pb-caption">(.*?)</p>', text, re.DOTALL)
    ]
    assert len(captions) == 5
    leaning = re.compile(r"\b(above|below|previous|the program|[Aa]nother model)\b")
    assert [one for one in captions if leaning.search(one)] == []
