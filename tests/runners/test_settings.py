"""What experiments declare: settings, files and names; what is refused."""

import re
from dataclasses import replace
from typing import Literal

import pytest

from proofbook.generator.content.scaffold import CannotScaffoldError, new_experiment
from proofbook.runners.__main__ import main
from proofbook.runners.core.declared.experiment import Declaration, find, names
from proofbook.runners.core.declared.settings import (
    Count,
    CountOrZero,
    Factor,
    FreeSettings,
    RunSettings,
)
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.records import Death
from proofbook.runners.system.book import MORE, ROOT, experiments_in
from tests.processes import python

# Whose settings are constants of the programs that they execute.
PROGRAMS = {"labs", "listings", "repeats"}


class Small(RunSettings):
    width: Count = 8
    widths: tuple[Count, ...] = (4, 8)
    skew: CountOrZero = 0
    rate: Factor = 0.1
    dtype: Literal["float32", "float64"] = "float32"
    num_shards: Count = 2

    @property
    def num_bytes(self):
        return 4 * self.width * self.world_size

    def closed_forms(self):
        return {"num_bytes": self.num_bytes}

    def forced(self):
        return {"num_shards": self.world_size} if self.strategy == "ddp" else {}

    def check(self):
        if self.width % self.world_size:
            raise ValueError(f"width {self.width} cannot be split over {self.world_size} ranks")


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"width": 0}, "width must be greater than or equal to 1, not 0"),
        ({"width": 2.5}, "width must be a valid integer, not 2.5"),
        ({"dtype": "int8"}, "dtype must be 'float32' or 'float64', not 'int8'"),
        ({"depth": 3}, "there is no setting 'depth'"),
    ],
)
def test_a_setting_that_cannot_be_is_one_line(wrong, line):
    with pytest.raises(ValueError, match=re.escape(line)) as refused:
        Small().changed(wrong)
    assert str(refused.value) == line


@pytest.mark.parametrize(
    "ends", [{}, {"signal": "SIGNONE"}, {"signal": "SIGKILL", "exit_code": 1}], ids=str
)
def test_a_death_is_one_signal_or_one_exit_code(ends):
    with pytest.raises(ValueError, match="a death has a signal such as SIGKILL, or an exit code"):
        Death(rank=0, phase="forward", **ends)


def test_mistakes_of_two_ranks_are_refused_for_three():
    declaration = find("hangs").runs["order_same"]
    with pytest.raises(ValueError, match="every run has two ranks, not 3"):
        replace(declaration, world_size=3)


def test_a_trace_holds_what_was_set_and_what_follows_of_the_run_that_it_stands_in():
    two = Declaration("ddp", 2, Small())
    four = replace(two, world_size=4)
    follows = {"num_shards": 4, "num_bytes": 128}
    assert four.settings.as_json() == {
        "width": 8, "widths": [4, 8], "skew": 0, "rate": 0.1, "dtype": "float32", **follows
    }  # fmt: skip
    assert (two.settings.num_bytes, two.settings.num_shards) == (64, 2)
    with pytest.raises(ValueError, match="width 8 cannot be split over 3 ranks"):
        replace(two, world_size=3)


def test_every_experiment_declares_the_types_of_its_settings():
    for name in [one for one in names() if one not in PROGRAMS]:
        for run, declaration in find(name).runs.items():
            assert not isinstance(declaration.settings, FreeSettings), f"{name}.{run}"


EXPERIMENT = """
from proofbook.runners.core.declared.experiment import Declaration
from proofbook.runners.core.declared.settings import Count, RunSettings

QUESTION = "Does it load?"


class Settings(RunSettings):
    \"\"\"One setting.\"\"\"

    width: Count = 8


def train(rank):
    pass


RUNS = {"one": Declaration("trian", 1, Settings(width=8))}
"""
LINE = 1 + EXPERIMENT.partition("RUNS")[0].count("\n")


@pytest.mark.parametrize(
    ("mistake", "wrong"),
    [
        ("width=2.5", f"{LINE}: Settings: width must be a valid integer, not 2.5"),
        ("width=8", " run 'one': no function 'trian' (did you mean train?)"),
    ],
)
def test_a_declared_setting_or_strategy_that_cannot_be_ends_the_command_in_one_line(
    tmp_path, monkeypatch, capsys, mistake, wrong
):
    path = tmp_path / "forbidden.py"
    path.write_text(EXPERIMENT.replace("width=8", mistake))
    monkeypatch.setenv(MORE, str(tmp_path))
    assert main(["list"]) == 2
    assert f"    {path}:{wrong}\n" in capsys.readouterr().out


def test_list_shows_the_experiments_that_are_named_and_no_others(capsys):
    main(["list", "ddp", "too_small", "ddp"])
    rows = [row for row in capsys.readouterr().out.splitlines() if not row.startswith(" ")]
    assert [row.split()[0] for row in rows[:-1]] == ["ddp", "too_small"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("QUESTION = 'Which?'\n", "broken.py: declares no RUNS"),
        ("\nRUNS = {\n", "broken.py:2: SyntaxError: '{' was never closed"),
        ("\nRUNS = {'a': wide}\n", "broken.py:2: NameError: name 'wide' is not defined"),
    ],
)
def test_a_broken_experiment_is_one_line_and_the_others_are_listed(
    tmp_path, monkeypatch, capsys, text, said
):
    (tmp_path / "broken.py").write_text(text)
    monkeypatch.setenv(MORE, str(tmp_path))
    monkeypatch.setattr(machine, "TRACES", tmp_path / "traces")
    assert main(["list", "broken", "ddp"]) == 2
    rows = capsys.readouterr().out.splitlines()
    assert said in rows[1]
    assert rows[2].startswith("ddp ")
    assert main(["run", "--dry"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line


@pytest.mark.builds
def test_no_declaration_loads_torch(tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')\n")
    done = python("-m", "runners", "list", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stderr) == (0, "")


def test_an_experiment_has_one_file_and_its_name_is_taken():
    files = (ROOT / "runners" / "experiments").glob("[!_]*.py")
    names = [name for path in files for name in experiments_in(path)]
    assert sorted({*names}) == sorted(names)
    with pytest.raises(CannotScaffoldError, match=r"replicas\.py declares ddp already"):
        new_experiment(ROOT, ROOT / "content", "ddp")
