"""The types of what an author writes: which fields are prose, which are expressions.

`Line` and `Prose` are Markdown in which `{{ … }}` is an expression over the traces and a bare
numeral is an error; `Line` renders inline, `Prose` as paragraphs. `Expression` is one expression
without the braces; in `PerRun` the word `run` stands for each of several runs, and in `Formula` the
inputs of a calculator stand for themselves. The marks are read by `checks.py`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints


class Mark(str):
    """What a string field is: `line`, `prose`, `expression`, `per_run` or `formula`."""


Line = Annotated[str, StringConstraints(min_length=1), Mark("line")]
Prose = Annotated[str, StringConstraints(min_length=1), Mark("prose")]
Expression = Annotated[str, StringConstraints(min_length=1, max_length=200), Mark("expression")]
PerRun = Annotated[str, StringConstraints(min_length=1, max_length=200), Mark("per_run")]
Formula = Annotated[str, StringConstraints(min_length=1, max_length=200), Mark("formula")]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$")]
Id = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*$")]
ClaimId = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z][a-z0-9]*(-[a-z0-9]+)*(@[a-z_]+\.[a-z0-9_]+)?$"),
    Field(description="a claim's id; with `for`, also its run: `all-reduce-payload@ddp.ddp`"),
]
RunPath = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z_]+\.[a-z0-9_]+$"),
    Field(description="experiment.run, as in `large_model.wide_single`"),
]


class Written(BaseModel):
    """Anything an author writes: unknown keys are errors, and so is the number nan."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
