"""The digest of an experiment's code: what decides whether a trace is stale. No torch.

It covers the syntax tree of the experiment's file, of every module of `COVERED` that it imports,
of the code that measures (`MEASURING`), and the texts of `content/` that it names. Comments,
docstrings, imports of our own modules and the sizes of a try are left out: none of them changes a
result. Programs that an experiment finds by a pattern, one a run, have a digest each, of their
whole text: a new one, or a changed one, leaves the runs of the others as they are.
"""

import ast
import hashlib
import os
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from runners.traces.schema import digest_of

ROOT = Path(__file__).resolve().parents[2]
# A folder of experiments beside ours: the tests' own, or ones not meant to be part of the book.
MORE = "PROOFBOOK_EXPERIMENTS"
COVERED = ("runners.experiments", "runners.training")
# What every run passes through: how its ranks are set up, metered, recorded and gathered.
MEASURING = (
    "runners/meters/*.py",
    "runners/ranks/*.py",
    "runners/measuring/endings.py",
    "runners/measuring/launch.py",
    "runners/measuring/gather.py",
)
# The fields of a node that hold statements.
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def experiment_files() -> dict[str, Path]:
    """The file that declares each experiment, by its name."""
    paths = list(ROOT.glob("runners/experiments/[!_]*.py"))
    if folder := os.environ.get(MORE):
        paths += Path(folder).glob("[!_]*.py")
    return {path.stem: path for path in sorted(paths)}


class _Read(NamedTuple):
    """What a file's text says to a digest.

    Attributes:
        content: what of it can change a result.
        modules: ours that it may import.
        programs: of `content/`, that it names whole or by a pattern with an asterisk.
    """

    content: bytes
    modules: frozenset[str] = frozenset()
    programs: tuple[str, ...] = ()


@cache
def _read(path: Path) -> _Read:
    text = path.read_bytes()
    return _Read(text) if path.is_relative_to(ROOT / "content") else _parsed(text)


@lru_cache(maxsize=512)
def _parsed(text: bytes) -> _Read:
    """Of a module's text; experiments share most of their modules."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # somebody has left it unfinished
        return _Read(text)
    programs = _programs(tree) if b"content/" in text else ()
    modules: set[str] = set()
    _strip(tree, modules)
    return _Read(dumped(tree).encode(), frozenset(modules), programs)


def _strip(node: ast.AST, modules: set[str]) -> None:
    """Take out of a tree what changes no result; `modules` gets the names of those of ours."""
    has_docstring = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    for name in BLOCKS:
        block = getattr(node, name, None)
        kept = []
        for place, one in enumerate(block if isinstance(block, list) else ()):
            match one:
                case ast.ImportFrom(module=str(module)) if module.startswith("runners"):
                    modules.add(module)
                    modules.update(f"{module}.{alias.name}" for alias in one.names)
                case ast.Assign(targets=[ast.Name(id="TRIED_WITH")]):
                    pass  # what an experiment declares for tries alone
                case ast.Expr(value=ast.Constant(value=str())) if has_docstring and not place:
                    pass
                case _:
                    _strip(one, modules)
                    kept.append(one)
        if isinstance(block, list):
            block[:] = kept


def _programs(tree: ast.Module) -> tuple[str, ...]:
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    named = (text for text in texts if isinstance(text, str))
    return tuple(t for t in named if t.startswith("content/") and t.endswith((".py", ".txt")))


def dumped(node: object) -> str:
    """A syntax tree as text, the same under every version of Python.

    `ast.dump` itself leaves out other fields in each: Python 3.12 added `type_params`, 3.13 drops
    empty lists. A committed trace must not become stale because another Python reads it.
    """
    if isinstance(node, list):
        return f"[{', '.join(map(dumped, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = []
    for name in node._fields:
        value = None if name == "ctx" else getattr(node, name, None)  # it follows from the place
        if value is not None and (value or name != "type_params"):
            fields.append(f"{name}={dumped(value)}")
    return f"{type(node).__name__}({', '.join(fields)})"


def covered_files(path: Path, rooms: tuple[str, ...] = COVERED) -> list[Path]:
    """A file, what it names of `content/`, and what it imports from these rooms, and so on; sorted.

    For an experiment's file that is every file whose code its digest covers.
    """
    seen: set[Path] = set()
    waiting = [path]
    while waiting:
        current = waiting.pop()
        if current in seen or not current.is_file():
            continue
        seen.add(current)
        found = _read(current)
        ours = (name for name in found.modules if name.startswith(rooms))
        waiting += [ROOT / f"{name.replace('.', '/')}.py" for name in ours]
        waiting += [ROOT / name for name in found.programs if "*" not in name]
    return sorted(seen)


@cache
def source_digest(experiment: str) -> str:
    """The digest of an experiment as its code now stands, 16 hexadecimal digits.

    Equal for code that differs only in comments, docstrings or layout. Code that is no Python, as
    somebody leaves it while typing, has a digest that no trace has. An experiment that no longer
    exists has the digest of nothing, so its traces are stale.
    """
    files = {path for pattern in MEASURING for path in ROOT.glob(pattern)}
    if path := experiment_files().get(experiment):
        files.update(covered_files(path))
    return digest_of(sorted(file_digest(path) for path in files))


@cache
def program_digests(experiment: str) -> dict[str, str]:
    """The digest of each program that an experiment finds by a pattern, by its path."""
    path = experiment_files().get(experiment)
    programs = _read(path).programs if path else ()
    found = sorted(one for name in programs if "*" in name for one in ROOT.glob(name))
    return {path.relative_to(ROOT).as_posix(): file_digest(path)[:16] for path in found}


def forget_code() -> None:
    """Read all code anew at the next digest: somebody may have edited it."""
    for cached in (source_digest, program_digests, _read):
        cached.cache_clear()


def file_digest(path: Path) -> str:
    """The digest of what in a file can change a result."""
    return hashlib.sha256(_read(path).content).hexdigest()
