"""Runs without what only Linux offers, as on macOS."""

import pytest

from proofbook.runners.traces.files import read
from tests.conftest import ROOT
from tests.processes import OWN_EXPERIMENTS, python

pytestmark = [pytest.mark.soak, pytest.mark.ranks]


def test_a_system_that_is_not_linux_trains_and_meters_without_what_linux_offers(tmp_path):
    """There a process with torch must not fork, and there is no `/proc`."""
    own = {
        "PYTHONPATH": str(ROOT / "tests" / "runners" / "no_linux"),
        "PROOFBOOK_TRACES": str(tmp_path),
    }
    done = python("-m", "runners", "run", "elsewhere", **OWN_EXPERIMENTS, **own)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*/elsewhere.json")
    runs = read(path).runs
    summed = runs["summed"]
    assert (summed.status, summed.passes) == ("completed", ["timed", "metered"])
    assert summed.printed == ["summed"]
    assert [c.operation for c in summed.ranks[1].collectives] == ["all_reduce"]
    memory = summed.ranks[0].memory
    assert (memory.peak_bytes, memory.kernel_peak_bytes) == (3 * 4, None)
    left_out = {name: run.reason for name, run in runs.items() if run.status != "completed"}
    assert left_out == {"limited": "Darwin does not let a process limit its own data segment"}
