"""Confirming the memory meter: who calls the strategy again, and when a run fails."""

from types import SimpleNamespace

import pytest

from proofbook.runners.core.meters.kernel import MeterDisagreesError
from proofbook.runners.core.ranks import confirm


def rank_with(fault: str | None) -> SimpleNamespace:
    return SimpleNamespace(
        is_metered=True,
        has_lost_peers=False,
        memory_fault=fault,
        largest_collective_bytes=0,
        world_size=2,
    )


def calls_of(monkeypatch: pytest.MonkeyPatch, again: list[str | None], maxima: list[int]) -> list:
    """The calls that follow: this rank's faults in them, and the maxima over both ranks."""
    calls = []

    def call_again(rank, strategy, scratch_bytes):
        calls.append(strategy)
        return rank_with(again[len(calls) - 1])

    known = iter(maxima)
    monkeypatch.setattr(confirm, "_call_again", call_again)
    monkeypatch.setattr(confirm, "_max_over_ranks", lambda rank, *values: [next(known), 0])
    return calls


def test_a_rank_without_a_fault_calls_again_beside_the_peer_that_has_one(monkeypatch):
    calls = calls_of(monkeypatch, [None, None], maxima=[1, 1, 0])
    confirm.confirm_memory(rank_with(None), "train")
    assert calls == ["train", "train"]


def test_a_fault_of_every_call_fails_the_run_and_one_that_passes_does_not(monkeypatch):
    calls = calls_of(monkeypatch, ["fault"] * 3, maxima=[1, 1, 1, 1])
    with pytest.raises(MeterDisagreesError, match="in 4 calls"):
        confirm.confirm_memory(rank_with("fault"), "train")
    assert len(calls) == confirm.MOST_FURTHER_CALLS
    calls = calls_of(monkeypatch, [None], maxima=[1, 0])
    confirm.confirm_memory(rank_with("fault"), "train")
    assert len(calls) == 1
