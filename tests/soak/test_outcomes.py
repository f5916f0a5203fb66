"""Budgets refuse every time: `run large_model --repeat 20`, each outcome as declared in all."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.conftest import copy_of_the_book

REPEATS = 20


@pytest.mark.soak
@pytest.mark.ranks
@pytest.mark.timeout(3 * 3600)
def test_every_outcome_is_as_declared_twenty_times_of_twenty(tmp_path):
    copy = copy_of_the_book(tmp_path / "copy")
    command = [sys.executable, "-m", "runners", "run", "large_model", "--repeat", str(REPEATS)]
    with subprocess.Popen(command, cwd=copy, stdout=subprocess.PIPE, text=True) as process:
        said = []
        for line in process.stdout:
            print(line, end="", flush=True)
            said.append(line)
    assert process.returncode == 0
    counts = re.findall(r"(\d+) of (\d+)", "".join(said))
    assert counts
    assert {pair for pair in counts if pair[1] == str(REPEATS)} == {(str(REPEATS),) * 2}
