"""Pages: texts stay text, bars are as long as peaks, arrows lead where a run sent."""

from __future__ import annotations

import re

import pytest
import yaml
from markdown import Markdown

from tests.generator.conftest import render
from tests.generator.scenes import a_stage_broadcast
from tests.popovers import BLOCK, popovers_of

TRACE = "topics/averaging/trace.md"
INJECTED = "<script>alert('x')</script>"


def test_a_script_in_any_text_of_the_book_is_shown_as_text(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")  # where no writing is judged
    changed = 0
    for document in (one for one in copy.load().documents if one.source.file.endswith(".yml")):
        file = copy.content.parent / document.source.file
        written = yaml.safe_load(file.read_text(encoding="utf-8"))
        for field in document.fields:
            if field.mark in ("line", "prose"):
                place = written
                for key in field.path[:-1]:
                    place = place[key]
                place[field.path[-1]] += f" {INJECTED}"
                changed += 1
        file.write_text(yaml.safe_dump(written), encoding="utf-8")
    assert changed > 50
    for page, text in render(copy.load()).items():
        assert "<script" not in text.rpartition('<script type="application/json"')[0], page
        assert "<script" not in "".join(one[1] for one in BLOCK.finditer(text)), page
        if page != "topics/index.md" and not page.startswith(("evidence/", "machines/", "marks")):
            assert "alert(" in text, page


def test_markdown_in_a_title_stays_text_in_the_heading(copy):
    copy.edit(
        "topics/sharding/experiment.yml", "title: Splitting a model", 'title: "a_b_c [x](y)# *z"'
    )
    text = render(copy.load())["topics/sharding/experiment.md"]
    heading = next(line for line in text.splitlines() if line.startswith("<h1"))
    assert "a_b_c" in heading
    assert "*z" in heading
    assert Markdown().convert(heading) == heading


def test_bars_are_the_peaks_of_the_machine_at_hand_on_one_axis(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    book = copy.load()
    page = render(book)["index.md"]
    peaks = [
        rank.memory.peak_bytes
        for run in ("tiny_memory.whole", "tiny_memory.halves", "tiny_memory.halves")
        for rank in book.run(run).ranks
    ]
    bar = r'<p(?: class="pb-within")?><svg width="([\d.]+)%"'
    shares = [float(one) for one in re.findall(bar, page)]
    assert [one / shares[0] for one in shares] == pytest.approx(
        [peak / peaks[0] for peak in peaks], rel=1e-3
    )
    opened = popovers_of(page)
    assert all(opened[int(n)].on != "reference-frozen" for n in re.findall(r'data-v="(\d+)"', page))


def _num_heads(page):
    """The heads of arrows of the stage that trains: what paths draw beyond their first line."""
    (stage,) = re.findall(r'id="stage-train".*?</details>', page, re.DOTALL)
    outlines = re.findall(r'<path class="pb-communication" d="([^"]*)"', stage)
    return sum(outline.count("M") - 1 for outline in outlines)


def test_an_operation_of_all_ranks_has_a_head_where_a_rank_receives(copy, rendered):
    assert _num_heads(rendered[TRACE]) == 2 * 2  # all_reduce: both send and receive
    a_stage_broadcast(copy)
    assert _num_heads(render(copy.load())[TRACE]) == 1
