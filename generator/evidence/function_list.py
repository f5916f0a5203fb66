"""The functions of expressions, as a table at the end of `python -m generator keys`.

Out: a row for each function: what it takes, and what its docstring says of it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator

from generator.content.keys import line
from generator.evidence.filters import FUNCTIONS, OF_CLAIMS

_OPENING = """
## Functions

An expression starts from an experiment, `machine`, `primitives` or `cited`, or from a name that
`with:` or `for:` gives. `python -m runners show RUN` prints the expression of each value of a run.
`a | f(b)` is `f(a, b)`, where `a` is the whole sum before `|`.

| function | is |
|---|---|"""


def table() -> Iterator[str]:
    """The lines of the table."""
    yield _OPENING
    for name, function in FUNCTIONS.items():
        takes = ", ".join(inspect.signature(function).parameters)
        about, _, _ = (inspect.getdoc(function) or "").partition("\n\n")
        yield f"| `{name}({takes})` | {line(about)} |"
    for name, about in OF_CLAIMS.items():
        yield f"| `{name}('claim')` | {about} |"
