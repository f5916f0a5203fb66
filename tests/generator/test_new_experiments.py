"""Runs of an author that the reference machine lacks: a strict build shows and marks them."""

import json

import pytest

from generator.content.book import load
from generator.evidence.evaluation import Evidence
from generator.pages.press import Press

REFERENCE = "reference-frozen"
MARK = "Not measured on the reference machine."


def fresh(_):
    return False


@pytest.fixture
def strict(copy):
    """Loads the book as `make pages` does, on a machine whose folder `desk` is not committed."""
    copy.add_machine("desk", "tiny_memory", "tiny_training")

    def loaded(is_stale=fresh):
        return load(copy.content, REFERENCE, is_stale, only={REFERENCE}, with_new=True)

    return loaded


def without_run(copy, experiment, run):
    path = copy.trace(experiment)
    document = json.loads(path.read_text())
    del document["runs"][run]
    path.write_text(json.dumps(document))


def on_pages(book):
    return {path: text.decode() for path, text in Press().printed(book).items()}


def test_an_experiment_that_only_this_machine_has_measured_is_shown_and_marked(copy, strict):
    copy.trace("tiny_memory").unlink()
    book = strict()
    shown = book.traces["tiny_memory"]
    assert (shown.folder, shown.is_fallback) == ("desk", True)
    assert list(book.machines["desk"].traces) == ["tiny_memory"]
    marked = {path for path, text in on_pages(book).items() if MARK in text}
    assert "topics/sharding/experiment.md" in marked
    assert "topics/averaging/experiment.md" not in marked


def test_a_run_that_only_this_machine_has_measured_is_shown_and_marked(copy, strict):
    without_run(copy, "tiny_memory", "halves_budget")
    book = strict()
    of_desk = Evidence(book).value("tiny_memory.halves_budget.world_size")
    of_reference = Evidence(book).value("tiny_memory.whole.world_size")
    assert (of_desk.origin.machine, of_reference.origin.machine) == ("desk", REFERENCE)
    said = f"{MARK}</strong> <code>desk</code> measured <code>tiny_memory.halves_budget</code>"
    assert said in "".join(on_pages(book).values())


def test_runs_of_two_machines_are_compared_in_no_verdict(copy, strict):
    names = [n for n, one in Evidence(copy.load()).book.claims.items() if "halves" in str(one)]
    without_run(copy, "tiny_memory", "halves")
    evidence = Evidence(strict())
    spread = [one for one in map(evidence.outcome, names) if len(one.runs) > 1]
    assert spread
    assert {one.verdict for one in spread} == {"does_not_apply"}


def test_a_stale_trace_of_this_machine_stands_in_for_none(copy, strict):
    """Then the message's remedy, `run`, measures it: it is no longer fresh."""
    copy.trace("tiny_memory").unlink()
    book = strict(lambda trace: trace.experiment == "tiny_memory")
    assert "tiny_memory" not in book.traces
