"""Programs of a rank, run by the judge; a test fails where a rank of them does."""

from proofbook.runners.judging.ranks import run


def judged(program, world_size, *arguments, **how):
    """What each rank did."""
    seen = run(program, world_size, *arguments, **how)
    assert [one.failure for one in seen] == [None] * world_size
    return seen


def peaks_of(seen):
    """Tensor bytes at the peak of each rank."""
    return [one.memory.peak_bytes for one in seen]
