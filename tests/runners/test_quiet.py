"""A quiet machine: the judgement, the load of others, and what a reference set demands.

No test measures how quiet this machine is: readings are injected, and load is only demanded where
the test makes it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from runners.commands import run as running
from runners.commands.run import RunRequest
from runners.measuring import measure, quiet
from runners.measuring.pending import part_of
from runners.measuring.quiet import Reading, Readings
from runners.traces.files import read
from runners.traces.quiet_record import Quiet

STEADY = 1e-3
IDLE = Reading(0.01, STEADY)
BUSY = Reading(0.4, STEADY)
SLOWER = Reading(0.01, 1.1e-3)


def _record(before: Reading = IDLE, after: Reading = IDLE) -> Quiet:
    return before.until(after)


class Given:
    """Gives readings in turn; the last of them for ever."""

    def __init__(self, *readings: Reading) -> None:
        self.readings = list(readings)
        self.num_taken = 0

    def __call__(self) -> Reading:
        self.num_taken += 1
        return self.readings.pop(0) if len(self.readings) > 1 else self.readings[0]


# --- the judgement


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (IDLE, IDLE, []),
        (Reading(None, STEADY), Reading(None, STEADY), []),
        (BUSY, IDLE, ["other processes used 40% of the cores before it"]),
        (IDLE, SLOWER, ["the compute canary differed by 10.0% before and after it"]),
        (IDLE, Reading(0.0, 1.04e-3), []),
    ],
)
def test_an_experiment_is_quiet_without_load_and_with_equal_canaries(
    before: Reading, after: Reading, says: list[str]
) -> None:
    found = before.until(after)
    assert found.disturbances == says
    assert found.is_quiet == (not says)


# --- what is read


def test_load_is_the_share_of_ticks_that_were_not_idle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = tmp_path / "stat"
    #                user nice system idle iowait irq softirq steal
    stat.write_text("cpu  100 0 50 800 20 0 0 10 0 0\n")
    later = "cpu  120 0 55 860 30 0 0 15 0 0\n"
    monkeypatch.setattr(quiet.time, "sleep", lambda _: stat.write_text(later))
    assert quiet.load(1.0, stat) == pytest.approx(0.3)
    assert quiet.load(1.0, tmp_path / "nowhere") is None


# --- what the reference demands


@pytest.fixture
def reference(folder: Path) -> Path:
    """The folder of the reference machine."""
    assert folder.parent.is_dir()
    return measure.folder(as_reference=True)


def _run(*readings: Reading, **request: bool) -> tuple[running.Ran, Given]:
    taken = Given(*readings)
    wanted = RunRequest(names=("heavier",), full=True, **request)
    return running.run(wanted, Readings(taken)), taken


@pytest.mark.ranks
def test_a_plain_run_records_how_quiet_it_was_and_says_so(folder: Path) -> None:
    ran, taken = _run(IDLE, SLOWER)
    assert (ran.exit_code, taken.num_taken) == (0, 2)
    assert ran.not_quiet == ["heavier: the compute canary differed by 10.0% before and after it"]
    assert read(folder / "heavier.json").quiet == _record(IDLE, SLOWER)
    ran, taken = _run(IDLE)
    assert (ran.num_fresh, ran.not_quiet, taken.num_taken) == (1, [], 0)


@pytest.mark.ranks
def test_a_reference_that_was_not_quiet_is_measured_again(
    reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran, taken = _run(IDLE, SLOWER, SLOWER, as_reference=True)
    assert (ran.exit_code, ran.not_measured, taken.num_taken) == (0, [], 3)
    assert "compute canary differed by 10.0%" in capsys.readouterr().err
    found = read(reference / "heavier.json").quiet
    assert found == _record(SLOWER, SLOWER)
    assert found.is_quiet


@pytest.mark.ranks
def test_a_reference_that_is_never_quiet_leaves_the_trace_as_it_was(
    reference: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run(IDLE, as_reference=True)
    before = (reference / "heavier.json").read_bytes()
    ran, taken = _run(IDLE, BUSY, IDLE, BUSY, as_reference=True, force=True)
    assert (ran.exit_code, ran.num_measured, taken.num_taken) == (1, 0, 4)
    assert ran.not_measured == ["heavier"]
    assert "not quiet: other processes used 40% of the cores after it\n" in capsys.readouterr().err
    assert (reference / "heavier.json").read_bytes() == before
    assert not part_of("heavier", reference).exists()
