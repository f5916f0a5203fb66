"""Stages of a trace: what ranks held and what travelled, drawn and told from the run's record."""

from __future__ import annotations

import json
import re

import pytest

from generator.pages import rendering

TRACE = "topics/averaging/trace.md"


def _change_stages(copy, how):
    file = copy.trace("tiny_training")
    document = json.loads(file.read_text())
    how({stage["name"]: stage for stage in document["runs"]["averaged"]["stages"]})
    file.write_text(json.dumps(document))


def _stage(html, name):
    return re.search(
        rf'<details class="pb-details pb-stage" name="stages" id="stage-{name}".*?</details>',
        html,
        re.S,
    )[0]


def _text(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


@pytest.fixture(scope="module")
def page(book):
    return rendering.render(book)[TRACE]


def test_a_stage_tells_what_the_recorder_read_off(page):
    told = _text(_stage(page, "train"))
    for expected in ("20 × 8", "20 × 4", "320 B", "1.50 , -0.750", "all_reduce 144 B", "9.00 ms"):
        assert expected in told.replace("−", "-"), expected


def test_a_rank_that_recorded_nothing_is_said_to(page, copy):
    assert "nothing recorded" not in page
    _change_stages(copy, lambda stages: stages["train"].update(ranks=[], moves=[]))
    drawing = _stage(rendering.render(copy.load())[TRACE], "train")
    assert drawing.count("pb-idle") == 1
    assert "rank 1: nothing recorded" in drawing


def _num_heads(stage):
    """The heads of arrows: what a path draws beyond its first line."""
    outlines = re.findall(r'class="pb-arrow[^>]* d="([^"]*)"', stage)
    return sum(outline.count("M") - 1 for outline in outlines)


@pytest.mark.parametrize(
    ("operation", "source", "destination", "num_heads", "words"),
    [
        ("all_reduce", None, None, 2 * 2, "among all ranks"),
        ("broadcast", 0, None, 1, "rank 0 → every rank"),
    ],
)
def test_an_operation_of_all_ranks_has_a_head_where_a_rank_receives(
    copy, operation, source, destination, num_heads, words
):
    moved = [{"operation": operation, "source": source, "destination": destination, "bytes": 64}]
    _change_stages(copy, lambda stages: stages["train"].update(moves=moved))
    stage = _stage(rendering.render(copy.load())[TRACE], "train")
    assert _num_heads(stage) == num_heads
    assert words in _text(stage)
    assert ("own share" in stage) == ("own share" in words)


def test_ranks_that_differ_stand_in_a_table_and_ranks_that_do_not_do_not(page, copy):
    assert "<table" not in _stage(page, "train")
    wider = {"shape_out": [20, 9], "bytes": 720}
    _change_stages(copy, lambda stages: stages["train"]["ranks"][1].update(wider))
    stage = _stage(rendering.render(copy.load())[TRACE], "train")
    assert "rank 1 20 × 8 20 × 9 720 B" in _text(stage[stage.index("<tbody>") :])
