"""Invariants of every trace beyond the types of its fields.

In: a trace whose fields have their types. Out: a violation for each record that contradicts
itself or its run, with the path of the field. `files.py` refuses such a trace when it is read.
Pure; no torch.

These are not laws. A law compares a run with a prediction and may turn out false on some machine.
An invariant follows from how the meters and the gathering write a trace, on any machine. What
somebody could forge beyond them, `reproduce` finds: it measures a number again.
"""

from collections import Counter
from collections.abc import Iterator

from proofbook.runners.core.trace.fields import Steps
from proofbook.runners.core.trace.measured import SampledSeconds
from proofbook.runners.core.trace.records import Run, Trace

ENDED = ("completed", "diverged")


def violations(trace: Trace) -> Iterator[tuple[Steps, str]]:
    """Yield the path of each field that contradicts another in its run, and in words what is wrong.

    A skipped run has recorded nothing.
    """
    for name, run in trace.runs.items():
        for field, wrong in _of_run(run) if run.status != "skipped" else ():
            yield ("runs", name, *field), wrong


def _of_run(run: Run) -> Iterator[tuple[Steps, str]]:
    if not _has_its_ranks(run):
        yield ("ranks",), "are not as many as world_size, each once"
    if (run.error is None) != (run.status in ENDED):
        yield ("error",), "stands exactly where a run neither completed nor diverged"
    if not _sends_what_is_received(run):
        yield ("ranks",), "one receives from another what that one did not send, or the reverse"
    sampled = run.timing.sampled.values()
    if not all(times.samples and times == SampledSeconds.of(times.samples) for times in sampled):
        yield ("timing",), "has a median or quartile not of its samples"
    for place, rank in enumerate(run.ranks):
        memory = rank.memory
        if memory and memory.at_peak and sum(vars(memory.at_peak).values()) != memory.peak_bytes:
            yield ("ranks", place, "memory", "at_peak"), "does not sum to peak_bytes"


def _has_its_ranks(run: Run) -> bool:
    """Whether a run has all its ranks, in order; a simulated plan has some of them."""
    numbers = [rank.rank for rank in run.ranks]
    if run.nature == "simulated" and "num_ranks" in run.settings:
        return numbers == sorted({*numbers})
    return len(numbers) == run.world_size and numbers == list(range(run.world_size))


def _sends_what_is_received(run: Run) -> bool:
    """Whether each rank receives as many calls and bytes as others send to it in the step."""
    moved: dict[str, Counter[object]] = {"send": Counter(), "recv": Counter()}
    for rank in run.ranks:
        for collective in rank.collectives:
            for transfer in collective.transfers if collective.operation in moved else ():
                for field in ("count", "bytes"):
                    ends = transfer.source, transfer.destination, field
                    moved[collective.operation][ends] += getattr(transfer, field)
    return run.status not in ENDED or moved["send"] == moved["recv"]
