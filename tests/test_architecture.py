"""Who may import whom (ARCHITECTURE.md), and what follows for each file.

The core measures, the book prints: neither knows what stands above it, a kind of pages or a
companion, which declare themselves (`kind.py`). Nothing that reads or prints loads torch; rooms of
a package import in one direction only.
"""

import ast
import re
import subprocess
import sys
from collections import defaultdict
from functools import cache

import pytest
from jinja2 import Environment, nodes

from proofbook.generator.pages.facts import SCRIPTS, STYLES
from proofbook.runners.system.kinds import kinds
from proofbook.runners.traces import digest
from tests.conftest import ROOT

FOR_THE_GENERATOR = (
    "traces", "core.trace", "core.declared", "core.system", "closed_forms", "system"
)  # fmt: skip
NEED_TORCH = (
    *(f"proofbook.runners.{room}" for room in (
        "core.meters", "core.ranks", "training", "experiments", "simulate",
        "core.measuring.launcher", "session.peers", "judging",
    )),
    *(f"proofbook.companions.{part}" for part in (
        "cluster", "verify.", "labs.benches", "labs.command", "labs.disks", "labs.grading",
        "labs.laws", "labs.sequences", "labs.training", "labs.experiments", "planner.simulated",
        "planner.again", "planner.command",
    )),
)  # fmt: skip
# Modules of a companion that its pages take, which need none.
WITHOUT_TORCH = ("kind", "pages", "report", "reports")
PACKAGES = ("runners", "generator", "companions")


def _sources(*parts):
    return sorted(path for part in parts for path in (ROOT / part).rglob("*.py"))


@cache
def _tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def _module(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(["proofbook", *parts]).removesuffix(".__init__")


@cache
def _imports(path):
    """All that a file imports, also inside functions: modules, and the names taken from one."""
    names = set()
    for node in ast.walk(_tree(path)):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: relative import"
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(names - {"proofbook", *(f"proofbook.{package}" for package in PACKAGES)})


def _importers(package, *parts):
    """File → what it imports of a package, for files under `parts` that do."""
    found = {}
    for path in _sources(*parts):
        names = [n for n in sorted(_imports(path)) if n == package or n.startswith(f"{package}.")]
        if names:
            found[path.relative_to(ROOT).as_posix()] = names
    return found


# --- the border


def _part(module):
    """Where a module belongs: `core`, the syllabus, or the kind or companion by its name."""
    _, package, *rooms = [*module.split("."), "", ""]
    if package == "companions":
        return f"companion {rooms[0]}"
    if rooms[0] == "kinds" and package == "generator":
        return f"kind {rooms[1]}" if rooms[1] else "core"
    if rooms[0] in ("experiments", "training"):
        return "syllabus"
    return "core"


# Which kinds of pages build on which others.
KINDS_TAKE = {
    "evidence": "lessons",
    "guide": "figures questions",
    "home": "lessons",
    "lessons": "calculators figures questions",
    "questions": "figures",
    "recall": "lessons questions",
    "search": "glossary",
}
# And companions: labs are set as lessons are.
COMPANIONS_TAKE = {
    "export": "glossary lessons questions",
    "guest": "questions",
    "labs": "figures lessons",
    "planner": "calculators figures guide lessons",
    "verify": "figures",
}


def _may_take(part, other):
    if other in ("core", part):
        return True
    sort, _, name = part.partition(" ")
    taken = {"kind": KINDS_TAKE, "companion": COMPANIONS_TAKE}.get(sort, {}).get(name, "").split()
    return other in {f"kind {kind}" for kind in taken}


def test_the_core_and_the_book_know_nothing_above_them_and_nothing_takes_from_a_companion():
    """A kind may take from the kinds that stand here, a companion as well."""
    crossed = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in _sources(*PACKAGES)
        for name in sorted(_imports(path))
        if name.startswith("proofbook.") and not _may_take(_part(_module(path)), _part(name))
        and path.parent.name not in MOVED
    ]  # fmt: skip
    assert crossed == []


MOVED = ("verify", "cluster")  # whose old places still lead to them


def test_what_has_moved_is_found_at_its_old_place():
    program = """
import proofbook.runners.verify.report, proofbook.runners.cluster
from proofbook.companions import verify
assert proofbook.runners.verify.__path__ == verify.__path__
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_generator_takes_only_what_needs_no_torch_from_the_runners():
    rooms = tuple(f"proofbook.runners.{room}" for room in FOR_THE_GENERATOR)
    taken = {
        name for names in _importers("proofbook.runners", "generator").values() for name in names
    }
    assert [name for name in sorted(taken) if not name.startswith(rooms)] == []


def test_runners_never_import_the_generator():
    found = _importers("proofbook.generator", "runners")
    assert found == {}


def test_nothing_in_the_generator_imports_torch():
    assert _importers("torch", "generator") == {}


def test_only_the_plugins_import_mkdocs():
    assert set(_importers("mkdocs", *PACKAGES)) == {
        "generator/website/plugin.py",
        "companions/guest/plugin.py",
    }


def _needs_torch(module):
    is_free = module.startswith("proofbook.companions") and module.endswith(WITHOUT_TORCH)
    return module.startswith(NEED_TORCH) and not is_free


def test_only_what_handles_tensors_needs_torch():
    """Also what a module imports at second hand must be free of torch."""
    modules = [
        name
        for name in map(_module, _sources(*PACKAGES))
        if not _needs_torch(name) and not name.endswith("__main__")
    ]
    lines = [f"import {name}" for name in [*modules, "proofbook.generator.__main__"]]
    program = "\n".join(["import sys", "sys.modules['torch'] = None", *lines])
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_every_declaration_names_what_there_is():
    """And reading all of them loads neither torch nor MkDocs."""
    program = """
import sys
sys.modules["torch"] = sys.modules["mkdocs"] = None
from proofbook.runners.system.kinds import kinds
assert len(kinds()) > 10, kinds()
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for kind in kinds():
        for name in _named(kind):
            assert kind.take(name) is not None, f"{kind.package}: {name}"


def _named(value):
    """What a declaration names, as `.module:name`."""
    if isinstance(value, str):
        yield from [value] * bool(re.fullmatch(r"\.?[\w.]+(:\w+)?", value) and "." in value)
    elif isinstance(value, dict):
        yield from (name for held in value.values() for name in _named(held))
    elif isinstance(value, tuple):
        for held in value:
            yield from _named(held) if not isinstance(held, list) else ()


# Each room takes from those before it alone; the `__main__` of each package takes from all.
ROOMS = {
    "generator": "content values printing checks pages website kinds",
    "runners": "system core.system core.trace traces core.declared core.meters core.ranks session "
    "core.measuring api closed_forms training simulate planner judging plain commands experiments",
}


@pytest.mark.parametrize("package", ROOMS)
def test_rooms_take_from_each_other_in_one_direction(package):
    rooms = ROOMS[package].split()
    for place, room in enumerate(rooms):
        folder = f"{package}/{room.replace('.', '/')}"
        importers = _importers(f"proofbook.{package}", folder)
        taken = [names for path, names in importers.items() if path.split("/")[1] not in MOVED]
        found = {_room(package, name) for names in taken for name in names}
        assert found <= {*rooms[: place + 1]}, room
    held = {path.parent.name for path in (ROOT / package).glob("*/*.py")} - {*MOVED}
    assert held - {"core"} <= {*rooms}


def _room(package, module):
    """The room of a module; each folder of the core is one."""
    _, _, room, *rest = module.split(".")
    return f"core.{rest[0]}" if (package, room) == ("runners", "core") else room


def test_what_every_trace_covers_stands_in_the_core():
    """And the core holds nothing else, so that a path says what an edit makes stale."""
    entries = [ROOT / entry for entry in digest.ENTRIES]
    covered = set(digest.covered_files(*entries)) - {ROOT / "runners" / "__init__.py"}
    assert covered == {*(ROOT / "runners" / "core").rglob("*.py")}


def test_the_syllabus_takes_from_the_rest_by_one_door():
    beside = ("api", "closed_forms", "training", "experiments")
    for room in ("closed_forms", "training", "experiments"):
        for path in _sources(f"runners/{room}"):
            taken = {name for name in _imports(path) if name.startswith("proofbook.")}
            others = {name for name in taken if name.split(".")[2] not in beside}
            if path.name not in ("kind.py", "_programs.py", "rank.py"):  # the door's other half
                assert others == set(), path


@pytest.mark.parametrize("package", ROOMS)
def test_no_modules_import_each_other_in_a_circle(package):
    """Also where an import is for the type checker alone."""
    modules = {_module(path): path for path in _sources(package)}
    taken = {name: (_imports(path) & modules.keys()) - {name} for name, path in modules.items()}
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
    assert [
        written for path in _sources("generator", "companions") for written in _written(path)
    ] == []


def _written(path):
    """Calls in a file that evaluate a text which Python put together, here or in a function."""
    nodes = [*ast.walk(_tree(path))]
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


def test_only_the_edge_to_mkdocs_applies_patterns_to_html():
    found = {
        path
        for path in _importers("re", "generator", "companions")
        if any(_tags_in_patterns(ROOT / path))
    }
    printing = {path for path in found if not path.startswith("generator/content/")}
    assert printing == PATTERNS_OF_TAGS


PATTERNS_OF_TAGS = {"generator/website/page_html.py"}


def _tags_in_patterns(path):
    """Patterns in a file that name a tag or an attribute."""
    for call in ast.walk(_tree(path)):
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("re."):
            for text in (node.value for node in ast.walk(call) if isinstance(node, ast.Constant)):
                if isinstance(text, str) and re.search(r"(?<!\?)(?<!P)</?\??[a-z]|\w=\"", text):
                    yield text


def test_the_tables_of_scripts_and_styles_name_elements():
    """By a name that no element has, a page would not get what it needs."""
    nodes = [n for path in _sources("generator", "companions") for n in ast.walk(_tree(path))]
    classes = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    classes |= {
        ast.literal_eval(node.args[0]) for node in nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("Made", "element.Made")
        and isinstance(node.args[0], ast.Constant)
    }  # fmt: skip
    tables = [
        SCRIPTS,
        STYLES,
        *(table for kind in kinds() for table in (kind.scripts, kind.styles)),
    ]
    named = {*" ".join(names for table in tables for names in table.values()).split()}
    assert {name for name in named if name[0].isupper()} <= classes


_CHANGES = {
    "append", "add", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "sort",
    "setdefault", "update",
}  # fmt: skip


def test_templates_read_and_change_nothing():
    """They have no statement that calls for its effect, and call no method that changes."""
    environment = Environment(extensions=["jinja2.ext.do"])
    for path in (
        path for part in ("generator", "companions") for path in (ROOT / part).rglob("*.j2")
    ):
        tree = environment.parse(path.read_text(encoding="utf-8"))
        calls = [call.node for call in tree.find_all(nodes.Call)]
        called = {node.attr for node in calls if isinstance(node, nodes.Getattr)}
        assert called & _CHANGES == set(), path.name
        assert [*tree.find_all((nodes.ExprStmt, nodes.NSRef))] == [], path.name


VAGUE = {"one", "found", "said", "shown", "seen", "it", "item", "entry", "thing"}
LONG = 8  # lines of a function, beyond which a reader has forgotten what a vague name is
MOST_VAGUE, MOST_SHARED = 40, 15
_FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


def _bound(node):
    """The names that a function binds, with their lines, but not those of functions in it."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, child.lineno
            case ast.MatchAs(name=name) | ast.MatchStar(name=name) | ast.ExceptHandler(name=name):
                yield name, child.lineno
        if not isinstance(child, _FUNCTIONS):
            yield from _bound(child)


def test_long_functions_bind_no_vague_names():
    places = [
        f"{path}:{line}: {name} in {function.name}"
        for path in _sources(*PACKAGES, "requirements")
        for function in ast.walk(_tree(path))
        if isinstance(function, _FUNCTIONS) and function.end_lineno - function.lineno >= LONG
        for name, line in _bound(function)
        if name in VAGUE
    ]
    assert len(places) <= MOST_VAGUE, "\n".join(places)


def test_a_class_has_its_name_for_itself():
    files = defaultdict(set)
    for path in _sources(*PACKAGES, "requirements"):
        for node in ast.walk(_tree(path)):
            if isinstance(node, ast.ClassDef):
                files[node.name].add(str(path))
    shared = {name: sorted(paths) for name, paths in files.items() if len(paths) > 1}
    assert len(shared) <= MOST_SHARED, shared
