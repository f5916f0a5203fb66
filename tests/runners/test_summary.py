"""The lines that a person reads of one run: the same after `try` and on a page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from runners.traces.files import read
from runners.traces.records import Run
from runners.traces.summary import bytes_in_words, seconds_in_words, summary_lines


@pytest.fixture
def document(root: Path) -> dict[str, Any]:
    """A real run as plain JSON, to be changed."""
    path = next((root / "content" / "traces").glob("reference-*/ddp.json"))
    return read(path).runs["no_sync"].model_dump(mode="json")


def peak(rank: int, num_bytes: int | None, kernel: int | None = None) -> dict[str, Any]:
    """A rank that needed this much."""
    return {
        "rank": rank, "status": "completed", "failure": None, "num_parameters": 1,
        "num_samples": 1, "first_parameter_digest": None, "start_parameter_digest": None,
        "parameter_digest": None,
        "memory": {
            "peak_bytes": num_bytes, "peak_phase": "backward" if num_bytes else None,
            "at_peak": None, "largest": None, "phases": {}, "kernel_peak_bytes": kernel,
        },
        "collectives": [
            {"operation": "all_reduce", "count": 2, "bytes": 3000},
            {"operation": "send", "count": 1, "bytes": 10},
        ],
    }  # fmt: skip


def test_a_run_is_told_from_its_end_to_its_time(document: dict[str, Any]) -> None:
    document |= {
        "printed": ["epoch 1: loss 2.0", "epoch 2: loss 1.5"],
        "epochs": [
            {"epoch": e, "loss": 3.0 - e, "accuracy": 0.25 * e, "validation_loss": None,
             "validation_accuracy": None, "ranks": []}
            for e in (1, 2)
        ],
        "validation": {"rank": 0, "num_samples": 1000, "loss": 1.0, "accuracy": 0.625},
        "ranks": [peak(0, 5 << 20), peak(1, 5 << 20), peak(2, 6 << 20)],
    }  # fmt: skip
    document["timing"] |= {
        "oversubscribed": True,
        "step": {"unit": "seconds", "samples": [0.001, 0.002, 0.003], "num_samples": 3,
                 "first_quartile_seconds": 0.0015, "median_seconds": 0.002,
                 "third_quartile_seconds": 0.0025},
    }  # fmt: skip
    assert summary_lines(Run.model_validate(document)) == [
        "ended: completed",
        "printed by rank 0:",
        "  epoch 1: loss 2.0",
        "  epoch 2: loss 1.5",
        "loss: 2.0000 in epoch 1, 1.0000 in epoch 2",
        "accuracy in training: 50.0%",
        "accuracy on 1,000 samples never trained on: 62.5%",
        "peak memory, ranks 0 and 1: 5.00 MiB in backward",
        "peak memory, rank 2: 6.00 MiB in backward",
        "payload of a step, ranks 0, 1 and 2: all_reduce 2.93 KiB in 2 calls, send 10 B in 1 call",
        "step: median 2.00 ms of 3 measurements, quartiles 1.50 ms and 2.50 ms; "
        "more ranks than cores",
    ]


def test_a_refusal_says_where_for_how_much_and_under_which_budget(document: dict[str, Any]) -> None:
    document |= {
        "status": "out_of_memory",
        "budget_bytes": 4 << 20,
        "error": {"kind": "out_of_memory", "message": "no", "requested_bytes": 2048, "rank": 0,
                  "phase": "forward", "step": 0},
        "printed": [], "epochs": [], "validation": None, "ranks": [peak(0, None, 3 << 20)],
    }  # fmt: skip
    document["timing"]["step"] = None
    document["ranks"][0]["collectives"] = []
    assert summary_lines(Run.model_validate(document)) == [
        "ended: out of memory in forward on rank 0, asking for 2,048 bytes",
        "peak memory, rank 0: 3.00 MiB resident, code included; 4.00 MiB of data allowed",
    ]


@pytest.mark.parametrize(
    ("number", "said"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.00 KiB"), (10_000, "9.77 KiB"),
     (454_000_000, "433 MiB"), (1.5 * 2**30, "1.50 GiB"), (2**52, "4096 TiB")],
)  # fmt: skip
def test_bytes_are_told_in_the_largest_unit_there_is_one_of(number: float, said: str) -> None:
    assert bytes_in_words(number) == said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(12.34, "12.3 s"), (0.00234, "2.34 ms"), (0.0001, "100 µs"), (-2.049e-05, "−20.5 µs")],
)
def test_seconds_are_told_in_their_unit(seconds: float, said: str) -> None:
    assert seconds_in_words(seconds) == said
