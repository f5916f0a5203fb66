"""Names say what they are: no vague ones in long functions, and few classes of one name."""

import ast
from collections import defaultdict

import pytest

from tests.conftest import ROOT

VAGUE = {"one", "found", "said", "shown", "seen", "it", "item", "entry", "thing"}
LONG = 8  # lines of a function, beyond which a reader has forgotten what a vague name is
MOST_VAGUE, MOST_SHARED = 40, 15
FUNCTIONS = ast.FunctionDef | ast.AsyncFunctionDef


@pytest.fixture(scope="module")
def trees():
    paths = (
        p for room in ("runners", "generator", "requirements") for p in ROOT.glob(f"{room}/**/*.py")
    )
    return {path.relative_to(ROOT): ast.parse(path.read_text()) for path in sorted(paths)}


def bound(node):
    """The names that a function binds, with their lines, without those of inner functions."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                yield name, child.lineno
            case ast.MatchAs(name=name) | ast.MatchStar(name=name) | ast.ExceptHandler(name=name):
                yield name, child.lineno
        if not isinstance(child, FUNCTIONS):
            yield from bound(child)


def test_long_functions_bind_no_vague_names(trees):
    places = [
        f"{path}:{line}: {name} in {function.name}"
        for path, tree in trees.items()
        for function in ast.walk(tree)
        if isinstance(function, FUNCTIONS) and function.end_lineno - function.lineno >= LONG
        for name, line in bound(function)
        if name in VAGUE
    ]
    assert len(places) <= MOST_VAGUE, "\n".join(places)


def test_a_class_has_its_name_for_itself(trees):
    files = defaultdict(set)
    for path, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                files[node.name].add(str(path))
    shared = {name: sorted(paths) for name, paths in files.items() if len(paths) > 1}
    assert len(shared) <= MOST_SHARED, shared
