"""The commands and the program of the Plan page, as they stand there."""

import re
import shlex

import pytest
import yaml

from proofbook.runners.__main__ import main
from tests.conftest import ROOT


def _commands():
    """What follows `plan` in each command of the page; and the program that it shows."""
    page = yaml.safe_load((ROOT / "content" / "planner" / "plan.yml").read_text(encoding="utf-8"))
    blocks = re.findall(r"```sh\n(.*?)```", page["own"], re.DOTALL)
    lines = "".join(blocks).replace("\\\n", " ").strip().splitlines()
    commands = [shlex.split(line) for line in lines]
    assert all(one[:4] == [".venv/bin/python", "-m", "runners", "plan"] for one in commands)
    return [one[4:] for one in commands], page["program"]["path"]


@pytest.mark.builds
def test_the_example_of_the_page_plans_a_model_of_your_own(capsys, monkeypatch):
    commands, path = _commands()
    program = path.removesuffix(".py").replace("/", ".")
    words = commands[-1]
    assert [f"{program}:model", f"{program}:batch"] == [words[1], words[3]]
    monkeypatch.chdir(ROOT)
    assert main(["plan", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows = {line.split()[1]: line.split()[0] for line in lines[3:] if line.strip()}
    assert rows == {"single,": "marginal", "ddp,": "no", "fsdp,": "fits"}


def test_the_page_takes_a_configuration_first_and_functions_last():
    commands, _ = _commands()
    assert [one[1] for one in commands[:-1]] == ["config.json"] * (len(commands) - 1)
