"""The digest of an experiment's code: what decides whether a trace is stale. No torch.

It covers the syntax tree of the experiment's file, of every module of `COVERED` that it imports,
of the code that measures (`MEASURING`), and of the programs that it executes from `content/`, with
what their comments declare. Comments, docstrings and the places of our own modules are left out:
none of them changes a result. Programs that an experiment finds by a pattern, one a run,
have a digest each: a new one, or a changed one, leaves the runs of the others as they are.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from runners.traces.programs import declared

ROOT = Path(__file__).resolve().parents[2]
COVERED = ("runners.experiments", "runners.training")
# What every run passes through: how its ranks are set up, metered, recorded and gathered.
MEASURING = (
    "runners/meters/*.py",
    "runners/ranks/*.py",
    "runners/measuring/endings.py",
    "runners/measuring/launch.py",
    "runners/measuring/live_rank.py",
    "runners/measuring/gather.py",
)
# The fields of a node that hold statements.
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


def experiment_path(name: str) -> Path:
    """The file that declares an experiment."""
    folder = ROOT / "runners" / "experiments" / name
    return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")


class _Read(NamedTuple):
    """What a file's text says to a digest.

    Attributes:
        content: what of it can change a result.
        modules: the covered modules that it imports.
        programs: of `content/`, that it names whole or by a pattern with an asterisk.
    """

    content: bytes
    modules: frozenset[str] = frozenset()
    programs: tuple[str, ...] = ()


def _read(path: Path) -> _Read:
    text = path.read_bytes().decode("utf-8", "surrogateescape")
    return _parsed(text, is_program=path.is_relative_to(ROOT / "content"))


@lru_cache(maxsize=512)
def _parsed(text: str, *, is_program: bool) -> _Read:
    """Of a file's text; experiments share most of their modules."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):  # somebody has left it unfinished
        return _Read(text.encode("utf-8", "surrogateescape"))
    modules, programs = _modules(tree), _programs(tree) if "content/" in text else ()
    said = "\n".join(declared(ast.get_docstring(tree) or "", text)) if is_program else ""
    names = _without_docstrings_and_imports(tree)
    return _Read(f"{dumped(tree)}{''.join(sorted(names))}{said}".encode(), modules, programs)


def _statements(tree: ast.Module) -> Iterator[ast.AST]:
    """The module, and everything in it that holds statements or is one; no expression does."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name in BLOCKS:
            waiting += getattr(node, name, ())


def _modules(tree: ast.Module) -> frozenset[str]:
    names: set[str] = set()
    for node in _statements(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return frozenset(name for name in names if name.startswith(COVERED))


def _programs(tree: ast.Module) -> tuple[str, ...]:
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    named = (text for text in texts if isinstance(text, str))
    return tuple(t for t in named if t.startswith("content/") and t.endswith(".py"))


def _module_path(name: str) -> Path | None:
    path = ROOT / Path(*name.split("."))
    found = [one for one in (path.with_suffix(".py"), path / "__init__.py") if one.is_file()]
    return found[0] if found else None


def _without_docstrings_and_imports(tree: ast.Module) -> set[str]:
    """Take docstrings and imports of our own modules out of a tree; the names these brought.

    From where a name comes alters no result: the code behind it is covered itself.
    """
    names: set[str] = set()
    for node in _statements(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and _begins_in_words(node):
            node.body = node.body[1:] or [ast.Pass()]
        for block in (getattr(node, name, []) for name in BLOCKS):
            ours = [one for one in block if _is_import_of_ours(one)]
            names |= {f"{a.name} as {a.asname or a.name}" for one in ours for a in one.names}
            block[:] = [one for one in block if one not in ours]
    return names


def _begins_in_words(node: ast.Module | ast.ClassDef | ast.FunctionDef) -> bool:
    first = node.body[0] if node.body else None
    return (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    )


def _is_import_of_ours(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and (node.module or "").startswith("runners")


def dumped(node: object) -> str:
    """A syntax tree as text, the same under every version of Python.

    `ast.dump` itself leaves out other fields in each: Python 3.12 added `type_params`, 3.13 drops
    empty lists. A committed trace must not become stale because another Python reads it.
    """
    if isinstance(node, list):
        return f"[{', '.join(map(dumped, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = [
        f"{name}={dumped(value)}"
        for name, is_optional in _fields(type(node))  # type: ignore[arg-type] # a class has a hash
        if not ((value := getattr(node, name, None)) is None and is_optional)
        and (value or name != "type_params")
    ]
    return f"{type(node).__name__}({', '.join(fields)})"


@cache
def _fields(kind: type[ast.AST]) -> tuple[tuple[str, bool], ...]:
    """The fields of a kind of node, and whether each may be left out of a program."""
    return tuple((name, getattr(kind, name, ...) is None) for name in kind._fields)


def _found(programs: tuple[str, ...], *, by_pattern: bool = False) -> list[Path]:
    """The files that programs named whole, or by a pattern, stand for."""
    patterns = [name for name in programs if ("*" in name) == by_pattern]
    return sorted(path for pattern in patterns for path in ROOT.glob(pattern))


def covered_files(path: Path) -> list[Path]:
    """Every file whose code the digest of the experiment at `path` covers, sorted."""
    seen: set[Path] = set()
    waiting = [path]
    if path.name == "__init__.py":
        waiting += path.parent.glob("*.py")
    while waiting:
        current = waiting.pop()
        if current in seen or not current.is_file():
            continue
        seen.add(current)
        found = _read(current)
        waiting += [p for name in sorted(found.modules) if (p := _module_path(name))]
        waiting += _found(found.programs)
    return sorted(seen)


@cache
def source_digest(experiment: str) -> str:
    """The digest of an experiment as its code now stands, 16 hexadecimal digits.

    Equal for code that differs only in comments, docstrings or layout. Code that is no Python, as
    somebody leaves it while typing, has a digest that no trace has. An experiment that no longer
    exists has the digest of nothing, so its traces are stale.
    """
    measuring = {path for pattern in MEASURING for path in ROOT.glob(pattern)}
    files = measuring | set(covered_files(experiment_path(experiment)))
    digest = hashlib.sha256()
    for one in sorted(file_digest(path) for path in files):
        digest.update(one.encode())
    return digest.hexdigest()[:16]


@cache
def program_digests(experiment: str) -> dict[str, str]:
    """The digest of each program that an experiment finds by a pattern, by its path."""
    path = experiment_path(experiment)
    programs = _read(path).programs if path.is_file() else ()
    found = _found(programs, by_pattern=True)
    return {path.relative_to(ROOT).as_posix(): file_digest(path)[:16] for path in found}


def forget_code() -> None:
    """Read all code anew at the next digest: somebody may have edited it."""
    for cached in (source_digest, program_digests):
        cached.cache_clear()


def file_digest(path: Path) -> str:
    """The digest of what in a file can change a result."""
    return hashlib.sha256(_read(path).content).hexdigest()
