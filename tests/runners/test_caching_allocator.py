"""The replay of CUDA's caching allocator: worked cases, torch's own expectations, and invariants.

The worked cases follow from c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h of
torch 2.13. The published ones are `test_graph_memory_stats_and_use_result_after_destroy_graph` of
torch's test_cuda.py, which asserts what a real allocator reserves.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runners.simulate.allocation_replay import Allocate, Free, Pass, Use, replay
from runners.simulate.caching_allocator import CachingAllocator, OutOfMemoryError
from runners.simulate.memory_blocks import (
    BLOCK_BYTES,
    LARGE_SEGMENT_BYTES,
    LARGE_UNIT_BYTES,
    LEAST_LARGE_BYTES,
    MIB,
    SMALL_BYTES,
    SMALL_SEGMENT_BYTES,
    AllocatorSettings,
    rounded,
)

EXPANDABLE = AllocatorSettings(expandable_segments=True)


def sizes(allocator):
    """The blocks of every segment: their sizes, negative where they are free."""
    return [
        [block.size if block.allocated else -block.size for block in segment if block.mapped]
        for segment in allocator.segments()
    ]


def test_streams_do_not_share_blocks():
    """The search key holds the stream."""
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(16 * MIB, stream=1))
    allocator.allocate(16 * MIB, stream=2)
    assert allocator.reserved.now == 32 * MIB


def test_a_block_that_another_stream_uses_is_reused_only_after_that_stream():
    """`recordStream`, `insert_events`, `process_events`: freed at once, active until then."""
    log = [Allocate(0, 16 * MIB), Use(0, 1), Free(0), Allocate(1, 16 * MIB)]
    waiting = replay(log)
    assert waiting.peak_reserved_bytes == 32 * MIB
    assert (waiting.peak_allocated_bytes, waiting.peak_active_bytes) == (16 * MIB, 32 * MIB)
    passed = replay([*log[:3], Pass(1), log[3]])
    assert (passed.peak_active_bytes, passed.peak_reserved_bytes) == (16 * MIB, 16 * MIB)


def test_unused_segments_are_released_where_a_new_one_does_not_fit():
    """`malloc`: `release_cached_blocks`, which waits for other streams, then another attempt."""
    settings = AllocatorSettings(allowed_bytes=64 * MIB)
    log = [Allocate(0, 30 * MIB), Use(0, 1), Allocate(1, 20 * MIB), Free(0), Allocate(2, 40 * MIB)]
    result = replay(log, settings)
    assert (result.is_refused, result.peak_reserved_bytes) == (False, 60 * MIB)


def test_split_segments_cannot_be_released_so_a_request_can_fail_beside_free_memory():
    """`release_blocks` frees segments that are one block: 58 MiB are free, 40 do not fit."""
    settings = AllocatorSettings(allowed_bytes=64 * MIB)
    log = [
        *(event for key in range(3) for event in (Allocate(key, 20 * MIB), Free(key))),
        Allocate(3, 2 * MIB),
        Allocate(4, 40 * MIB),
    ]
    assert not replay(log, settings).is_refused
    assert replay([*log, Allocate(5, 30 * MIB)], settings).is_refused


def test_an_expandable_segment_grows_by_pages_and_leaves_no_slivers():
    """Two blocks of 15 MiB need two segments of 16 MiB, and two pages of 20 MiB together."""
    log = [Allocate(0, 15 * MIB), Allocate(1, 15 * MIB), Allocate(2, 10 * MIB)]
    assert replay(log[:2]).peak_reserved_bytes == 32 * MIB
    assert replay(log[:2], EXPANDABLE).peak_reserved_bytes == 40 * MIB
    assert replay(log, EXPANDABLE).peak_reserved_bytes == 40 * MIB


def test_free_pages_of_an_expandable_segment_are_released_and_mapped_again():
    """`unmap_block` returns whole pages alone; `find_expandable_block` fills the lowest gap."""
    allocator = CachingAllocator(EXPANDABLE)
    first, second = allocator.allocate(50 * MIB), allocator.allocate(30 * MIB)
    allocator.free(first)
    allocator.empty_cache()
    # Two whole pages of 20 MiB lie within the free 50 MiB.
    assert allocator.reserved.now == 40 * MIB
    again = allocator.allocate(45 * MIB)
    assert (again.address, again.size) == (first.address, 45 * MIB)
    assert allocator.reserved.now == 80 * MIB
    allocator.free(again)
    allocator.free(second)
    allocator.empty_cache()
    assert allocator.segments() == []
    assert allocator.reserved.now == 0


# (bytes of the tensor, segments, reserved bytes after the loop, the same after the rest was freed)
LARGE_OWN = rounded(LEAST_LARGE_BYTES + BLOCK_BYTES, LARGE_UNIT_BYTES)
PUBLISHED = [
    (BLOCK_BYTES, 1, SMALL_SEGMENT_BYTES, SMALL_SEGMENT_BYTES),
    (SMALL_BYTES, 2, 2 * SMALL_SEGMENT_BYTES, SMALL_SEGMENT_BYTES),
    (SMALL_BYTES + BLOCK_BYTES, 1, LARGE_SEGMENT_BYTES, LARGE_SEGMENT_BYTES),
    (LEAST_LARGE_BYTES - BLOCK_BYTES, 2, 2 * LARGE_SEGMENT_BYTES, LARGE_SEGMENT_BYTES),
    (LEAST_LARGE_BYTES + BLOCK_BYTES, 3, 3 * LARGE_OWN, LARGE_OWN),
]
# Where torch's test expects something else of expandable segments, after the loop and at the end.
PUBLISHED_EXPANDABLE = {
    3: (2 * LARGE_SEGMENT_BYTES, 2 * LARGE_SEGMENT_BYTES),
    4: (2 * LARGE_SEGMENT_BYTES, LARGE_SEGMENT_BYTES),
}


@pytest.mark.parametrize("expandable", [False, True])
@pytest.mark.parametrize("case", range(len(PUBLISHED)))
def test_it_reserves_what_torch_s_own_test_expects_of_a_device(case, expandable):
    """The loop of that test is `b = a.clone()`, then five times `b = b.clone() + 1`."""
    num_bytes, num_segments, reserved, at_end = PUBLISHED[case]
    if expandable:
        num_segments = 1
        reserved, at_end = PUBLISHED_EXPANDABLE.get(case, (reserved, at_end))
    allocator = CachingAllocator(AllocatorSettings(expandable_segments=expandable))
    kept = allocator.allocate(num_bytes)
    for _ in range(5):
        copy = allocator.allocate(num_bytes)
        result = allocator.allocate(num_bytes)
        allocator.free(copy)
        allocator.free(kept)
        kept = result
    assert len(allocator.segments()) == num_segments
    assert (allocator.reserved.now, allocator.active.now) == (reserved, num_bytes)
    allocator.empty_cache()
    assert (len(allocator.segments()), allocator.reserved.now) == (1, at_end)
    assert allocator.active.now == num_bytes


# A log as numbers: a size to allocate on a stream, or the place of the block to free.
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("allocate"),
            st.one_of(st.integers(1, 3 * MIB), st.integers(1, 40 * MIB)),
            st.integers(0, 1),
        ),
        st.tuples(st.just("free"), st.integers(0, 99), st.just(0)),
        st.tuples(st.just("use"), st.integers(0, 99), st.integers(0, 1)),
        st.tuples(st.just("pass"), st.just(0), st.integers(0, 1)),
        st.tuples(st.just("empty"), st.just(0), st.just(0)),
    ),
    max_size=40,
)
settings = st.builds(
    AllocatorSettings,
    allowed_bytes=st.sampled_from([None, 100 * MIB]),
    expandable_segments=st.booleans(),
)


def run(log, chosen, look=lambda allocator: None):
    """Perform a log, and look after each step; the allocator and the blocks still held."""
    allocator, held = CachingAllocator(chosen), []
    for kind, number, stream in log:
        try:
            if kind == "allocate":
                held.append(allocator.allocate(number, stream))
            elif kind == "pass":
                allocator.pass_events(stream)
            elif kind == "empty":
                allocator.empty_cache()
            elif held and kind == "free":
                allocator.free(held.pop(number % len(held)))
            elif held and kind == "use":
                allocator.record_use(held[number % len(held)], stream)
        except OutOfMemoryError:
            pass
        look(allocator)
    return allocator, held


def look_whole(allocator):
    """Every invariant that holds between two steps."""
    segments = allocator.segments()
    blocks = [block for segment in segments for block in segment]
    for segment in segments:
        for block, following in pairwise(segment):
            assert block.address + block.size == following.address, "blocks tile their segment"
            assert not (
                block.is_available and following.is_available and block.mapped == following.mapped
            ), "free neighbours have merged"
        assert all(block.size % BLOCK_BYTES == 0 and block.size > 0 for block in segment)
    for segment, following in pairwise(segments):
        assert segment[-1].address + segment[-1].size <= following[0].address
    assert sum(block.size for block in blocks if block.mapped) == allocator.reserved.now
    assert sum(block.size for block in blocks if block.allocated) == allocator.allocated.now
    assert allocator.active.now <= allocator.reserved.now <= allocator.reserved.peak
    assert allocator.allocated.now <= allocator.active.now
    allowed = allocator.settings.allowed_bytes
    if not allocator.settings.expandable_segments:  # whose pages can exceed the segment asked for
        assert allowed is None or allocator.reserved.peak <= allowed
    free = {id(block) for block in blocks if block.is_available}
    assert free == {
        id(entry[-1]) for pool in allocator._pools for entry in (*pool.free, *pool.unmapped)
    }


@given(steps, settings)
def test_blocks_tile_their_segments_and_never_overlap(log, chosen):
    run(log, chosen, look_whole)


@given(steps, settings)
def test_freeing_everything_leaves_one_free_block_in_each_segment_and_then_nothing(log, chosen):
    allocator, held = run(log, chosen)
    for block in held:
        allocator.free(block)
    for stream in (0, 1):
        allocator.pass_events(stream)
    allocator._process_events()
    assert allocator.allocated.now == allocator.active.now == 0
    assert all(
        len([block for block in segment if block.mapped]) <= 1 or chosen.expandable_segments
        for segment in allocator.segments()
    )
    allocator.empty_cache()
    assert allocator.segments() == []
    assert allocator.reserved.now == 0
