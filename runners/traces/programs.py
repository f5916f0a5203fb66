"""The programs that pages show, and how each declares its ranks and settings. No torch.

In: the files of `content/topics/*/code/`. Out: a `Program` each, with

    ranks        from the command in its docstring: torchrun --nproc-per-node 2 summed_right.py
    settings     its upper-case constants, by lower-case name
    expected     and budget_bytes, from comments that stand by themselves:

        # expected: out_of_memory
        # model_bytes: 4 * DEPTH * WIDTH * WIDTH
        # budget_bytes: 3 * model_bytes // 2

A value is arithmetic in Python over the constants and the names declared above it; a name other
than `expected` and `budget_bytes` becomes one more setting. Adding a program touches no other file.
"""

import ast
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from proofbook.runners.core.trace.machine import from_home
from proofbook.runners.core.trace.schema import Setting, Status
from proofbook.runners.system.errors import FixableError

COMMAND = re.compile(r"torchrun (?:\S+ )*?--nproc-per-node (?P<ranks>\d+) (?P<file>\S+\.py)")
DECLARED = re.compile(r"^# (?P<name>[a-z][a-z0-9_]*): (?P<value>.+)$")
# A program cannot declare how it dies; an experiment's `Declaration` can.
OUTCOMES = {known: known for known in get_args(Status) if known != "died"}
ARITHMETIC = (
    ast.Expression, ast.BinOp, ast.Constant, ast.Name, ast.Load,
    ast.Add, ast.Sub, ast.Mult, ast.FloorDiv,
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    """One program: its ranks, its expected outcome, its settings."""

    path: Path
    ranks: int
    expected: Status = "completed"
    budget_bytes: int | None = None
    settings: dict[str, Setting] = field(default_factory=dict)


def programs_matching(root: Path, pattern: str) -> dict[str, Program]:
    """By file name without `.py`: a `Program` read from each path below `root` that matches a glob.

    FixableError where two have one name, or one does not say how to run it.
    """
    programs: dict[str, Program] = {}
    for path in sorted(root.glob(pattern)):
        if path.stem in programs:
            other = from_home(programs[path.stem].path)
            raise FixableError(
                f"{from_home(path)}: {other} has this name too; a program is known by its file's "
                "name in the whole book"
            )
        programs[path.stem] = read(path)
    return programs


def read(path: Path) -> Program:
    """A Program from constants, `# name: value` comments, docstring's command; or FixableError."""
    text, tree = _parsed(path)
    settings = constants(tree)
    names: dict[str, object] = {**settings, **{name.upper(): settings[name] for name in settings}}
    expected: Status = "completed"
    for place, line in enumerate(text.splitlines(), start=1):
        if (match := DECLARED.match(line)) is None:
            continue
        name, value = match["name"], match["value"].strip()
        try:
            if name == "expected":
                expected = OUTCOMES[value]
            else:
                settings[name] = names[name] = _number(value, names)
        except Exception as error:  # noqa: BLE001 whatever somebody wrote there
            known = f"; there are {', '.join(OUTCOMES)}" if name == "expected" else ""
            raise FixableError(f"{from_home(path)}:{place}: {name}: {error}{known}") from None
    budget: Any = settings.pop("budget_bytes", None)
    ranks = _ranks(path, ast.get_docstring(tree) or "")
    return Program(path, ranks, expected, None if budget is None else int(budget), settings)


def _number(text: str, names: dict[str, object]) -> int | float:
    """Arithmetic over numbers and names: no call, no attribute, nothing that could act."""
    tree = ast.parse(text, mode="eval")
    if not all(isinstance(node, ARITHMETIC) for node in ast.walk(tree)):
        raise ValueError("may hold numbers, names of the program, brackets and + - * //")
    number = eval(compile(tree, "", "eval"), {"__builtins__": {}}, names)
    if not isinstance(number, int | float):
        raise ValueError(f"{number!r} is no number")
    return number


def _parsed(path: Path) -> tuple[str, ast.Module]:
    try:
        text = path.read_text(encoding="utf-8")
        return text, ast.parse(text)
    except (SyntaxError, ValueError) as error:  # or no UTF-8
        line, message = getattr(error, "lineno", None) or 1, getattr(error, "msg", error)
        raise FixableError(f"{from_home(path)}:{line}: {message}") from None


def _ranks(path: Path, docstring: str) -> int:
    for command in COMMAND.finditer(docstring):
        if command["file"] == path.name and int(command["ranks"]) > 0:
            return int(command["ranks"])
    raise FixableError(
        f"{from_home(path)}:1: the docstring must hold the command that runs it, such as "
        f"torchrun --nproc-per-node 2 {path.name}"
    )


def constants(tree: ast.Module) -> dict[str, Setting]:
    """By lower-case name: the value of each upper-case constant at a program's top level."""
    settings: dict[str, Setting] = {}
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                pairs = list(zip(names, values, strict=False))
            case ast.Assign(targets=[name], value=value):
                pairs = [(name, value)]
            case _:
                continue
        for name, value in pairs:
            match name, value:
                case ast.Name(id=word), ast.Constant(value=int() | float() | str() as constant):
                    if word.isupper():
                        settings[word.lower()] = constant
    return settings
