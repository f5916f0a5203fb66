"""The memory meter against the kernel: what is missed fails, what is touched once does not.

`make pythons` runs this file on the oldest and the newest Python that it finds.
"""

import re
from dataclasses import replace

import pytest

from proofbook.runners.core.declared.experiment import find
from proofbook.runners.core.measuring import measure
from proofbook.runners.core.meters.kernel import Growth, KernelPeak, disagreement
from proofbook.runners.core.trace.measured import Memory
from proofbook.runners.core.trace.records import Failure
from proofbook.runners.session.progress import Progress
from tests.runners.experiments import hidden

MIB = 1 << 20
NO_BYTES = dict.fromkeys(
    [f"{c}_bytes" for c in ("gradients", "optimizer", "activations", "buckets", "buffers")], 0
)


def memory(peak, buckets=0):
    classes = {"parameters_bytes": peak - buckets, **NO_BYTES, "buckets_bytes": buckets}
    return Memory(
        peak_bytes=peak, peak_phase="backward", at_peak=classes, largest=classes,
        phases={"backward": peak}, kernel_peak_bytes=None,
    )  # fmt: skip


def growth(peak, *, file=0, free=0, reused=0):
    return Growth(peak, "forward", file, free, reused)


@pytest.mark.parametrize(
    ("metered", "seen"),
    [
        (memory(10 * MIB), growth(10 * MIB)),
        (memory(10 * MIB), growth(40 * MIB, file=30 * MIB)),
        (memory(10 * MIB), growth(18 * MIB, free=8 * MIB)),
        (memory(10 * MIB), growth(7 * MIB, reused=3 * MIB)),
        (memory(10 * MIB, buckets=4 * MIB), growth(6 * MIB)),
    ],
    ids=["alike", "code", "free-heap", "reused-heap", "buckets-not-yet-touched"],
)
def test_what_was_measured_beside_tensors_is_no_disagreement(metered, seen):
    assert disagreement(metered, seen, 10) is None


@pytest.mark.parametrize(
    ("seen", "unexplained"),
    [
        (growth(14 * MIB), 4 * MIB),
        (growth(44 * MIB, file=30 * MIB), 4 * MIB),
        (growth(7 * MIB, file=30 * MIB, free=8 * MIB), 3 * MIB),
    ],
    ids=["missed", "missed-behind-code", "invented"],
)
def test_a_disagreement_names_both_peaks_their_phases_and_what_is_left(seen, unexplained):
    said = disagreement(memory(10 * MIB), seen, 10)
    assert said.startswith(f"meter {10 * MIB} bytes in backward, kernel {seen.peak_bytes} in forw")
    assert said.endswith(f"unexplained: {unexplained}")
    assert len(said.splitlines()) == 1
    assert len(said) < 290  # a failure keeps that much of a message


def test_the_peak_of_the_kernel_is_what_was_held_at_once_and_not_what_is_left():
    peak = KernelPeak()
    held = bytearray(b"1") * (64 * MIB)
    del held
    assert peak.bytes() >= 63 * MIB  # a thread counts some pages later


@pytest.mark.ranks
@pytest.mark.parametrize("name", ["honest", "loads"])
def test_memory_that_a_process_takes_once_is_no_disagreement(run, name):
    measured = run("hidden", name)
    assert measured.status == "completed", measured.error
    if name == "loads":  # the kernel did count it
        assert measured.ranks[0].memory.kernel_peak_bytes > hidden.ONCE_BYTES


@pytest.mark.ranks
@pytest.mark.parametrize("name", ["maps", "arrays", "blinded"])
def test_memory_that_the_meter_misses_fails_the_run(run, name):
    failed = run("hidden", name)
    assert failed.status == "failed"
    assert failed.error.rank == failed.world_size - 1
    assert failed.error.message.startswith("MeterDisagreesError: meter ")
    left = int(re.search(r"unexplained: (\d+), in 4 calls", failed.error.message).group(1))
    assert left == pytest.approx(hidden.MODEL_BYTES, rel=0.4)


@pytest.mark.ranks
def test_a_disagreement_that_another_forkserver_does_not_show_fails_no_run(
    launcher, monkeypatch, capsys
):
    ran = launcher.run_pass
    failure = Failure(kind="exception", message="MeterDisagreesError: 1", rank=0, phase="build")
    monkeypatch.setattr(launcher, "run_pass", lambda *a: replace(ran(*a), root_cause=failure))
    run = measure.measure_run(launcher, find("hidden"), "honest", Progress())
    assert run.status == "completed", run.error
    assert run.ranks[0].memory.kernel_peak_bytes
    assert "honest once more: MeterDisagreesError: 1" in capsys.readouterr().err
