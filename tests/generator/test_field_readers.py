"""Who reads which field: claims and pages, by what they take and not by what they name."""

import re

import pytest

from generator.__main__ import main
from generator.pages import field_readers
from generator.pages.watched_traces import watched
from tests.generator.conftest import FROZEN


@pytest.fixture(scope="module")
def readers(book):
    return field_readers.readers(book)


def test_a_field_is_read_by_the_claim_whose_rule_names_it(readers, book):
    """An oracle of its own: the plain paths that rules are written with."""
    num = 0
    for name, claim in book.claims.items():
        path = claim.observed
        if re.fullmatch(r"[a-z_.]+(\[\d+\])?[a-z_.]+", path) and not claim.run and path in readers:
            assert f"claim {name}" in readers[path], path
            num += 1
    assert num > 2


def test_what_a_view_takes_without_an_expression_is_read_by_its_page(readers):
    """The figure of the epochs walks through the run by itself."""
    assert "topics/averaging/learn.md" in readers["tiny_training.averaged.epochs[0].loss"]


def test_what_nobody_takes_has_no_reader(readers):
    assert readers["tiny_training.averaged.seed"] == ()


def test_an_element_of_a_list_is_read_by_itself(book):
    seen, watch = watched(book)
    trace = seen.traces["tiny_training"].trace
    losses = next(run for run in trace.runs.values() if run.step_losses).step_losses
    with watch.reading() as found:
        _ = losses[-1]
    assert [path.rpartition("[")[2] for path in found] == [f"{len(losses) - 1}]"]
    with watch.reading() as found:
        list(losses)
    assert len(found) == len(losses)


def test_a_result_that_is_known_already_counts_for_each_who_asks(book):
    seen, watch = watched(book)
    evidence = field_readers._Noting(seen, watch)
    expression = "tiny_training.averaged.epochs[-1].loss"
    found = []
    for _ in range(2):
        with watch.reading() as read:
            evidence.value(expression)
        found.append({path for path in read if "epochs" in path})
    assert found[0] == found[1] != set()


def test_the_watched_book_prints_what_the_book_prints(book):
    """Watching changes no page."""
    from generator.pages.press import Press

    assert Press().printed(watched(book)[0]) == Press().printed(book)


def test_the_command_lists_fields_by_experiment_and_readers_by_run(capsys, monkeypatch):
    monkeypatch.setenv("PROOFBOOK_MACHINE", "reference-frozen")
    assert main(["coverage", "--content", str(FROZEN), "tiny_training"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "tiny_training.*.seed (3): nobody" in lines
    assert re.fullmatch(r"[\d,]+ values, of which [\d,]+ are read by nobody", lines[-1])
    assert main(["coverage", "--content", str(FROZEN), "tiny_training.averaged"]) == 0
    out = capsys.readouterr().out
    assert re.search(
        r"^tiny_training\.averaged\.epochs\[\]\.loss .*topics/averaging/learn\.md", out, re.M
    )
