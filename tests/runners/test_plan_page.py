"""The command and the program of the Plan page, as they stand there."""

import re
import shlex

import pytest
import yaml

from runners.__main__ import main
from tests.conftest import ROOT


@pytest.fixture
def words():
    """What follows `plan` in the command of the page."""
    page = yaml.safe_load((ROOT / "content" / "planner" / "plan.yml").read_text(encoding="utf-8"))
    block = re.search(r"```sh\n(.*?)```", page["own"], re.DOTALL)[1]
    command = shlex.split(block.replace("\\\n", " "))
    assert command[:4] == [".venv/bin/python", "-m", "runners", "plan"]
    program = page["program"]["path"].removesuffix(".py").replace("/", ".")
    assert [f"{program}:model", f"{program}:batch"] == [command[5], command[7]]
    return command[4:]


@pytest.mark.builds
def test_the_example_of_the_page_plans_a_model_of_your_own(words, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert main(["plan", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[1]: line.split()[0] for line in lines[3:] if line.strip()}
    assert rows == {"single,": "marginal", "ddp,": "no", "fsdp,": "fits"}
