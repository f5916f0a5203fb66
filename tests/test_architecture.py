"""The directions that imports may take.

generator → `runners/traces` and what it reads of `runners/core`, `runners/planner/answers` and the
commands of `runners/planner/program`, what `runners/verify` keeps, and `runners/system`; nothing
under generator imports torch; only its plugins import MkDocs; runners never import generator; only
what handles tensors needs torch; rooms import in one direction only.
"""

import ast
import re
import subprocess
import sys
from functools import cache

import pytest
from jinja2 import Environment, nodes

from proofbook.generator.pages.facts import SCRIPTS, STYLES
from proofbook.runners.traces import digest
from tests.conftest import ROOT

FOR_THE_GENERATOR = (
    "traces", "core.trace", "core.declared", "core.system", "closed_forms", "planner.answers",
    "planner.program", "system", "labs.shelf", "verify.report"
)  # fmt: skip
NEED_TORCH = tuple(
    f"proofbook.runners.{room}" for room in (
        "core.meters", "core.ranks", "training", "experiments", "simulate", "planner.simulated",
        "core.measuring.launcher", "session.peers", "cluster", "judging", "labs", "verify",
        "planner.command", "planner.program_template",
    )
)  # fmt: skip


def _sources(*parts):
    return sorted(path for part in parts for path in (ROOT / part).rglob("*.py"))


def _module(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(["proofbook", *parts]).removesuffix(".__init__")


@cache
def _imports(path):
    """All that a file imports, also inside functions: modules, and the names taken from one."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names - {"proofbook", "proofbook.runners", "proofbook.generator"})


def _importers(package, *parts):
    """File → what it imports of a package, for files under `parts` that do."""
    found = {}
    for path in _sources(*parts):
        names = [n for n in sorted(_imports(path)) if n == package or n.startswith(f"{package}.")]
        if names:
            found[path.relative_to(ROOT).as_posix()] = names
    return found


def test_the_generator_takes_only_what_needs_no_torch_from_the_runners():
    rooms = tuple(f"proofbook.runners.{room}" for room in FOR_THE_GENERATOR)
    taken = {
        name for names in _importers("proofbook.runners", "generator").values() for name in names
    }
    assert [name for name in sorted(taken) if not name.startswith(rooms)] == []


def test_runners_never_import_the_generator():
    assert _importers("proofbook.generator", "runners") == {}


def test_nothing_in_the_generator_imports_torch():
    assert _importers("torch", "generator") == {}


def test_only_the_plugins_import_mkdocs():
    assert set(_importers("mkdocs", "generator", "runners")) <= {
        "generator/website/plugin.py",
        "generator/website/guest_plugin.py",
    }


def test_only_what_handles_tensors_needs_torch():
    """Also what a module imports at second hand must be free of torch."""
    modules = [
        name
        for name in map(_module, _sources("generator", "runners"))
        if not name.startswith(NEED_TORCH) and not name.endswith("__main__")
    ]
    lines = [f"import {name}" for name in [*modules, "proofbook.generator.__main__"]]
    program = "\n".join(["import sys", "sys.modules['torch'] = None", *lines])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# Rooms, each with those that it may take from; the `__main__` of each package takes from all. The
# judge holds the one rule of rounding for all that compares tensors.
_ROOMS = {
    "generator": """
        content:
        values: content
        printing: content values
        figures: content printing values
        items: content printing values
        checks: content figures items values
        pages: checks content figures items printing values
        website: checks content pages printing
        export: content items pages printing values website
        """,
    "runners": """
        system:
        core.system: system
        core.trace: core.system system
        traces: core.trace system
        core.declared: core.trace system
        core.meters: core.system core.trace
        core.ranks: core.declared core.meters core.system core.trace system
        session: core.declared core.ranks core.system core.trace system traces
        core.measuring: core.declared core.meters core.ranks core.system core.trace session \
            system traces
        closed_forms: core.declared core.trace
        training: closed_forms core.ranks core.system core.trace system
        simulate: core.meters core.ranks core.system core.trace system
        planner: closed_forms core.declared core.meters core.trace simulate system traces
        cluster: core.declared core.measuring core.system core.trace session system traces
        judging: core.meters core.system core.trace
        labs: judging system traces
        plain: core.declared core.trace session system traces
        verify: core.system core.trace judging system traces
        commands: core.declared core.measuring core.system core.trace plain planner session \
            system traces
        experiments: closed_forms core.declared core.meters core.ranks core.system \
            core.trace judging labs system traces training
        """,
}
ROOMS = {
    package: {
        room.strip(): {*others.split()}
        for room, others in (line.split(":") for line in text.strip().splitlines())
    }
    for package, text in _ROOMS.items()
}


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_take_from_each_other_in_one_direction(package):
    rooms = ROOMS[package]
    taken = {room: set() for room in rooms}
    for room in rooms:
        for names in _importers(
            f"proofbook.{package}", f"{package}/{room.replace('.', '/')}"
        ).values():
            taken[room] |= {_room(package, name) for name in names} - {room}
    assert taken == rooms


def _room(package, module):
    """The room of a module; each folder of the core is one."""
    _, _, room, *rest = module.split(".")
    return f"core.{rest[0]}" if (package, room) == ("runners", "core") else room


def test_what_every_trace_covers_stands_in_the_core():
    """And the core holds nothing else, so that a path says what an edit makes stale."""
    entries = [ROOT / entry for entry in digest.ENTRIES]
    covered = set(digest.covered_files(*entries)) - {ROOT / "runners" / "__init__.py"}
    assert covered == {*(ROOT / "runners" / "core").rglob("*.py")}


@pytest.mark.parametrize("package", ROOMS)
def test_no_modules_and_no_rooms_import_each_other_in_a_circle(package):
    """Also where an import is for the type checker alone."""
    modules = {_module(path): path for path in _sources(package)}
    by_module = {name: (_imports(path) & modules.keys()) - {name} for name, path in modules.items()}
    for taken in by_module, dict(ROOMS[package]):
        while free := [name for name, names in taken.items() if not names & taken.keys()]:
            for name in free:
                del taken[name]
        assert sorted(taken) == []


_READ_EXPRESSIONS = {
    "bind_expression", "bound", "cell", "compiled", "evaluate", "evaluate_with", "parsed",
    "printable", "ungrounded", "value", "why_not_stated",
}  # fmt: skip


def test_no_python_writes_the_text_of_an_expression():
    """What is evaluated was written by an author: code reads fields with `Evidence.reading`."""
    assert [written for path in _sources("generator") for written in _written(path)] == []


def _written(path):
    """Calls in a file that evaluate a text which Python put together, here or in a function."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    made = {target for node in nodes if isinstance(node, ast.Assign) and _is_joined(node.value)
            for target in map(ast.unparse, node.targets)}  # fmt: skip
    for function in (node for node in nodes if isinstance(node, ast.FunctionDef)):
        returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
        made |= {function.name} if any(map(_is_joined, returned)) else set()
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        if ast.unparse(call.func).rpartition(".")[2] in _READ_EXPRESSIONS:
            read = [getattr(argument, "func", argument) for argument in call.args[:2]]
            if any(map(_is_joined, call.args)) or made & {*map(ast.unparse, read)}:
                yield f"{path.name}:{call.lineno}: {ast.unparse(call)}"


def _is_joined(node):
    """Whether a node is an f-string, a sum, or a call of `format`, `join` or `replace`."""
    if isinstance(node, ast.Call):
        return getattr(node.func, "attr", "") in ("format", "join", "replace")
    return isinstance(node, ast.JoinedStr | ast.BinOp)


# Which text the modules of a room, or one module, search with patterns. What pages print is no such
# text: it was known before.
_SEARCHED = {
    "checks/": "names of runs, in claims",
    "content/": "YAML and Markdown that authors wrote, names in code",
    "export/": "style sheets, and text for formats of others",
    "figures/": "names of fields",
    "items/": "numbers and conditions that authors wrote, printed numbers",
    "printing/": "names, expressions, and signs that stand for these in Markdown",
    "values/": "expressions",
    "pages/elements/programs.py": "Markdown's fences, and code",
    "pages/elements/questions.py": "sentences of a question",
    "pages/environment.py": "reasons of skipped runs",
    "pages/term_links.py": "spellings of terms",
    "pages/views/": "names of fields and of devices, sentences of statements, formulas",
    "website/guest_plugin.py": "fences of Markdown",
    "website/page_html.py": "the HTML of MkDocs",
    "website/publish.py": "style sheets",
    "website/search.py": "words of the search's entries",
}


def test_only_the_edge_to_mkdocs_applies_patterns_to_html():
    importers = {path.removeprefix("generator/") for path in _importers("re", "generator")}
    assert [path for path in sorted(importers) if not path.startswith((*_SEARCHED,))] == []
    printing = {path for path in importers if not path.startswith("content/")}
    within = {path: list(_tags_in_patterns(ROOT / "generator" / path)) for path in printing}
    assert {path for path, patterns in within.items() if patterns} == {"website/page_html.py"}


def _tags_in_patterns(path):
    """Patterns in a file that name a tag or an attribute."""
    for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("re."):
            for text in (node.value for node in ast.walk(call) if isinstance(node, ast.Constant)):
                if isinstance(text, str) and re.search(r"(?<!\?)(?<!P)</?\??[a-z]|\w=\"", text):
                    yield text


def test_the_tables_of_scripts_and_styles_name_elements():
    """By a name that no element has, a page would not get what it needs."""
    classes = {
        node.name for path in _sources("generator/pages")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }  # fmt: skip
    needs = " ".join([*SCRIPTS.values(), *STYLES.values()])
    named = {*needs.split()}
    assert {name for name in named if name[0].isupper()} <= classes


_CHANGES = {
    "append", "add", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "sort",
    "setdefault", "update",
}  # fmt: skip


def test_templates_read_and_change_nothing():
    """They have no statement that calls for its effect, and call no method that changes."""
    environment = Environment(extensions=["jinja2.ext.do"])
    templates = ROOT / "generator/pages/templates"
    for path in templates.rglob("*.j2"):
        tree = environment.parse(path.read_text(encoding="utf-8"))
        calls = [call.node for call in tree.find_all(nodes.Call)]
        called = {node.attr for node in calls if isinstance(node, nodes.Getattr)}
        assert called & _CHANGES == set(), path.name
        assert [*tree.find_all((nodes.ExprStmt, nodes.NSRef))] == [], path.name
