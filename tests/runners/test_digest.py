"""Staleness: what changes a digest, and what must not."""

import ast
from pathlib import Path

import pytest

from proofbook.runners.system import book
from proofbook.runners.system.errors import FixableError
from proofbook.runners.traces import digest
from proofbook.runners.traces.files import read
from tests.processes import ROOT, python

CODE = '''"""An experiment."""
from proofbook.runners.training.teacher import teach# the rows
SETTINGS = {"num_samples": 100}
TRIED_WITH = {"*": {"num_samples": 20}}
def single(rank):
    """Train."""
    return teach
'''


@pytest.fixture
def digest_of(tmp_path, monkeypatch):
    """The digest of an experiment with this text, in a tree with this teacher."""
    for room in ("experiments", "training", "core/meters"):
        (tmp_path / "runners" / room).mkdir(parents=True)
    (tmp_path / "runners" / "measure.py").write_text(
        "from proofbook.runners.core.meters import memory\n"
    )
    monkeypatch.setattr(book, "ROOT", tmp_path)
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


@pytest.mark.parametrize(
    "imports",
    [
        "from proofbook.runners.core.meters import memory",
        "import proofbook.runners.core.meters.memory",
        "def late():\n    from proofbook.runners.core.meters.memory import PEAK",
        'importlib.import_module("proofbook.runners.core.meters.memory")',
    ],
)
def test_the_code_that_measures_changes_it_however_it_is_imported(digest_of, tmp_path, imports):
    (tmp_path / "runners" / "measure.py").write_text(f"{imports}\n")
    found = []
    for text in ("PEAK = 1\n", "PEAK = 1  # of all phases\n", "PEAK = 2\n"):
        (tmp_path / "runners" / "core" / "meters" / "memory.py").write_text(text)
        found.append(digest_of(CODE))
    assert found[0] == found[1] != found[2]


DOOR = 'from proofbook.runners.training.teacher import teach as teach\n__all__ = ["teach"]\n'


def test_names_are_followed_through_a_module_of_imports_alone(digest_of, tmp_path):
    direct = digest_of(CODE)
    door = tmp_path / "runners" / "door.py"
    by_door = CODE.replace("runners.training.teacher import", "runners.door import")
    door.write_text(DOOR)
    assert digest_of(by_door) == direct
    assert digest_of(by_door, teacher="def teach(): return 2\n") != direct
    assert door not in digest.covered_files(tmp_path / "runners" / "experiments" / "one.py")
    door.write_text(f"{DOOR}teach = lambda: 3\n")  # which does more than pass it on
    assert digest_of(by_door) != direct


@pytest.mark.parametrize("root", digest.ROOTS)
def test_code_in_every_root_is_covered(digest_of, tmp_path, root):
    path = tmp_path / root / "mine" / "law.py"
    path.parent.mkdir(parents=True)
    path.write_text("LAW = 1\n")
    code = f"from proofbook.{root}.mine.law import LAW\n{CODE}"
    before = digest_of(code)
    path.write_text("LAW = 2\n")
    assert digest_of(code) != before


@pytest.mark.parametrize(
    "imports",
    ["from proofbook.generator import x", "from proofbook import runners", "from . import other",
     "import proofbook.generator.values", "from .training.teacher import teach"],
)  # fmt: skip
def test_an_import_of_ours_that_no_digest_follows_is_refused_with_its_line(digest_of, imports):
    with pytest.raises(FixableError, match=r"one\.py:2: no digest follows this import"):
        digest_of(CODE.replace("\nfrom", f"\n{imports}\nfrom", 1))


def test_another_name_of_a_module_and_a_name_of_another_module_change_it(digest_of, tmp_path):
    (tmp_path / "runners" / "training" / "other.py").write_text("def teach(): return 2\n")
    both = f"from proofbook.runners.training import other\n{CODE}"
    found = {
        digest_of(both.replace("teacher import teach", instead))
        for instead in ("teacher import teach", "other import teach", "teacher import t as teach")
    }
    assert len(found) == 3


PRINTS = """
import importlib, sys
from proofbook.runners.core.declared.experiment import Declaration
from proofbook.runners.system.book import ROOT, experiment_files
QUESTION = "What is imported?"
PACKAGES = ("proofbook.runners", "proofbook.companions")
def ours(): return {one for one in sys.modules if one.startswith(PACKAGES)}
def alone(rank):
    print(*(common := ours()))
    for path in sorted({path for path in experiment_files().values() if path.is_relative_to(ROOT)}):
        parts = path.relative_to(ROOT).with_suffix("").parts
        importlib.import_module(".".join(["proofbook", *parts]))
        print(path.stem, *(own := ours() - common))
        for one in own: del sys.modules[one]
RUNS = {"alone": Declaration("alone", passes=("timed",))}
"""
RUNS_IT = """
import sys
from proofbook.runners.__main__ import main
code = main(["run", "imported"])
print(*(one for one in sys.modules if one.startswith("proofbook.runners")))
raise SystemExit(code)
"""


@pytest.mark.ranks
def test_every_module_that_a_run_imports_is_covered_by_its_digest(tmp_path, monkeypatch):
    """But for those of which `LEFT_OUT` says why not, and what these alone need to read a trace."""
    monkeypatch.setenv(book.MORE, str(tmp_path))
    (tmp_path / "imported.py").write_text(PRINTS)
    done = python("-c", RUNS_IT, PROOFBOOK_TRACES=str(tmp_path / "traces"))
    assert done.returncode == 0, done.stderr
    (trace,) = (tmp_path / "traces").glob("*/imported.json")
    common, *each = read(trace).runs["alone"].printed
    of_any = {*common.split(), *done.stdout.splitlines()[-1].split()}
    assert {
        "proofbook.runners.core.measuring.forkserver",
        "proofbook.runners.core.ranks.process",
    } <= of_any
    files = {path.stem: path for path in book.experiment_files().values()}
    assert len(each) == len(files) - 1
    entries = [ROOT / one for one in digest.ENTRIES]
    behind = digest.covered_files(*(ROOT / f"runners/traces/{n}.py" for n in ("files", "summary")))
    left_out = tuple(f"proofbook.{one}." for one in digest.LEFT_OUT)
    for name, *own in map(str.split, each):
        covered = {*behind, *digest.covered_files(files[name], *entries)}
        files_of = {one: digest._file_of(one) for one in of_any.union(own)}
        others = {
            one for one, file in files_of.items()
            if file not in covered and not (file and digest._read(file).passes_on)
        }  # fmt: skip
        others = {one for one in others if not one.endswith(".kind")}  # of other commands
        assert {one for one in others if not f"{one}.".startswith(left_out)} == set(), name


def test_an_experiment_outside_the_book_has_a_digest_of_its_code(digest_of, tmp_path, monkeypatch):
    monkeypatch.setenv(book.MORE, str(tmp_path))
    (tmp_path / "mine.py").write_text(CODE)
    assert digest_of(CODE) == digest.source_digest("mine")
    assert digest_of(CODE.replace("100", "101")) != digest.source_digest("mine")


def test_a_module_that_moves_changes_nothing(digest_of, tmp_path):
    before = digest_of(CODE)
    (tmp_path / "runners" / "training" / "data.py").write_text("def teach(): return 1\n")
    (tmp_path / "runners" / "training" / "teacher.py").unlink()
    moved = CODE.replace("proofbook.runners.training.teacher", "proofbook.runners.training.data")
    (tmp_path / "runners" / "experiments" / "one.py").write_text(moved)
    digest.forget_code()
    assert digest.source_digest("one") == before


def test_programs_that_are_found_by_a_pattern_have_a_digest_each(digest_of, tmp_path):
    first = tmp_path / "content" / "topics" / "a" / "code" / "b.py"
    first.parent.mkdir(parents=True)
    code = CODE + 'PROGRAMS = "content/topics/*/code/*.py"\n'
    without, found = digest_of(code), set()
    for text in ("", "# expected: failed\n", "print(2)\n"):
        first.write_text(f'"""Run it: torchrun --nproc-per-node 2 b.py"""\nprint(1)\n{text}')
        assert digest_of(code) == without  # the experiment itself is the same
        found |= {*digest.program_digests("one").items()}
    assert {path for path, _ in found} == {"content/topics/a/code/b.py"}
    assert len(found) == 3


WRONG = """programs:
  first:
    mistake: A.
    fails: same
    changes: |
      -one = 1
      {change}
  second:
    mistake: B.
    fails: same
    changes: |
      -two = 2
"""


@pytest.mark.parametrize(
    ("solution", "change", "changed"),
    [
        ("one = 1\ntwo = 2\n", "+one = 4", {"first"}),
        ("one = 5\ntwo = 2\n", "+one = 3", {"second"}),  # the first one's line is gone
        ("one = 1\ntwo = 6\n", "+one = 3", {"first"}),
    ],
)
def test_a_program_that_is_stated_as_a_difference_has_the_digest_of_its_text(
    digest_of, tmp_path, solution, change, changed
):
    lab = tmp_path / "content" / "topics" / "a" / "labs" / "b"
    lab.mkdir(parents=True)
    found = []
    for given in ("one = 1\ntwo = 2\n", "+one = 3"), (solution, change):
        (lab / "solved.py").write_text(f'"""Right."""\n{given[0]}')
        (lab / "wrong.yml").write_text(WRONG.format(change=given[1]))
        digest_of(CODE + 'PROGRAMS = "content/topics/*/labs/*/wrong.yml"\n')
        found.append({Path(path).stem: of for path, of in digest.program_digests("one").items()})
    before, after = found
    assert {*before} == {"first", "second"}
    assert {name for name in after if after[name] != before[name]} == changed


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
