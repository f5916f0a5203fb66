"""Thirty numbers of ten short runs, drawn by the session's seed and measured again."""

import random
import shlex

import pytest

from proofbook.generator.printing.sources import PYTHON
from tests.clones import cloned, pasted
from tests.sampled import paths, short_runs

pytestmark = pytest.mark.soak


def test_thirty_numbers_of_ten_runs_are_the_same_again(tmp_path, seed):
    draw = random.Random(seed)
    several = [[*found.values()] for one in short_runs() if len(found := paths(*one)) >= 3]
    drawn = [path for one in draw.sample(several, 10) for path in draw.sample(one, 3)]
    done = pasted(f"{PYTHON} reproduce {shlex.join(drawn)}", cloned(tmp_path / "clone"))
    assert done.returncode == 0, done.stdout + done.stderr
