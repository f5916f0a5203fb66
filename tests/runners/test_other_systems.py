"""Runs on a system that is not Linux: one command, start to trace, without what Linux offers."""

from pathlib import Path

import pytest

from proofbook.runners.traces.files import read
from tests.processes import OWN_EXPERIMENTS, python

pytestmark = pytest.mark.ranks


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """A small experiment as `run` measures it where `platform.system()` says Darwin."""
    traces = tmp_path_factory.mktemp("traces")
    own = {"PYTHONPATH": str(Path(__file__).parent / "no_linux"), "PROOFBOOK_TRACES": str(traces)}
    names = ("changeable.shared", "changeable.alone")
    done = python("-m", "runners", "run", *names, **OWN_EXPERIMENTS, **own)
    assert done.returncode == 0, done.stderr
    (path,) = traces.glob("*/changeable.json")
    return read(path)


def test_ranks_train_and_are_metered_where_a_process_with_torch_must_not_fork(trace):
    shared = trace.runs["shared"]
    assert shared.status == "completed"
    assert shared.passes == ["timed", "metered"]
    assert shared.printed == ["sum of 6 each: 12"] * 3
    assert [c.operation for c in shared.ranks[1].collectives] == ["all_reduce"]


def test_a_metered_pass_has_no_kernel_mark_where_there_is_no_proc(trace):
    memory = trace.runs["shared"].ranks[0].memory
    assert memory.peak_bytes == 12  # floats: the number of samples, a sum, and the one before it
    assert memory.kernel_peak_bytes is None


def test_only_the_run_with_a_budget_is_left_out(trace):
    left_out = {n: r.reason for n, r in trace.runs.items() if r.status != "completed"}
    assert left_out == {"alone": "Darwin does not let a process limit its own data segment"}
