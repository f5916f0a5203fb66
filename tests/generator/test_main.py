"""The generator's commands as a person calls them, and how a book is put on disk."""

import json
import re
from pathlib import Path

import pytest

from proofbook.generator import __main__ as commands
from proofbook.generator.__main__ import main
from proofbook.generator.content import keys
from proofbook.generator.content.reading import FILES, documents, load
from proofbook.generator.pages.press import Press
from proofbook.generator.values.filters import FUNCTIONS, OF_CLAIMS
from proofbook.generator.website import publish
from proofbook.runners.closed_forms.steps import LAWS
from proofbook.runners.traces import files as traces
from tests.generator.conftest import CONTENT


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


@pytest.fixture
def out(tmp_path):
    return tmp_path / "site" / "pages"


@pytest.fixture
def build(copy, out):
    """Bring the folder of pages to what the copy says now."""

    def bring():
        book = copy.load()
        publish.sync_folder(out, publish.site_files(book, copy.content, Press()))

    return bring


def stamps(folder):
    return {path: path.stat().st_mtime_ns for path in folder.rglob("[!.]*") if path.is_file()}


def test_a_build_writes_the_book_and_then_only_the_pages_whose_numbers_changed(build, out, copy):
    build()
    for page in ("index.md", "evidence.md", "retracted.md", "topics/sharding/experiment.md"):
        assert (out / page).is_file()
    trace = out / "traces" / "reference-frozen" / "tiny_memory.json"
    assert trace.read_bytes() == copy.trace("tiny_memory").read_bytes()
    before = stamps(out)
    build()
    assert stamps(out) == before
    model = copy.recorded("tiny_training.averaged")["model"]
    grown = {"num_parameters": 37, "bytes": 148}
    layers = [{**model["layers"][0], **grown}]
    copy.change_run("tiny_training.averaged", model={**model, **grown, "layers": layers})
    build()
    changed = {p.relative_to(out).as_posix() for p, at in stamps(out).items() if before[p] != at}
    assert "topics/averaging/cost.md" in changed
    assert "index.md" not in changed


def test_check_says_in_one_line_that_a_sound_book_is_sound(run):
    code, said, _ = run("check")
    assert code == 0
    (line,) = said.splitlines()
    assert re.fullmatch(
        r"sound: \d+ questions checked, (\d+) of \1 claims hold; numbers of reference-frozen", line
    )


def test_check_prints_every_mistake_and_exits_with_two(run, copy):
    copy.edit("site.yml", "Each number", "Each 1 number")
    copy.edit("topics/sharding/experiment.yml", "commit: who-fits", "commit: who-fist")
    code, _, said = run("check")
    assert code == 2
    assert said.splitlines()[-1] == "2 mistakes in the content"
    assert len(said.splitlines()) == 3


def test_a_surprise_is_said_and_exits_with_one(run, copy):
    copy.change_run("tiny_memory.halves_budget", status="out_of_memory")
    code, _, said = run("check")
    assert code == 1
    assert "problem: tiny_memory.halves_budget: ended out_of_memory, expected completed" in said


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


@pytest.mark.parametrize("name", ["class", "machine", "cited", "run", "mean", "holds", "plan_tiny"])
def test_an_experiment_takes_no_name_that_stands_for_something_else(run, copy, name):
    code, _, error = run("new", "experiment", name)
    assert code == 2
    assert error == f"{name!r} stands for something else; choose another name\n"
    assert not (copy.content / "claims" / f"{name}.yml").exists()


def test_a_new_lesson_passes_check_appears_in_the_book_and_is_not_started_again(run, build, out):
    code, said, _ = run("new", "lesson", "gradient-averaging")
    assert code == 0
    written = [line for line in said.splitlines() if "topics/gradient-averaging/" in line]
    assert all(Path(path).is_file() for path in written)
    code, said, error = run("check")
    assert code == 0, error
    build()
    folder = out / "topics" / "gradient-averaging"
    assert {path.stem for path in folder.iterdir()} == {"index", "trace", "recall"}
    code, _, error = run("new", "lesson", "gradient-averaging")
    assert code == 2
    assert "exists already" in error


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


@pytest.mark.parametrize(
    ("experiment", "belief"),
    [("tiny_memory", "copies-save-memory"), ("tiny_training", "averaging-is-optional")],
)
def test_a_distractor_of_a_new_lesson_is_refuted_by_a_law_of_its_own_experiment(
    run, copy, experiment, belief
):
    assert run("new", "lesson", "first", "--from", experiment)[0] == 0
    quiz = (copy.content / "topics/first/quiz.yml").read_text()
    assert {*re.findall("misconception: (.+)", quiz)} == {belief}
    assert run("check")[0] == 0


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
    assert {row[0].strip("| `").partition("(")[0] for row in rows} == {
        *FUNCTIONS,
        *LAWS,
        *OF_CLAIMS,
    }
    assert all(len(row[1]) > 10 for row in rows)
    assert "| `ended(run)` | How a run ended, in words" in functions


def test_parts_that_names_lead_to_have_their_keys_told():
    text = "\n".join(keys.page(FILES.values(), documents(CONTENT)[0]))
    assert "| a list of [LabRequirement](#labrequirement) |" in text
    assert "\n## LabRequirement\n" in text


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
    assert all(
        "stem" in kinds[name]["properties"] for name in ("SingleChoice", "Ordering", "Number")
    )
    claim = json.loads(Path(".cache/schemas/claims.json").read_text())["$defs"]["Claim"]
    assert all(one.get("description") for key, one in claim["properties"].items() if key != "id")
    assert "at_least" in claim["properties"]["relation"]["enum"]
    myth = json.loads(Path(".cache/schemas/deep.json").read_text())["$defs"]["Myth"]["properties"]
    assert "someone who holds it" in myth["belief"]["description"]
