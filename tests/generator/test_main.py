"""The generator's commands as a person calls them, and `show` of the runners'."""

import json
from pathlib import Path

import pytest

from proofbook.generator import __main__ as commands
from proofbook.generator.__main__ import main
from proofbook.generator.content.reading import load
from proofbook.generator.values.filters import FUNCTIONS, OF_CLAIMS
from proofbook.runners.__main__ import main as main_of_runners
from proofbook.runners.closed_forms.steps import LAWS
from proofbook.runners.commands.show import lines
from proofbook.runners.core.trace import machine
from proofbook.runners.traces import files as traces
from tests.generator.conftest import render
from tests.processes import python
from tests.recorded import write


@pytest.fixture
def run(copy, capsys, monkeypatch):
    """Call a command over a copy of the frozen book, whose traces count as fresh."""
    monkeypatch.setattr(commands, "load", lambda *asked: load(*asked, is_stale=lambda _: False))
    monkeypatch.setattr(traces, "is_stale", lambda _: False)

    def call(verb, *arguments):
        over = [] if verb == "schema" else ["--content", str(copy.content)]
        code = main([verb, *arguments, *over])
        said = capsys.readouterr()
        return code, said.out, said.err

    return call


def test_a_fallback_and_a_stale_trace_are_said(run, copy, monkeypatch):
    copy.add_machine("desk", "tiny_memory")
    monkeypatch.setattr(commands, "load", lambda *asked: load(*asked, is_stale=lambda _: True))
    _, said, _ = run("check")
    assert "no trace of this machine, taken from reference-frozen: tiny_training" in said
    assert "tiny_memory: stale, so its verdicts are left out" in said


def test_a_field_that_a_stale_trace_lacks_names_the_command(run, copy, monkeypatch):
    monkeypatch.setattr(commands, "load", lambda *asked: load(*asked, is_stale=lambda _: True))
    copy.edit("topics/sharding/deep.yml", "whole.ranks[0].memory.peak_bytes", "whole.settings.new")
    code, _, said = run("check")
    assert code == 2
    assert "no entry 'new'" in said
    assert "the trace is stale: run `make traces NAMES='tiny_memory'`" in said


@pytest.mark.parametrize("name", ["class", "machine", "run", "mean", "holds", "plan_tiny"])
def test_an_experiment_takes_no_name_that_stands_for_something_else(run, copy, name):
    code, _, error = run("new", "experiment", name)
    assert code == 2
    assert error == f"{name!r} stands for something else; choose another name\n"
    assert not (copy.content / "claims" / f"{name}.yml").exists()


def test_a_new_lesson_passes_check_appears_in_the_book_and_is_not_started_again(run, copy):
    code, said, _ = run("new", "lesson", "gradient-averaging")
    assert code == 0
    written = [line for line in said.splitlines() if "topics/gradient-averaging/" in line]
    assert all(Path(path).is_file() for path in written)
    code, _, error = run("check")
    assert code == 0, error
    pages = {path for path in render(copy.load()) if "gradient-averaging" in path}
    assert {Path(path).stem for path in pages} == {"index", "trace", "recall"}
    code, _, error = run("new", "lesson", "gradient-averaging")
    assert (code, "exists already" in error) == (2, True)


def test_a_new_lesson_on_a_run_without_epochs_is_worked_and_check_says_where_to_write(run, copy):
    assert run("new", "lesson", "peaks", "--from", "tiny_memory")[0] == 0
    worked = copy.content / "topics/peaks/worked.yml"
    assert "figures" not in worked.read_text()
    written = enumerate(worked.read_text().splitlines(), 1)
    lines = ", ".join(str(place) for place, line in written if "TODO" in line)
    code, said, error = run("check")
    assert code == 0, error
    assert f"content/topics/peaks/worked.yml:{lines}\n" in said
    worked.write_text(worked.read_text().replace("TODO: ", ""))
    assert "peaks/worked.yml" not in run("check")[1]


def test_keys_prints_each_key_with_an_example_and_each_function_of_expressions(run):
    code, said, _ = run("keys")
    assert code == 0
    assert "## Option\n" in said
    assert "| `right_if` |  |  | [RightIf](#rightif) |" in said
    assert "| `options` | yes | at least 2 | a list of [Option](#option) |" in said
    assert "near the end of the page; exactly 3 |" in said
    assert "| `stem` | yes | the question. | `stem: " in said
    assert "| `figure` |  | the id of a figure of this file" in said, "by its type"
    assert "| `checks` |  | ids of questions" in said, "the same in every mode"
    assert "| `for` |" in said, "as authors write it"
    functions = said.partition("\n## Functions\n")[2]
    rows = [line.split(" | ") for line in functions.splitlines() if line.startswith("| `")]
    named = {row[0].strip("| `").partition("(")[0] for row in rows}
    assert named == {*FUNCTIONS, *LAWS, *OF_CLAIMS}
    assert all(len(row[1]) > 10 for row in rows)
    assert "| `ended(run)` | How a run ended, in words" in functions


def test_keys_are_told_while_a_file_has_a_mistake_but_not_without_a_book(run, copy):
    copy.edit("topics/sharding/quiz.yml", "right_if: {claim: whole-fails}", "")
    code, said, error = run("keys")
    assert code == 2
    assert "## Option\n" in said
    assert error.endswith("1 mistake in the content\n")
    (copy.content / "site.yml").unlink()
    code, _, error = run("keys")
    assert code == 2
    assert "site.yml: no such file; the book needs a home page" in error


def test_every_file_of_an_author_names_a_schema_that_there_is(run, tmp_path, monkeypatch):
    written = [path for path in Path("content").rglob("*.yml") if "planner" not in path.parts]
    first = [path.read_text(encoding="utf-8").split("\n")[0] for path in written]
    names = {line.rpartition("/.cache/schemas/")[2] for line in first}
    monkeypatch.chdir(tmp_path)
    assert run("schema")[0] == 0
    assert names <= {path.name for path in Path(".cache/schemas").iterdir()}
    kinds = json.loads(Path(".cache/schemas/quiz.json").read_text())["$defs"]
    assert "stem" in kinds["Ordering"]["properties"]
    claim = json.loads(Path(".cache/schemas/claims.json").read_text())["$defs"]["Claim"]
    assert all(one.get("description") for key, one in claim["properties"].items() if key != "id")
    assert "at_least" in claim["properties"]["relation"]["enum"]


# --- `python -m runners show`: what it prints is what an author can paste


def test_every_expression_that_show_lists_prints_when_it_is_pasted(book, evidence):
    refused, num_listed = {}, 0
    for shown in book.traces.values():
        for line in lines(shown.trace):
            expression = line.removeprefix("{{ ").partition(" }}  ")[0]
            found = evidence.evaluate(expression)
            problem = evidence.why_unprintable(found) or found.absent
            refused |= {expression: str(problem)} if problem else {}
            num_listed += 1
    assert refused == {}
    assert num_listed > 300


def test_a_run_is_among_all_that_is_shown(capsys):
    assert main_of_runners(["show", "ddp.single"]) == 0
    of_run = capsys.readouterr().out.splitlines()
    assert main_of_runners(["show"]) == 0
    everything = capsys.readouterr().out.splitlines()
    assert of_run == [line for line in everything if line.startswith("{{ ddp.single.")]
    assert len({line.split(".")[0] for line in everything}) > 30


def test_the_trace_of_an_experiment_that_is_gone_is_shown_among_all(capsys, monkeypatch, tmp_path):
    document = json.loads(next(machine.TRACES.glob("reference-*/batch_split.json")).read_text())
    folder = tmp_path / "reference-here"
    folder.mkdir()
    write(folder / "gone.json", document | {"experiment": "gone"})
    monkeypatch.setattr(machine, "TRACES", tmp_path)
    assert main_of_runners(["show"]) == 0
    assert capsys.readouterr().out.startswith("{{ gone.")


def test_what_is_not_there_is_one_line_and_exit_code_2(capsys):
    assert main_of_runners(["show", "ddp.singel"]) == 2
    told = capsys.readouterr()
    assert "no run of ddp 'singel' (did you mean single?); there are:" in told.err
    assert told.err.count("\n") == 1
    assert told.out == ""


@pytest.mark.builds
def test_show_needs_no_torch(tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    done = python("-m", "runners", "show", "ddp", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.splitlines()) < 30
