"""The replay of CUDA's caching allocator: worked cases, torch's own expectations, and invariants.

The worked cases follow from c10/cuda/CUDACachingAllocator.cpp and c10/core/AllocatorConfig.h of
torch 2.13. The published ones are `test_graph_memory_stats_and_use_result_after_destroy_graph` of
torch's test_cuda.py, which asserts what a real allocator reserves.
"""

import json
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from proofbook.runners.simulate.caching_allocator import (
    BLOCK_BYTES,
    LARGE_SEGMENT_BYTES,
    LARGE_UNIT_BYTES,
    LEAST_LARGE_BYTES,
    MIB,
    SMALL_BYTES,
    SMALL_SEGMENT_BYTES,
    Allocate,
    CachingAllocator,
    replay,
    rounded,
)
from tests.processes import python


def blocks_of(segment):
    """All blocks of a segment, in the order of their addresses."""
    while segment is not None:
        yield segment
        segment = segment.next


def test_an_expandable_segment_grows_by_pages_and_streams_do_not_share_blocks():
    """Two blocks of 15 MiB need two segments of 16 MiB, and two pages of 20 MiB together."""
    log = [Allocate(0, 15 * MIB), Allocate(1, 15 * MIB), Allocate(2, 10 * MIB)]
    assert replay(log[:2]).reserved_bytes == 32 * MIB
    assert replay(log, is_expandable=True).reserved_bytes == 40 * MIB  # and leaves no slivers
    allocator = CachingAllocator()
    allocator.free(allocator.allocate(16 * MIB, stream=1))
    allocator.allocate(16 * MIB, stream=2)
    assert allocator.reserved.now == 32 * MIB


# (bytes of the tensor, segments, reserved bytes after the loop)
LARGE_OWN = rounded(LEAST_LARGE_BYTES + BLOCK_BYTES, LARGE_UNIT_BYTES)
PUBLISHED = [
    (BLOCK_BYTES, 1, SMALL_SEGMENT_BYTES),
    (SMALL_BYTES, 2, 2 * SMALL_SEGMENT_BYTES),
    (SMALL_BYTES + BLOCK_BYTES, 1, LARGE_SEGMENT_BYTES),
    (LEAST_LARGE_BYTES - BLOCK_BYTES, 2, 2 * LARGE_SEGMENT_BYTES),
    (LEAST_LARGE_BYTES + BLOCK_BYTES, 3, 3 * LARGE_OWN),
]
# Where torch's test expects something else of expandable segments.
PUBLISHED_EXPANDABLE = {3: 2 * LARGE_SEGMENT_BYTES, 4: 2 * LARGE_SEGMENT_BYTES}


@pytest.mark.parametrize("expandable", [False, True])
@pytest.mark.parametrize("case", range(len(PUBLISHED)))
def test_it_reserves_what_torch_s_own_test_expects_of_a_device(case, expandable):
    """The loop of that test is `b = a.clone()`, then five times `b = b.clone() + 1`."""
    num_bytes, num_segments, reserved = PUBLISHED[case]
    if expandable:
        num_segments, reserved = 1, PUBLISHED_EXPANDABLE.get(case, reserved)
    allocator = CachingAllocator(is_expandable=expandable)
    kept = allocator.allocate(num_bytes)
    for _ in range(5):
        copy = allocator.allocate(num_bytes)
        result = allocator.allocate(num_bytes)
        allocator.free(copy)
        allocator.free(kept)
        kept = result
    assert len(allocator.segments) == num_segments
    assert (allocator.reserved.now, allocator.allocated.now) == (reserved, num_bytes)


# A log as numbers: a size to allocate on a stream, or the place of the block to free.
steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("allocate"),
            st.one_of(st.integers(1, 3 * MIB), st.integers(1, 40 * MIB)),
            st.integers(0, 1),
        ),
        st.tuples(st.just("free"), st.integers(0, 99), st.just(0)),
    ),
    max_size=40,
)


def run(log, is_expandable, look):
    """Perform a log, and look after each step; the allocator and the blocks still held."""
    allocator, held = CachingAllocator(is_expandable=is_expandable), []
    for kind, number, stream in log:
        if kind == "allocate":
            held.append(allocator.allocate(number, stream))
        elif held:
            allocator.free(held.pop(number % len(held)))
        look(allocator)
    return allocator, held


def look_whole(allocator):
    """Every invariant that holds between two steps."""
    segments = [list(blocks_of(one)) for one in allocator.segments]
    blocks = [block for segment in segments for block in segment]
    for segment in segments:
        for block, following in pairwise(segment):
            assert block.end == following.address, "blocks tile their segment"
            assert not (block.is_free and following.is_free), "free neighbours have merged"
        assert all(block.size % BLOCK_BYTES == 0 and block.size > 0 for block in segment)
    assert sum(block.size for block in blocks) == allocator.reserved.now
    assert sum(block.size for block in blocks if not block.is_free) == allocator.allocated.now
    assert allocator.allocated.now <= allocator.reserved.now == allocator.reserved.peak
    kept = [entry[-1] for entries in allocator._free.values() for entry in entries]
    assert {id(block) for block in blocks if block.is_free} == {*map(id, kept)}


@given(steps, st.booleans())
def test_blocks_tile_their_segments_and_freed_they_leave_one_in_each(log, is_expandable):
    allocator, held = run(log, is_expandable, look_whole)
    for block in held:
        allocator.free(block)
    assert allocator.allocated.now == 0
    assert all(one.is_free and one.next is None for one in allocator.segments)


ALLOCATES = """
import json, random, torch
from proofbook.runners.simulate.caching_allocator import Allocate, Free, replay

chance, events, held = random.Random(0), [], {}
for key in range(2000):
    if held and (len(held) == 40 or chance.random() < 0.45):
        events.append(Free(chance.choice(list(held))))
        del held[events[-1].key]
    else:
        most = chance.choice([700, 40_000, *(mib << 20 for mib in (1, 2, 9, 12, 33, 70))])
        events.append(Allocate(key, chance.randint(most // 2, most)))
        held[key] = torch.empty(events[-1].num_bytes, dtype=torch.uint8, device="cuda")
counted, modelled = torch.cuda.memory_stats(), replay(events)
kinds = ("allocated", "reserved")
print(json.dumps([[counted[f"{kind}_bytes.all.peak"] for kind in kinds],
                  list(modelled)]))
"""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no accelerator")
def test_the_replay_reserves_what_this_machines_allocator_reserves():
    """In a process of its own, whose allocator has served nothing before."""
    device, model = json.loads(python("-c", ALLOCATES).stdout)
    assert model == device
