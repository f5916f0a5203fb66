"""A trace that was edited after it was measured fails a strict build, with one line."""

import pytest

from generator.evidence.evaluation import Evidence
from generator.evidence.verdicts import problems
from runners.traces.values import EDITED, list_values


@pytest.mark.parametrize("machine", ["reference-frozen", "desk"])
def test_an_edited_trace_is_a_problem(copy, machine):
    copy.add_machine("desk", "tiny_memory")
    list_values(copy.content / "traces" / machine)
    copy.change_run("tiny_memory.whole", machine, printed=["another line"])
    book = copy.load()
    told = [line for line in problems(book, Evidence(book).outcomes) if EDITED in line]
    assert told == [f"content/traces/{machine}/tiny_memory.json: {EDITED}"]


def test_a_broken_list_is_an_error_of_the_book(copy):
    (copy.content / "traces" / "reference-frozen" / "values.json").write_text("[]")
    (error, *_) = copy.errors()
    assert error.startswith("content/traces/reference-frozen/values.json: not an object of digests")
