"""Stages of a trace: arrows between ranks, drawn from the run's record."""

import re

from tests.generator import rendering
from tests.generator.scenes import a_stage_broadcast

TRACE = "topics/averaging/trace.md"


def _num_heads(page):
    """The heads of arrows of the stage that trains: what paths draw beyond their first line."""
    (stage,) = re.findall(r'id="stage-train".*?</details>', page, re.DOTALL)
    outlines = re.findall(r'<path class="pb-communication" d="([^"]*)"', stage)
    return sum(outline.count("M") - 1 for outline in outlines)


def test_an_operation_of_all_ranks_has_a_head_where_a_rank_receives(copy, book):
    assert _num_heads(rendering.render(book)[TRACE]) == 2 * 2  # all_reduce: both send and receive
    a_stage_broadcast(copy)
    assert _num_heads(rendering.render(copy.load())[TRACE]) == 1
