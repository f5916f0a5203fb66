"""The lines that a person reads of one run: the same after `try` and on a page."""

from proofbook.runners.core.trace.measured import Memory
from proofbook.runners.traces.files import read
from proofbook.runners.traces.summary import seconds_in_words, summary_lines
from tests.conftest import ROOT


def _frozen(trace, run):
    return read(ROOT / f"tests/book/content/traces/reference-frozen/{trace}.json").runs[run]


def test_a_run_is_told_from_its_end_to_its_time():
    run = _frozen("tiny_training", "averaged")
    first, second = run.ranks
    peaks = [
        {"peak_bytes": size, "peak_phase": "backward", "at_peak": None, "largest": None,
         "phases": {}, "kernel_peak_bytes": None}
        for size in (5 << 20, 6 << 20)
    ]  # fmt: skip
    ranks = [
        one.model_copy(update={"memory": Memory.model_validate(peak)})
        for one, peak in zip((first, second), peaks, strict=True)
    ]
    printed = run.model_copy(update={"printed": ["epoch 1: loss 2.0"], "ranks": ranks})
    assert summary_lines(printed) == [
        "ended: completed",
        "printed by rank 0:",
        "  epoch 1: loss 2.0",
        "loss: 2.0000 in epoch 1, 1.2500 in epoch 5",
        "accuracy in training: 61.0%",
        "accuracy on 16 samples never trained on: 52.0%",
        "peak memory, rank 0: 5.00 MiB in backward",
        "peak memory, rank 1: 6.00 MiB in backward",
        "payload of a step, ranks 0 and 1: all_reduce 144 B in 1 call",
        "step: median 2.20 ms of 5 measurements, quartiles 2.10 ms and 2.30 ms",
    ]


def test_a_run_without_steps_tells_what_it_timed():
    run = _frozen("tiny_training", "averaged")
    named = run.timing.model_copy(update={"step": None, "measures": {"by_node": run.timing.step}})
    assert summary_lines(run.model_copy(update={"timing": named}))[-1] == (
        "by_node: median 2.20 ms of 5 measurements, quartiles 2.10 ms and 2.30 ms"
    )


def test_a_refusal_says_where_and_for_how_much():
    assert summary_lines(_frozen("tiny_memory", "whole_budget")) == [
        "ended: out of memory in backward on rank 0, asking for 40,000 bytes"
    ]


def test_seconds_of_a_clock_that_is_behind_are_told_below_0():
    assert seconds_in_words(-2.049e-05) == "−20.5 µs"
