"""A trace that was edited after it was measured fails a strict build, with one line."""

from generator.evidence.evaluation import Evidence
from generator.evidence.verdicts import problems
from runners.traces.values import EDITED, list_values

FILE = "content/traces/reference-frozen/tiny_training.json"


def _problems(copy):
    book = copy.load()
    return problems(book, Evidence(book))


def test_an_edited_trace_of_the_reference_machine_is_a_problem(copy):
    list_values(copy.content / "traces" / "reference-frozen")
    before = _problems(copy)
    assert not any(EDITED in line for line in before)
    copy.change_run("tiny_training.single", printed=["another line"])
    assert [line for line in _problems(copy) if line not in before] == [f"{FILE}: {EDITED}"]


def test_an_edited_trace_of_another_machine_is_a_problem(copy):
    copy.add_machine("desk", "tiny_memory")
    list_values(copy.content / "traces" / "desk")
    copy.change_run("tiny_memory.whole", machine="desk", printed=["another line"])
    assert f"content/traces/desk/tiny_memory.json: {EDITED}" in _problems(copy)


def test_a_broken_list_is_an_error_of_the_book(copy):
    (copy.content / "traces" / "reference-frozen" / "values.json").write_text("[]")
    (error, *_) = copy.errors()
    assert error.startswith("content/traces/reference-frozen/values.json: not an object of digests")
