"""The functions of expressions, as a table at the end of `python -m generator keys`.

In: a book. Out: a row for each function: its parameters, what its docstring says of it, and the
shortest expression of the book that calls it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress

from generator.content import prose
from generator.content.book import Book
from generator.content.documents import Field
from generator.content.keys import line
from generator.evidence.expression import Function, compiled
from generator.evidence.filters import FUNCTIONS, OF_CLAIMS
from generator.evidence.value import ExpressionError

_OPENING = """
## Functions

An expression starts from an experiment, `machine`, `primitives` or `cited`, or from a name that
`with:` or `for:` gives. `python -m runners show RUN` prints the expression of each value of a run.
`a | f(b)` is `f(a, b)`, where `a` is the whole sum before `|`.

| function | is | example |
|---|---|---|"""


def table(book: Book) -> Iterator[str]:
    """The lines of the table."""
    examples: dict[str, str] = {}
    for text in (text for document in book.documents for text in _written(document.fields)):
        with suppress(ExpressionError):  # a mistake, which a check reports
            for name in compiled(text).functions:
                examples[name] = min(examples.get(name, text), text, key=len)
    rows = {f"{name}({_parameters(one)})": _about(one) for name, one in FUNCTIONS.items()}
    rows |= {f"{name}(claim)": about for name, about in OF_CLAIMS.items()}
    yield _OPENING
    for function, about in rows.items():
        example = examples.get(function.partition("(")[0], "")
        yield f"| `{function}` | {line(about)} | {example and line(f'`{example}`')} |"


def _written(fields: tuple[Field, ...]) -> Iterator[str]:
    """The expressions of a file."""
    for one in fields:
        if one.mark in ("line", "prose"):
            yield from (found.text for found in prose.expressions(one.text))
        elif one.mark in ("expression", "per_run", "formula"):
            yield one.text


def _about(function: Function) -> str:
    return (inspect.getdoc(function) or "").partition("\n\n")[0]


def _parameters(function: Function) -> str:
    """What a function takes; in brackets, what may be left out."""
    return ", ".join(
        name if one.default is one.empty else f"[{name}]"
        for name, one in inspect.signature(function).parameters.items()
    )
