"""Thirty numbers of ten short runs, drawn by the session's seed and measured again."""

import random
import shlex

import pytest

from generator.evidence.sources import COMMAND
from runners.traces.files import read, trace_paths
from tests.clones import cloned, pasted
from tests.sampled import REFERENCE, numbers, short_runs
from tests.soak.conftest import SEED

pytestmark = pytest.mark.soak
NUM_RUNS, NUM_OF_A_RUN = 10, 3


def test_thirty_numbers_of_ten_runs_are_the_same_again(tmp_path):
    draw = random.Random(SEED)
    traces = [read(path) for path in trace_paths(REFERENCE)]
    drawn = [(one, draw.choice(runs)) for one in traces if (runs := short_runs(one))]
    found = [[path for path, _ in numbers(*one)] for one in drawn]
    several = [paths for paths in found if len(paths) >= NUM_OF_A_RUN]
    runs = draw.sample(several, NUM_RUNS)
    paths = [path for paths in runs for path in draw.sample(paths, NUM_OF_A_RUN)]
    done = pasted(f"{COMMAND} {shlex.join(paths)}", cloned(tmp_path / "clone"))
    assert done.returncode == 0, done.stdout + done.stderr
