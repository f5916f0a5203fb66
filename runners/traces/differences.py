"""Programs stored as differences from another one, such as the wrong programs of a lab. No torch.

In: `wrong.yml` of a lab, beside its `solved.py`. Out: a `WrongProgram` each, with its whole text.
Its `changes` are lines of the solution, each behind a mark, which stand together there once:

    @    for gradient in gradients:
    -        bucket.append(gradient)
    +        bucket.append(gradient.clone())

A line with `@` stays, one with `-` goes, and lines with `+` come in after them. `-...` stands for
all lines up to the next one, or to the end. A change ends after its `+`, or before an empty line.
"""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import yaml

from proofbook.runners.system.book import ROOT
from proofbook.runners.system.errors import FixableError

_CHANGE = re.compile(r"(?P<old>(?:[@-].*\n)+)(?P<added>(?:\+.*\n)*)|\n|(?P<rest>.+\n)")
_ANY_LINES = "-..."
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class MisfitError(ValueError):
    """A change that does not fit its program; `line` of the changes, from 0, is to blame."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


def changed(program: str, changes: str) -> str:
    """The text of a program with changes made; each is looked up in the text as it was.

    MisfitError where the lines of a change stand there nowhere or several times, or lack a mark.
    """
    spans = []
    for change in _CHANGE.finditer(f"{changes.rstrip()}\n"):
        number = changes.count("\n", 0, change.start())
        if change["rest"]:
            raise MisfitError(number, "mark lines with @ or -, and behind them those to add with +")
        if change["old"]:
            old = change["old"].splitlines()
            stays = [line[1:] for line in old if line[0] == "@"]
            added = [line[1:] for line in change["added"].splitlines()]
            text = "".join(f"{line}\n" for line in (*stays, *added))
            spans.append((*_span(program, old, number), text, number))
    parts, end = [], 0
    for start, stop, text, number in sorted(spans):
        if start < end:
            raise MisfitError(number, "another change has these lines, too; make one of both")
        parts += [program[end:start], text]
        end = stop
    return "".join([*parts, program[end:]])


def _span(program: str, old: list[str], number: int) -> tuple[int, int]:
    """Where the lines of a change stand in a program, in characters."""
    lines = [r"(?:.*\n)*?" if line == _ANY_LINES else re.escape(line[1:]) + r"\n" for line in old]
    end = r"\Z" if old[-1] == _ANY_LINES else ""
    places = list(re.finditer(rf"^(?=({''.join(lines)}{end}))", program, re.MULTILINE))
    if len(places) == 1:
        return places[0].span(1)
    if places:
        at = ", ".join(str(program.count("\n", 0, place.start()) + 1) for place in places)
        message = f"stands in lines {at} of the program; put the line before it first, with @"
        raise MisfitError(number, f"{old[0][1:].strip()!r} {message}")
    known = {_ANY_LINES, *(mark + line for line in program.splitlines() for mark in "@-")}
    for position, line in enumerate(old):
        if line not in known:
            message = "is no line of the program; copy it from there, as it is indented"
            raise MisfitError(number + position, f"{line[1:].strip()!r} {message}")
    raise MisfitError(number, "the program has these lines, but not together; part them")


@dataclass(frozen=True)
class WrongProgram:
    """A program of a lab that has to fail."""

    file: Path  # `wrong.yml`, which states it
    name: str  # its own, unique in the lab
    place: tuple[int, int]  # line and column of its changes in the file, from 1
    mistake: str  # the error of thought behind it, in a sentence
    fails: str  # the requirement that fails first: `sends`, or by ranks, `peak on 2, sends on 4`
    changes: str  # from the solution
    ends: str = ""  # `hung` or `exception`; empty where all ranks return

    @property
    def path(self) -> Path:
        """The name of its text, by which traces know it; there is no such file."""
        return self.file.with_suffix("") / f"{self.name}.py"

    def assembled(self) -> str:
        """Text of `solved.py` changed, how it fails, the mistake as docstring; or MisfitError."""
        path = self.file.with_name("solved.py")
        if not path.is_file():
            raise MisfitError(0, "there is no solved.py beside this file")
        solution = path.read_text(encoding="utf-8")
        _, _, code = changed(solution, self.changes).removeprefix('"""').partition('"""')
        ends = f"# ends: {self.ends}\n" if self.ends else ""
        return f'# fails: {self.fails}\n{ends}"""{self.mistake}"""{code}'

    @cached_property
    def text(self) -> str:
        """The text as `assembled`; FixableError at the place of a change that does not fit."""
        try:
            return self.assembled()
        except MisfitError as error:
            line, column = self.place
            place = f"{_from_root(self.file)}:{line + error.line}:{column}"
            raise FixableError(f"{place}: {error}") from None


def wrong_programs(file: Path) -> list[WrongProgram]:
    """A `WrongProgram` for each that a `wrong.yml` states, in its order; [] without such a file.

    FixableError where it is not written as such a file is.
    """
    text = file.read_text(encoding="utf-8") if file.is_file() else "programs: {}"
    programs = []
    try:
        ((_, stated),) = yaml.compose(text, Loader=_LOADER).value  # type: ignore[union-attr]
        for name, keys in stated.value:
            values = {key.value: value.value for key, value in keys.value}
            (start,) = (value.start_mark for key, value in keys.value if key.value == "changes")
            line = text.splitlines()[start.line + 1]
            place = start.line + 2, len(line) - len(line.lstrip()) + 1
            programs.append(WrongProgram(file, name.value, place, **values))
    except (yaml.YAMLError, AttributeError, IndexError, TypeError, ValueError):
        advice = "it is not as such a file is written; `python -m generator check` says where"
        raise FixableError(f"{_from_root(file)}: {advice}") from None
    return programs


def _from_root(file: Path) -> Path:
    return file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
