"""The examples of CONTRIBUTING.md, word by word: files as they stand, commands as they stand."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.clones import cloned, pasted
from tests.conftest import ROOT

TEXT = (ROOT / "CONTRIBUTING.md").read_text()


def _section(title: str) -> str:
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def _files(section: str) -> dict[str, str]:
    """What a section tells to write, by path."""
    return dict(
        re.findall(r"`([\w/.-]+)`:\n\n```\w+\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    )


def _commands(section: str) -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines()]


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A fresh clone that has measured nothing, with what the examples tell to write."""
    into = cloned(tmp_path_factory.mktemp("examples") / "proofbook")
    for title in ("Add an experiment", "Add a law"):
        for path, text in _files(_section(title)).items():
            (into / path).parent.mkdir(parents=True, exist_ok=True)
            (into / path).write_text(text)
    return into


def _tried(command: str, clone: Path) -> str:
    done = pasted(command, clone)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


@pytest.mark.ranks
def test_the_experiment_runs_as_declared_and_shows_its_values(clone):
    ran, shown = (_tried(one, clone) for one in _commands(_section("Add an experiment")))
    assert "1 measured, 0 already fresh, 0 surprises" in ran
    assert re.search(r"^  wide .*completed", shown, re.MULTILINE)


@pytest.mark.ranks
def test_the_law_holds_on_that_run(clone):
    (command,) = _commands(_section("Add a law"))
    said = pasted(command, clone)
    for run in ("narrow", "wide"):
        assert re.search(rf"^holds .*widths-model-bytes@widths\.{run}:", said.stdout, re.MULTILINE)


@pytest.mark.parametrize("tool", ["ruff check", "ruff format --check", "mypy"])
def test_the_example_passes_make_check(clone, tool):
    if shutil.which("mypy", path=str(ROOT / ".venv/bin")) is None:
        pytest.skip("no mypy here")
    assert _tried(f".venv/bin/{tool} runners/experiments/widths", clone)


@pytest.mark.ranks
@pytest.mark.builds
def test_a_strict_build_shows_and_marks_what_only_this_machine_has_measured(clone):
    run, _ = _commands(_section("Add an experiment"))
    _tried(run, clone)
    recipe = (ROOT / "Makefile").read_text().partition("\npages:")[2].partition("\n\t@")[2]
    command = recipe.partition("\n")[0].replace("$(REFERENCE)", "reference-cpu-2c")
    _tried(command.replace("$(PY)", ".venv/bin/python"), clone)
    page = (clone / "site" / "html" / "evidence" / "widths.html").read_text()
    assert "Not measured on the reference machine." in page
