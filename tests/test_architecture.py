"""The directions that imports may take, and the names that files may have.

generator → `runners.trace`, `runners.forecast_laws` for closed forms that forecasts share, and
`runners.stopping` for its commands; nothing under generator imports torch; only
`generator/website/plugin.py` imports MkDocs; runners never import generator; what the generator
takes from runners is free of torch too; its rooms import in one direction only.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
VAGUE = {"util", "utils", "helper", "helpers", "manager", "data", "info", "misc", "common"}
TAKEN_BY_THE_GENERATOR = {"runners.trace", "runners.stopping", "runners.forecast_laws"}
NEEDS_NO_TORCH = (*sorted(TAKEN_BY_THE_GENERATOR), "runners.digest")
MISSING_DOCSTRINGS = ["--select", "D100,D101,D102,D103,D104,D417,D419"]


def _sources(*parts: str) -> list[Path]:
    return sorted(path for part in parts for path in (ROOT / part).rglob("*.py"))


@cache
def _imports(path: Path) -> frozenset[str]:
    """Every module that a file imports, also inside functions."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            if node.module in ("runners", "generator"):
                names.update(f"{node.module}.{alias.name}" for alias in node.names)
            else:
                names.add(node.module or "")
    return frozenset(names)


def _importers(package: str, *parts: str) -> dict[str, list[str]]:
    """File → what it imports of a package, for files under `parts` that do."""
    found = {}
    for path in _sources(*parts):
        names = [n for n in sorted(_imports(path)) if n == package or n.startswith(f"{package}.")]
        if names:
            found[path.relative_to(ROOT).as_posix()] = names
    return found


def test_the_generator_takes_only_traces_laws_and_the_end_of_a_command_from_the_runners():
    assert {
        file: names
        for file, names in _importers("runners", "generator").items()
        if set(names) - TAKEN_BY_THE_GENERATOR
    } == {}


def test_runners_never_import_the_generator():
    assert _importers("generator", "runners") == {}


def test_nothing_in_the_generator_imports_torch():
    assert _importers("torch", "generator") == {}


def test_only_the_plugin_imports_mkdocs():
    assert set(_importers("mkdocs", "generator", "runners")) <= {"generator/website/plugin.py"}


@pytest.mark.parametrize(
    "module", [*NEEDS_NO_TORCH, "generator.website.plugin", "generator.__main__"]
)
def test_what_makes_pages_loads_without_torch(module):
    """Also what a module imports at second hand must be free of torch."""
    program = f"import sys; sys.modules['torch'] = None; import {module}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_no_file_has_a_name_that_says_nothing():
    sources = _sources("generator", "runners", "tests")
    assert [path for path in sources if VAGUE & set(path.stem.split("_"))] == []


def test_every_module_says_what_it_is_for():
    missing = [
        path.relative_to(ROOT).as_posix()
        for path in _sources("generator", "runners", "tests")
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
        and path.read_text(encoding="utf-8").strip()
    ]
    assert missing == []


def test_every_public_function_has_a_docstring():
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", *MISSING_DOCSTRINGS, "generator", "runners"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout


# A room of the generator, and the rooms that it may take from; `generator/__main__.py` takes all.
ROOMS = {
    "content": set(),
    "evidence": {"content"},
    "figures": {"content", "evidence"},
    "items": {"content", "evidence"},
    "checks": {"content", "evidence", "items"},
    "pages": {"content", "evidence", "figures", "items", "checks"},
    "website": {"content", "evidence", "items", "checks", "pages"},
}


def test_the_rooms_of_the_generator_take_from_each_other_in_one_direction():
    found = {room: set() for room in ROOMS}
    for room in ROOMS:
        for names in _importers("generator", f"generator/{room}").values():
            found[room] |= {name.split(".")[1] for name in names} - {room}
    assert found == ROOMS


@pytest.mark.parametrize("package", ["generator"])
def test_no_modules_import_each_other_in_a_circle(package):
    """Also where an import is for the type checker alone."""
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in _sources(package)}
    taken = {
        module: {name for name in _taken(module) if name in modules} - {module}
        for module in modules
    }
    while free := [module for module, names in taken.items() if not names & taken.keys()]:
        for module in free:
            del taken[module]
    assert sorted(taken) == []


def _taken(module: str) -> set[str]:
    """What a module imports: modules, and the modules of the names that it takes from one."""
    tree = ast.parse((ROOT / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names
