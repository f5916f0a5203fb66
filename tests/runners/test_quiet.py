"""A quiet machine: the judgement, the load of others, and what a trace records.

No test measures how quiet this machine is: readings are injected, and load is only demanded where
the test makes it.
"""

import pytest

from proofbook.runners.commands import run as running
from proofbook.runners.commands.run import RunRequest
from proofbook.runners.core.measuring import measure, quiet
from proofbook.runners.core.measuring.quiet import Readings
from proofbook.runners.core.trace import machine
from proofbook.runners.system.errors import FixableError
from proofbook.runners.traces.files import read, write

STEADY = 1e-3
IDLE, BUSY, SLOWER = (0.01, STEADY), (0.4, STEADY), (0.01, 1.1e-3)


@pytest.fixture
def injected(monkeypatch):
    """A function that sets the next readings of the machine."""
    return lambda *given: monkeypatch.setattr(quiet, "reading", iter(given).__next__)


@pytest.mark.parametrize(
    ("before", "after", "was_busy", "was_quiet"),
    [
        (IDLE, IDLE, False, True),
        ((None, STEADY), (None, STEADY), False, True),
        (BUSY, IDLE, True, False),
        (IDLE, BUSY, True, False),
        (IDLE, SLOWER, False, False),
        (IDLE, (0.0, 1.04e-3), False, True),
    ],
)
def test_an_experiment_is_quiet_without_load_and_with_equal_canaries(
    before, after, was_busy, was_quiet, injected
):
    injected(before, after)
    readings = Readings()
    readings.begin()
    found = readings.end()
    assert (found.was_busy, found.was_quiet) == (was_busy, was_quiet)


def test_load_is_the_share_of_ticks_that_were_not_idle(tmp_path, monkeypatch):
    stat = tmp_path / "stat"
    #                user nice system idle iowait irq softirq steal
    stat.write_text("cpu  100 0 50 800 20 0 0 10 0 0\n")
    later = "cpu  120 0 55 860 30 0 0 15 0 0\n"
    monkeypatch.setattr(quiet.time, "sleep", lambda _: stat.write_text(later))
    assert quiet.load(1.0, stat) == pytest.approx(0.3)
    assert quiet.load(1.0, tmp_path / "nowhere") is None


@pytest.mark.ranks
def test_a_run_records_how_quiet_it_was_and_says_so(folder, injected):
    request = RunRequest(names=("heavier",), full=True)
    injected(IDLE, SLOWER)
    ran = running.run(request)
    assert ran.exit_code == 0
    assert ran.not_quiet == ["heavier"]
    assert read(folder / "heavier.json").quiet.load_after_share == IDLE[0]
    injected()  # what is fresh takes no reading
    ran = running.run(request)
    assert (ran.num_fresh, ran.not_quiet) == (1, [])


@pytest.mark.parametrize(
    ("field", "other"), [("cpu", "another"), ("caches", "48K Data"), ("num_cores", 3)]
)
def test_a_reference_is_of_one_machine_and_of_all_its_instructions(
    field, other, folder, monkeypatch
):
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    where = measure.folder(as_reference=True)
    described = machine.describe(where.name)
    write(where / "machine.json", described.model_copy(update={field: other}))
    with pytest.raises(FixableError, match=f"measured where {field} is {other}"):
        running.run(RunRequest(names=("heavier",), as_reference=True))
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
    with pytest.raises(FixableError, match="ATEN_CPU_CAPABILITY is set"):
        running.run(RunRequest(names=("heavier",), as_reference=True))
    assert [one.name for one in where.iterdir()] == ["machine.json"]
