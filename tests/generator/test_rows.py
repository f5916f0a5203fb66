"""Rows of tables: those that say something can be linked to, and are entries of the search."""

from markupsafe import Markup

from proofbook.generator.pages import facts
from proofbook.generator.pages.elements.element import Heading, Waiting
from proofbook.generator.pages.elements.tables import Table

TITLES = ["What the program prints", "What it means, and what to do", "#Share"]
SAYS = Markup("The network or another rank has failed.")
NUMBER = Markup("The share of a step that ranks idle: 3.5 %")


def table(*rows, **more):
    table = Table(TITLES[: len(rows[0])], rows, **more)
    table.give_ids(set())
    return table


def searched(*content):
    return facts.searched(content, Heading(1, Markup("It"), "it"), is_markdown=False)


def test_a_row_that_says_something_has_an_anchor_of_its_first_cell():
    message = Markup("<code>ncclRemoteError</code><br>A call failed")
    rows = table(
        (message, SAYS, NUMBER), (message, SAYS, NUMBER), (Markup("four ranks"), Markup(), NUMBER)
    )
    assert rows.anchors == [
        "row-ncclremoteerror-a-call-failed",
        "row-ncclremoteerror-a-call-failed_1",
        "",
    ]
    assert '<tr id="row-ncclremoteerror-a-call-failed_1">' in Markup(rows)


def test_a_row_of_one_cell_has_none():
    assert table([Markup("A B C D E four ranks and more")]).anchors == [""]


def test_an_anchor_that_a_row_has_stays():
    assert table((Markup("Lost"), SAYS), anchors=["cause-lost"]).anchors == ["cause-lost"]


def test_a_row_with_an_anchor_is_an_entry_and_no_number_of_a_cell_is_in_it():
    sections = searched(table((Markup("A rank has failed"), SAYS, NUMBER)))
    assert '<h2 id="row-a-rank-has-failed">A rank has failed</h2>' in sections
    assert "another rank has failed" in sections
    assert "What the program prints" in sections
    assert "idle" not in sections


def test_a_row_that_waits_for_an_answer_is_none():
    waiting = Waiting("asked", "a table", [table((Markup("A rank"), SAYS))])
    assert "rank" not in searched(waiting)
