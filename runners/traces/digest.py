"""The digest of an experiment's code: what decides whether a trace is stale. No torch.

It covers the syntax tree of the experiment's file, with all experiments that this declares, of
every module of ours that a run imports, from `ENTRIES` on, and the texts of `content/` that these
name; `LEFT_OUT` says of the others why not. Comments, docstrings, the sizes of a try, and which
file holds what is imported are left out: none of them changes a result. A module of imports alone
passes names on, and is not covered itself. An import of ours that leads to none of `ROOTS` is an
error: an edit behind it would leave a stale trace valid. Programs that an experiment finds by a
pattern, one a run, have a digest each, of their whole text and of what they share, also where a
`wrong.yml` states it as a difference: a new one, or a changed one, leaves the others' runs as they
are.
"""

import ast
import hashlib
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple, TypeGuard

from proofbook.runners.core.trace.schema import digest_of
from proofbook.runners.system.book import ROOT, SHARED, experiment_files, is_plain
from proofbook.runners.system.errors import FixableError
from proofbook.runners.traces.differences import wrong_programs

# What measures, beside the experiment's own file: on one machine, and on several nodes.
ENTRIES = (
    "runners/__init__.py",
    "runners/core/measuring/measure.py",
    "runners/core/measuring/launcher.py",
)
# The packages of ours whose code may change what a run or a plan records.
ROOTS = ("runners", "companions")
# Modules, and packages for all of theirs, that cannot change a value that a run or a plan records.
# What only they import is left out with them.
LEFT_OUT = {
    "runners.__main__": "calls a command",
    "runners.commands": "choose what is measured, and print",
    "runners.plain": "measures experiments without ranks, which have a digest of their own",
    "runners.session": "chooses what is measured, and prints how far it is",
    "runners.simulate.processes": "carries what simulations return, as it is",
    "runners.system": "finds the book, words, waits for and ends a command, and writes files whole",
    "runners.traces.differences": "makes the texts of programs, each of which has a digest",
    "runners.traces.digest": "makes the digest, which is another where it is made otherwise",
    "runners.traces.files": "writes what was recorded, and reads it back as it was",
    "runners.traces.summary": "words what was recorded",
}
# A module, to import by its name.
_NAMED = re.compile(rf"""["'](proofbook\.(?:{"|".join(ROOTS)})(?:\.\w+)+)["']""".encode())
# The fields of a node that hold statements.
BLOCKS = ("body", "orelse", "finalbody", "handlers", "cases")


# A name that a module has from another of ours, which it calls so: an object of it, or a module.
_Import = tuple[str, str, str]  # what it is called, the module, the name there


class _Read(NamedTuple):
    """The parts of a file's text that matter to a digest."""

    content: bytes  # code that can change a result, without imports
    imports: frozenset[_Import] = frozenset()  # of ours
    programs: tuple[str, ...] = ()  # of `content/`, named whole or by a pattern with an asterisk
    passes_on: bool = False  # it has imports alone, and perhaps `__all__`
    unfollowed: tuple[int, ...] = ()  # lines of imports of ours that lead to none of `ROOTS`


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
    imports = {("", name.decode(), "") for name in _NAMED.findall(text)}
    unfollowed = tuple(node.lineno for node in ast.walk(tree) if _is_unfollowed(node))
    _strip(tree, imports)
    passes_on = all(map(_is_list_of_names, tree.body))
    return _Read(dumped(tree).encode(), frozenset(imports), programs, passes_on, unfollowed)


def _is_followed(module: str) -> bool:
    first, _, rest = module.partition(".")
    return first == "proofbook" and rest.partition(".")[0] in ROOTS


def _is_unfollowed(node: ast.AST) -> TypeGuard[ast.stmt]:
    """Whether a node imports ours by a path from here, or from elsewhere than `ROOTS`."""
    if isinstance(node, ast.ImportFrom):
        modules = [f"proofbook{'.' * node.level}" if node.level else str(node.module)]
    else:
        modules = [to.name for to in node.names] if isinstance(node, ast.Import) else []
    return any(m.partition(".")[0] == "proofbook" and not _is_followed(m) for m in modules)


def _is_list_of_names(statement: ast.stmt) -> bool:
    """Whether a statement is the list of names that a module gives."""
    return isinstance(statement, ast.Assign) and [*map(ast.unparse, statement.targets)] == [
        "__all__"
    ]


def _strip(node: ast.AST, imports: set[_Import]) -> None:
    """Remove docstrings, imports and `TRIED_WITH` from a tree, and note imports of ours."""
    has_docstring = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
    for name in BLOCKS:
        block = getattr(node, name, None)
        kept = []
        for place, statement in enumerate(block if isinstance(block, list) else ()):
            match statement:
                case ast.ImportFrom(module=str(module)) if _is_followed(module):
                    imports |= {(to.asname or to.name, module, to.name) for to in statement.names}
                case ast.Import(names=names) if _is_followed(names[0].name):
                    imports |= {(to.asname or "", to.name, "") for to in names}
                case ast.Assign(targets=[ast.Name(id="TRIED_WITH")]):
                    pass  # what an experiment declares for tries alone
                case ast.Expr(value=ast.Constant(value=str())) if has_docstring and not place:
                    pass
                case _:
                    _strip(statement, imports)
                    kept.append(statement)
        if isinstance(block, list):
            block[:] = kept


def _programs(tree: ast.Module) -> tuple[str, ...]:
    texts = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    named = (text for text in texts if isinstance(text, str))
    return tuple(
        t for t in named if t.startswith("content/") and t.endswith((".py", ".txt", ".yml"))
    )


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


@cache
def _file_of(module: str) -> Path | None:
    """The file of a module or a package of ours; None where there is none of this name."""
    path = ROOT / module.removeprefix("proofbook.").replace(".", "/")
    files = path.with_suffix(".py"), path / "__init__.py"
    return next((path for path in files if path.is_file()), None)


@cache
def _source(module: str, name: str) -> tuple[str, Path | None]:
    """The name that an import takes, none for a module, and its file: None where left out."""
    if name and _file_of(f"{module}.{name}"):
        module, name = f"{module}.{name}", ""
    is_left_out = any(f"{module}.".startswith(f"proofbook.{left}.") for left in LEFT_OUT)
    file = None if is_left_out else _file_of(module)
    if file and (parts := _read(file)).passes_on:
        for called, *source in parts.imports:
            if called == name:
                return _source(*source)
    return name, file


@cache
def _followed(path: Path) -> frozenset[Path]:
    """The files that a file leads to: its packages, the modules that it imports, and texts."""
    parts = _read(path)
    for line in parts.unfollowed:
        roots = " or ".join(f"proofbook.{root}" for root in ROOTS)
        raise FixableError(
            f"{path}:{line}: no digest follows this import; import names from {roots}"
        )
    modules = {file for _, *source in parts.imports if (file := _source(*source)[1])}
    texts = (ROOT / name for name in parts.programs if "*" not in name)
    packages = (folder / "__init__.py" for folder in path.parents if folder.is_relative_to(ROOT))
    return frozenset(file for file in (*packages, *modules, *texts) if file.is_file())


def covered_files(*entries: Path) -> list[Path]:
    """Sorted: files and all they import of ours or name of `content/` in turn, but `LEFT_OUT`."""
    covered: set[Path] = set()
    waiting = {*entries}
    while waiting:
        covered |= waiting
        waiting = {file for path in waiting for file in _followed(path)} - covered
    return sorted(covered)


@cache
def _linked_digest(path: Path) -> str:
    """The digest of a file, and of the files that its names come from."""
    sources = ((called, *_source(*name)) for called, *name in _read(path).imports)
    names = ((called, name, file_digest(file) if file else "") for called, name, file in sources)
    return digest_of([file_digest(path), sorted(names)])


def code_digest(*entries: Path) -> str:
    """The digest of all code that these files lead to, whichever files it lies in."""
    return digest_of(sorted({_linked_digest(path) for path in covered_files(*entries)}))


@cache
def source_digest(experiment: str) -> str:
    """16 hexadecimal digits over the code an experiment leads to; without ranks, its own files.

    Equal for code that differs only in comments, docstrings or layout. Code that is no Python, as
    somebody leaves it while typing, has a digest that no trace has; nor has any an experiment that
    no longer exists.
    """
    own = experiment_files().get(experiment)
    if own and is_plain(experiment):  # our part writes down what it is given, in any release
        files = {own, *own.parent.glob("_*.py")}
        laws = own.with_name("_laws.py")  # of expressions: no run calls them that imports none
        if not any(b"_laws" in file.read_bytes() for file in files - {laws}):
            files.discard(laws)
        return digest_of(sorted(map(file_digest, files)))
    return code_digest(*([own] if own else ()), *(ROOT / path for path in ENTRIES))


@cache
def program_digests(experiment: str) -> dict[str, str]:
    """By path, the digest of each program, right or wrong, that an experiment's patterns match."""
    path = experiment_files().get(experiment)
    programs = _read(path).programs if path else ()
    files = [file for name in programs if "*" in name for file in ROOT.glob(name)]
    digests = {file: _program_digest(file) for file in files if file.suffix != ".yml"}
    for file in files:
        if file.suffix == ".yml":
            digests |= _wrong_digests(file)
    return {path.relative_to(ROOT).as_posix(): digests[path][:16] for path in sorted(digests)}


def _program_digest(file: Path) -> str:
    """The digest of a program, with those of the files that it shares with others."""
    text, known = _read(file).content.decode(errors="replace"), sorted(SHARED.glob("*.py"))
    imported = [one for one in known if re.search(rf"^(from|import) {one.stem}\b", text, re.M)]
    parts = [*map(file_digest, [file, *imported])]
    return digest_of(parts) if imported else parts[0]


def _wrong_digests(file: Path) -> Iterator[tuple[Path, str]]:
    """The digest of each wrong program's text; a program that somebody is editing may have none."""
    with suppress(FixableError):
        for program in wrong_programs(file):
            with suppress(FixableError):
                yield program.path, hashlib.sha256(program.text.encode()).hexdigest()


def forget_code() -> None:
    """Read all code anew at the next digest: somebody may have edited it."""
    for cached in (source_digest, program_digests, _linked_digest, _followed, _source, _file_of):
        cached.cache_clear()
    _read.cache_clear()


def file_digest(path: Path) -> str:
    """The digest of a file's code that can change a result, without its imports."""
    return hashlib.sha256(_read(path).content).hexdigest()
