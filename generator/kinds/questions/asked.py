"""What a question asks for, against what its key reads of the runs.

In: an item and the evidence. Out: where a claim that makes an answer right reads none of the values
that the item declares under `asks:`, and where a typed answer is read from a run that none of its
claims, nor what the reader sees of the question, is about. Such a key would stay as it is although
what the question asks about had changed.
"""

import re
from collections.abc import Iterator

from proofbook.generator.content.documents import fields_of
from proofbook.generator.content.errors import ContentError
from proofbook.generator.content.quiz import Drawable, Item
from proofbook.generator.content.yaml_source import Mistake
from proofbook.generator.kinds.questions.kinds import kind_of
from proofbook.generator.values import units
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.value import ExpressionError

_KEYED = re.compile(r"\[[^\]]*\]")  # a place in a list or a dict, as in `ranks[0]`
_VISIBLE = ("stem", "this_table", "exhibit")


def mistakes(question: Item, evidence: Evidence) -> Iterator[Mistake]:
    """Yield (path, message): right answers whose claims, and answers whose runs, are not asked.

    Of drawn numbers, the key is the law itself.
    """
    is_drawn = isinstance(question, Drawable) and question.draws
    if is_drawn or not evidence.rests_on_runs or evidence.reference:
        return
    try:
        deciding = [*kind_of(question, evidence).deciding_claims()]
    except (ContentError, ExpressionError, units.UnitError):
        return  # said where it is written
    for path, claim in deciding:
        read = _fields_read(claim, evidence)
        if not any(_is_asked(name, field) for name in question.asks for field in read):
            names = ", ".join(names_read(claim, evidence))
            if question.asks:
                yield path, f"claim {claim!r} reads {names}, and none of what asks: names"
            else:
                lack = "name under asks: the values that the question asks for"
                yield path, f"{lack}; claim {claim!r}, which makes this right, reads {names}"
    yield from _from_another_run(question, evidence)


def names_read(claim: str, evidence: Evidence) -> list[str]:
    """The names of the measured values that a claim of the book reads, each once."""
    return [*dict.fromkeys(field.rpartition(".")[2] for field in _fields_read(claim, evidence))]


def _fields_read(claim: str, evidence: Evidence) -> list[str]:
    sides = evidence.sides(evidence.book.claims[claim])
    return [_KEYED.sub("", field) for side in sides for field in side.measured]


def _is_asked(name: str, field: str) -> bool:
    """Whether a measured field has the names of an entry in their order, and ends with its last."""
    steps = iter(field.split("."))
    return all(part in steps for part in name.split(".")) and next(steps, None) is None


def _from_another_run(question: Item, evidence: Evidence) -> Iterator[Mistake]:
    answer = getattr(question, "answer", None)
    if answer is None:
        return
    claims = (evidence.book.claims.get(claim) for claim in question.claims)
    sides = [side for claim in claims if claim for side in evidence.sides(claim)]
    visible = [
        evidence.evaluate(expression)
        for field in fields_of(question)
        if field.path[0] in _VISIBLE
        for expression in ([field.text] if field.mark == "run" else field.expressions)
    ]
    about = {run for read in sides or visible for run in read.runs}
    others = [run for run in evidence.evaluate(answer).runs if run not in about]
    if about and others:
        what = "its claims are" if sides else "its stem, table and exhibit are"
        lack = "name a claim about this run, or read one that they are about"
        yield ("answer",), f"reads {' and '.join(others)}, and {what} about other runs; {lack}"
