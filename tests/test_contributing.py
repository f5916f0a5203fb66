"""The examples of CONTRIBUTING.md, word by word: files as they stand, commands as they stand."""

import re
from textwrap import dedent

import pytest

from tests.clones import cloned, pasted
from tests.conftest import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()
MOST_WORDS = 2000


def _section(title):
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def _commands(section):
    blocks = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


def test_it_is_short_and_says_first_how_to_add_an_experiment_a_kind_of_question_and_a_page():
    assert len(TEXT.split()) <= MOST_WORDS
    titles = re.findall(r"^## (.*)", TEXT, re.MULTILINE)
    assert titles[:3] == ["Add an experiment", "Add an item kind", "Add a page"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A fresh clone that had measured nothing, and what each command of the examples printed."""
    clone = cloned(tmp_path_factory.mktemp("examples") / "proofbook")
    titles = ("Add an experiment", "Add a page")
    commands = [line for title in titles for line in _commands(_section(title))]
    once = [one for at, one in enumerate(commands) if one not in commands[at + 1 :]]
    return clone, {command: tried(command, clone) for command in once}  # `check` sees all of it


def tried(command, clone):
    done = pasted(command, clone)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def _said(ran, word):
    (said,) = (text for command, text in ran[1].items() if word in command)
    return said


@pytest.mark.ranks
def test_the_experiment_runs_as_declared_and_shows_its_values(ran):
    python = ".venv/bin/python"
    then = f"then: {python} -m runners run widths; {python} -m generator check"
    assert then in _said(ran, "new experiment")
    assert "1 measured, 0 already fresh, 0 surprises" in _said(ran, "runners run widths")
    assert '{{ widths.wide.status }}  "completed"' in _said(ran, "runners show")


@pytest.mark.ranks
def test_its_law_is_the_example_and_holds_on_both_runs(ran):
    clone, said = ran
    example = _section("Add an experiment").partition("```yaml\n")[2].partition("   ```")[0]
    law = (clone / "content" / "claims" / "widths.yml").read_text()
    assert law.partition("\n")[2] == dedent(example)  # below the line for editors
    verdicts = said[".venv/bin/python -m generator check"]
    assert "widths-model-bytes" not in verdicts  # what does not hold is listed
    assert verdicts.splitlines()[-1].startswith("sound")


@pytest.mark.ranks
def test_the_example_is_the_template_which_make_check_passes(ran):
    experiments = ran[0] / "runners" / "experiments"
    assert (experiments / "widths.py").read_text() == (experiments / "_template.py").read_text()


def test_what_the_page_for_authors_tells_to_call_is_called_by_tests():
    page = (ROOT / "content" / "pages" / "write-a-lesson.md").read_text()
    commands = re.findall(r"^\.venv/.*", page, re.MULTILINE)
    assert len(commands) == 6
    assert {*commands} <= {*_commands(TEXT), *_commands((ROOT / "README.md").read_text())}
    targets = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert {*re.findall(r"`make (\w+)`", page)} <= {*targets}
