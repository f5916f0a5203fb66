"""Staleness: what changes a digest, and what must not."""

import ast
import os
import shutil
import sys

import pytest

from runners.plans.experiment import names
from runners.traces import digest
from runners.traces.files import read
from tests.processes import ROOT, ran

CODE = '''"""An experiment."""
from runners.training.teacher import teach# the rows
SETTINGS = {"num_samples": 100}
TRIED_WITH = {"*": {"num_samples": 20}}
def single(rank):
    """Train."""
    return teach
'''


@pytest.fixture
def digest_of(tmp_path, monkeypatch):
    """The digest of an experiment with this text, in a tree with this teacher."""
    for room in ("experiments", "training", "meters"):
        (tmp_path / "runners" / room).mkdir(parents=True)
    (tmp_path / "runners" / "measure.py").write_text("from runners.meters import memory\n")
    monkeypatch.setattr(digest, "ROOT", tmp_path)
    monkeypatch.setattr(digest, "ENTRIES", ("runners/measure.py",))

    def made(code, teacher="def teach(): return 1\n"):
        (tmp_path / "runners" / "training" / "teacher.py").write_text(teacher)
        (tmp_path / "runners" / "experiments" / "one.py").write_text(code)
        digest.forget_code()
        return digest.source_digest("one")

    yield made
    digest.forget_code()


def test_only_what_decides_a_result_changes_a_digest(digest_of):
    before = digest_of(CODE)
    same = (
        CODE.replace("# the rows", "# rows").replace("Train.", "Train it.").replace(": 20", ": 9")
    )
    assert digest_of(same.replace(": 100", ":  100")) == before
    for old, new in (("100", "101"), ("return teach", "return teach()"), ("single", "ddp")):
        assert digest_of(CODE.replace(old, new)) != before
    assert digest_of(CODE, teacher="def teach(): return 2\n") != before
    assert digest_of(f"{CODE}def single(") != before  # left unfinished: stale, and no traceback


def test_the_code_that_measures_changes_it(digest_of, tmp_path):
    meter = tmp_path / "runners" / "meters" / "memory.py"
    meter.write_text("PEAK = 1\n")
    before = digest_of(CODE)
    meter.write_text("PEAK = 1  # of all phases\n")
    assert digest_of(CODE) == before
    meter.write_text("PEAK = 2\n")
    assert digest_of(CODE) != before


@pytest.mark.parametrize(
    "imports",
    [
        "from runners.meters import memory",
        "from runners.meters.memory import PEAK",
        "import runners.meters.memory",
        "def late():\n    from runners.meters.memory import PEAK",
        'importlib.import_module("runners.meters.memory")',
    ],
)
def test_a_module_is_covered_however_it_is_imported(digest_of, tmp_path, imports):
    (tmp_path / "runners" / "measure.py").write_text(f"{imports}\n")
    for name in ("memory", "__init__"):
        meter = tmp_path / "runners" / "meters" / f"{name}.py"
        meter.write_text("PEAK = 1\n")
        before = digest_of(CODE)
        meter.write_text("PEAK = 2\n")
        assert digest_of(CODE) != before


def test_another_name_of_a_module_and_a_name_of_another_module_change_it(digest_of, tmp_path):
    (tmp_path / "runners" / "training" / "other.py").write_text("def teach(): return 2\n")
    both = f"from runners.training import other\n{CODE}"
    found = {
        digest_of(both.replace("teacher import teach", instead))
        for instead in ("teacher import teach", "other import teach", "teacher import t as teach")
    }
    assert len(found) == 3


LISTS = "print(*(name for name in sys.modules if name.startswith('runners')))"
PRINTS = f"""
import sys
from runners.plans.experiment import RunPlan
QUESTION = "What is imported?"
def alone(rank): {LISTS}
RUNS = {{"alone": RunPlan("alone", passes=("timed",))}}
"""
RUNS_IT = f"""
import sys
from runners.__main__ import main
code = main(["run", "imported"])
{LISTS}
raise SystemExit(code)
"""
IMPORTS_EACH = f"""
import importlib, sys
from runners.plans.experiment import names
for name in names():
    for one in [one for one in sys.modules if one.startswith("runners")]:
        del sys.modules[one]
    importlib.import_module(f"runners.experiments.{{name}}")
    {LISTS}
"""


@pytest.mark.ranks
def test_an_edit_of_any_module_that_a_run_imports_makes_its_trace_stale(tmp_path, monkeypatch):
    """But for those of which `LEFT_OUT` says why not, and what these alone need to read a trace."""
    (tmp_path / "imported.py").write_text(PRINTS)
    monkeypatch.setenv("PROOFBOOK_TRACES", str(tmp_path / "traces"))
    each = [set(words.split()) for words in _printed(IMPORTS_EACH)]
    own = names()
    monkeypatch.setenv(digest.MORE, str(tmp_path))
    *_, loaded = _printed(RUNS_IT)
    (trace,) = (tmp_path / "traces").glob("*/imported.json")
    of_run = {*loaded.split(), *read(trace).runs["alone"].printed[0].split()}
    assert {"runners.measuring.forkserver", "runners.ranks.process"} <= of_run
    known = [*zip(own, each, strict=True), ("imported", of_run)]

    behind = digest.covered_files(*(ROOT / f"runners/traces/{n}.py" for n in ("files", "summary")))
    copy = tmp_path / "copy"
    shutil.copytree(ROOT / "runners", copy / "runners")
    monkeypatch.setattr(digest, "ROOT", copy)
    digest.forget_code()
    before = {name: digest.source_digest(name) for name, _ in known}
    fresh = set()
    for module in sorted({one for _, modules in known for one in modules}):
        path = digest._file_of(module)
        text = path.read_text()
        path.write_text(f"{text}\nEDITED = 1\n")
        digest.forget_code()
        using = [name for name, modules in known if module in modules]
        if any(digest.source_digest(name) == before[name] for name in using):
            fresh.add(module)
        path.write_text(text)
    digest.forget_code()
    unnamed = {
        one for one in fresh if not f"{one}.".startswith(tuple(f"{n}." for n in digest.LEFT_OUT))
    }
    assert unnamed <= {_module(path) for path in behind}


def _printed(program):
    done = ran([sys.executable, "-c", program], ROOT, {**os.environ})
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def _module(path):
    return path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")


def test_an_edit_of_an_experiment_outside_the_book_makes_its_trace_stale(
    digest_of, tmp_path, monkeypatch
):
    monkeypatch.setenv(digest.MORE, str(tmp_path))
    digest_of(CODE)

    def beside(code):
        (tmp_path / "mine.py").write_text(code)
        digest.forget_code()
        return digest.source_digest("mine")

    assert beside(CODE) == digest.source_digest("one")
    assert beside(CODE.replace("100", "101")) != digest.source_digest("one")


def test_a_module_that_moves_changes_nothing(digest_of, tmp_path):
    before = digest_of(CODE)
    (tmp_path / "runners" / "training" / "data.py").write_text("def teach(): return 1\n")
    (tmp_path / "runners" / "training" / "teacher.py").unlink()
    moved = CODE.replace("runners.training.teacher", "runners.training.data")
    (tmp_path / "runners" / "experiments" / "one.py").write_text(moved)
    digest.forget_code()
    assert digest.source_digest("one") == before


def test_programs_that_are_found_by_a_pattern_have_a_digest_each(digest_of, tmp_path):
    first = tmp_path / "content" / "topics" / "a" / "code" / "b.py"
    first.parent.mkdir(parents=True)
    code = CODE + 'PROGRAMS = "content/topics/*/code/*.py"\n'
    without = digest_of(code)

    def with_text(text):
        first.write_text(f'"""Run it: torchrun --nproc-per-node 2 b.py"""\nprint(1)\n{text}')
        assert digest_of(code) == without  # the experiment itself is the same
        (path,) = digest.program_digests("one")
        assert path == "content/topics/a/code/b.py"
        return digest.program_digests("one")[path]

    plain = with_text("")
    assert with_text("# expected: failed\n") != plain
    assert with_text("print(2)\n") != plain
    first.with_name("c.py").write_text("print(3)\n")
    digest.forget_code()
    assert len(digest.program_digests("one")) == 2


def test_the_fields_that_other_pythons_add_to_a_syntax_tree_change_nothing():
    """Python 3.12 gave functions and classes `type_params`; this must not make traces stale."""

    class Newer(ast.FunctionDef):
        _fields = (*ast.FunctionDef._fields, "type_params")

    Newer.__name__ = "FunctionDef"
    (older,) = ast.parse("def train(rank, *, rate=None): return [rank, None]").body
    newer = Newer(**{name: getattr(older, name, None) for name in older._fields})
    newer.type_params = []
    assert digest.dumped(newer) == digest.dumped(older)
    assert "decorator_list=[]" in digest.dumped(older)  # Python 3.13 leaves empty lists out
