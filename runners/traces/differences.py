"""Programs stored as differences from another one, such as the wrong programs of a lab. No torch.

In: `wrong.yml` of a lab, beside its `solved.py`. Out: a `WrongProgram` each, with its whole text.
Its `changes` are lines of the solution, each behind a mark, which stand together there once:

    @    for gradient in gradients:
    -        bucket.append(gradient)
    +        bucket.append(gradient.clone())

A line with `@` stays, one with `-` goes, and lines with `+` come in after them. `-...` stands for
all lines up to the next one, or to the end. A change ends with its `+`, or with an empty line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import yaml

from runners.system.book import ROOT
from runners.system.errors import FixableError

REST = "..."  # behind a `-`: the lines up to the next one
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class MisfitError(ValueError):
    """A change that does not fit its program; `line` of the changes, from 0, is to blame."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass
class _Change:
    """Consecutive lines of a program, and the lines that follow those of them that stay."""

    line: int  # of the changes, from 0, at which it begins
    old: list[str] = field(default_factory=list)
    stays: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)


def changed(program: str, changes: str) -> str:
    """The text of a program with changes made; each is looked up in the text as it was.

    Raises:
        MisfitError: the lines of a change stand there nowhere, or several times.
    """
    lines = program.splitlines()
    spans = [(*_span(lines, change), change) for change in _changes(changes)]
    spans.sort(key=lambda span: span[:2])
    made: list[str] = []
    end = 0
    for start, stop, change in spans:
        if start < end:
            raise MisfitError(change.line, "another change has these lines, too; make one of both")
        made += [*lines[end:start], *change.stays, *change.added]
        end = stop
    return "\n".join([*made, *lines[end:], ""])


def _changes(text: str) -> Iterator[_Change]:
    change: _Change | None = None
    for number, line in enumerate(text.splitlines()):
        mark, code = line[:1], line[1:]
        if mark not in ("@", "-", "+", ""):
            raise MisfitError(number, "begin with @ (it stays), - (it goes) or + (it comes in)")
        if mark == "+":
            if change is None:
                raise MisfitError(number, "say where: lines with + follow one with @ or -")
            change.added.append(code)
            continue
        if change and (change.added or not mark):
            yield change
            change = None
        if mark:
            change = change or _Change(number)
            change.old.append(code)
            change.stays += [code] * (mark == "@")
    if change:
        yield change


def _span(lines: list[str], change: _Change) -> tuple[int, int]:
    """The first line of a program that a change is about, and the line after its last one."""
    head, tail = change.old, None
    if REST in head:
        at = head.index(REST)
        head, tail = head[:at], head[at + 1 :]
    spans = []
    for start in _places(lines, head):
        stop: int | None = start + len(head)
        if tail is not None:
            ends = (end + len(tail) for end in _places(lines, tail) if end >= start + len(head))
            stop = next(ends, None) if tail else len(lines)
        if stop is not None:
            spans.append((start, stop))
    if len(spans) == 1:
        return spans[0]
    if spans:
        found_at = " and ".join(str(start + 1) for start, _ in spans)
        said = (
            f"stands {len(spans)} times, in lines {found_at}; put the line before it first, with @"
        )
        raise MisfitError(change.line, f"{head[0].strip()!r} {said}")
    missing = (number for number, line in enumerate(change.old) if line not in [*lines, REST])
    number = next(missing, None)
    if number is None:
        raise MisfitError(change.line, "these lines do not stand together; copy them once more")
    line = change.old[number].strip()
    said = f"{line!r} is no line of the program; copy it from there, as it is indented"
    raise MisfitError(change.line + number, said)


def _places(lines: list[str], wanted: list[str]) -> list[int]:
    num = len(wanted)
    return [at for at in range(len(lines) - num + 1) if lines[at : at + num] == wanted]


@dataclass(frozen=True)
class WrongProgram:
    """A program of a lab that has to fail.

    Attributes:
        file: `wrong.yml`, which states it.
        name: its own, unique in the lab.
        mistake: the error of thought behind it, in a sentence.
        fails: the requirement that fails first: `sends`, or by ranks, `peak on 2, sends on 4`.
        place: line and column of its code in the file, from 1.
        changes: how it differs from the solution; empty where it has a `program`.
        program: all of its code, where it has little in common with the solution.
        ends: `hung` or `exception`; empty where all ranks return.
    """

    file: Path
    name: str
    mistake: str
    fails: str
    place: tuple[int, int]
    changes: str = ""
    program: str = ""
    ends: str = ""

    @property
    def path(self) -> Path:
        """The name of its text, by which traces know it; there is no such file."""
        return self.file.with_suffix("") / f"{self.name}.py"

    @cached_property
    def text(self) -> str:
        """All of it, with comments that say how it fails.

        Raises:
            FixableError: as `assembled`.
        """
        try:
            return self.assembled()
        except MisfitError as error:
            line, column = self.place
            place = f"{_from_root(self.file)}:{line + error.line}:{column}"
            raise FixableError(f"{place}: {error}") from None

    def assembled(self) -> str:
        """As `text`.

        Raises:
            MisfitError: a change does not fit the solution, or what results is no Python.
        """
        head = [f"# fails: {self.fails}"] + [f"# ends: {self.ends}"] * bool(self.ends)
        try:
            solution = self.file.with_name("solved.py").read_text(encoding="utf-8")
            docstring = 0 if self.program else ast.parse(solution).body[0].end_lineno
            code = self.program or changed(solution, self.changes)
            lines = [*head, f'"""{self.mistake}"""', *code.splitlines()[docstring:], ""]
            ast.parse(text := "\n".join(lines))
        except FileNotFoundError:
            raise MisfitError(0, "there is no solved.py beside this file") from None
        except SyntaxError as error:
            line = (error.text or "").strip()
            raise MisfitError(0, f"what results is no Python: {error.msg}: {line!r}") from None
        return text


def wrong_programs(file: Path) -> list[WrongProgram]:
    """The wrong programs of a lab, in the order in which its `wrong.yml` has them.

    Raises:
        FixableError: it is not written as such a file is.
    """
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    programs = []
    try:
        ((_, stated),) = yaml.compose(text, Loader=LOADER).value  # type: ignore[union-attr]
        for name, parts in stated.value:
            fields = {key.value: value for key, value in parts.value}
            code = fields.get("changes") or fields["program"]
            line = code.start_mark.line + (code.style == "|")
            place = line + 1, len(lines[line]) - len(lines[line].lstrip()) + 1
            texts = {key: value.value for key, value in fields.items()}
            programs.append(WrongProgram(file, name.value, place=place, **texts))
    except (yaml.YAMLError, AttributeError, KeyError, TypeError, ValueError):
        said = "not as such a file is written; python -m generator check says where"
        raise FixableError(f"{_from_root(file)}: {said}") from None
    return programs


def _from_root(file: Path) -> Path:
    return file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
