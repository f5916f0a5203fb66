"""Charts: the same bytes for the same rows, told apart without colour, with nothing inline."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from generator.figures import chart
from generator.figures.chart import NARROW, WIDE
from generator.figures.drawings import lanes as lanes_drawing
from generator.figures.drawings.lanes import Travel
from generator.figures.drawings.lines import SERIES, Series, lines
from generator.figures.drawings.memory_bars import Bar, memory_bars
from generator.figures.drawings.placement import Lane, Panel, Piece, panels, steps
from generator.figures.drawings.spreads import Spread, spreads
from generator.figures.drawings.timeline import Activity, timeline

BARS = (
    Bar("single", "single", 427.0, "427 MiB · refused in backward", "refused", 401.0),
    Bar("DDP", "DDP · rank 0", 642.0, "642 MiB · refused in backward", "refused", 401.0),
    Bar("DDP", "rank 1", 642.0, "642 MiB · refused in backward", "refused", 401.0),
    Bar("stages", "stages · rank 0", 387.0, "387 MiB · completes", "completed", 401.0),
)
SPANS = (
    Activity("rank 0", "compute", "forward", 0.0, 3.0),
    Activity("rank 0", "waiting", "waiting", 3.0, 9.0),
    Activity("rank 1", "communication", "recv", 0.0, 4.0),
)
ROWS = [("rank 0", "waits 67%"), ("rank 1", "")]
ACTIVITIES = {"compute": "compute", "communication": "communication", "waiting": "waiting"}
CURVES = (
    Series("training", ((1.0, 1.2), (2.0, 0.8))),
    Series("validation", ((1.0, 1.3), (2.0, 0.9))),
)
SPECS = {
    "bars": memory_bars(BARS, "MiB per rank", "budget 401 MiB", WIDE),
    "bars, narrow": memory_bars(BARS, "MiB per rank", "budget 401 MiB", NARROW),
    "timeline": timeline(ROWS, SPANS, "ms", ACTIVITIES, WIDE),
    "timeline, narrow": timeline(ROWS, SPANS, "ms", ACTIVITIES, NARROW),
    "lines": lines(CURVES, "epoch", percent=False),
    "spreads": spreads([Spread("single", 1.0, 1.2, 1.4, (1.0, 1.2, 1.4), "1.2 ms")], "ms", WIDE),
}


@pytest.fixture(params=SPECS, ids=str)
def drawn(request):
    return chart.svg(SPECS[request.param], "figure-wide", "A title", "A description", "pb-wide")


def test_a_chart_is_sound_xml_with_a_title_and_a_description(drawn):
    tree = ET.fromstring(drawn)
    assert tree.attrib["role"] == "img"
    assert tree.attrib["aria-labelledby"] == "figure-wide-title figure-wide-desc"
    assert tree[0].text == "A title"
    assert tree[1].text == "A description"


def test_a_chart_has_no_colour_of_its_own_no_style_and_no_ground(drawn):
    colours = set(re.findall(r'(?:fill|stroke)="([^"]*)"', drawn))
    assert all(c == "none" or c == "currentColor" or c.startswith("var(--pb-") for c in colours)
    assert "style=" not in drawn
    assert "font-family" not in drawn


def test_the_same_rows_give_the_same_bytes_with_and_without_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(chart, "CACHE", tmp_path / "charts")
    first = chart.svg(SPECS["bars"], "a", "t", "d", "c")
    chart._compiled.cache_clear()
    from_disk = chart.svg(SPECS["bars"], "a", "t", "d", "c")
    chart._compiled.cache_clear()
    for path in (tmp_path / "charts").iterdir():
        path.unlink()
    assert first == from_disk == chart.svg(SPECS["bars"], "a", "t", "d", "c")


def test_a_cache_that_cannot_be_written_costs_nothing_but_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setattr(chart, "CACHE", tmp_path / "file" / "charts")
    chart._compiled.cache_clear()
    assert "<svg" in chart.svg(SPECS["lines"], "a", "t", "d", "c")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("bars", [f"{bar.label}: {bar.words}" for bar in BARS]),
        ("timeline", ["forward", "waiting", "recv"]),
        ("spreads", ["1.2 ms"]),
        ("told lines", ["first", "second"]),
        ("lines", []),
    ],
)
def test_each_mark_tells_what_it_stands_for_and_nothing_else_does(name, told):
    told_lines = lines([Series("a", ((1.0, 1.2), (2.0, 0.8)), ("first", "second"))], "x", False)
    drawn = chart.svg({**SPECS, "told lines": told_lines}[name], "a", "t", "d", "c")
    says = [
        mark.attrib["data-say"] for mark in ET.fromstring(drawn).iter() if "data-say" in mark.attrib
    ]
    assert sorted(says) == sorted(told)


def test_words_of_a_mark_cannot_break_out_of_it():
    evil = '"><script>alert(1)</script>'
    drawn = chart.svg(lines([Series("a", ((1.0, 1.0),), (evil,))], "x", False), "a", "t", "d", "c")
    assert "<script>" not in drawn
    assert evil in {mark.attrib.get("data-say") for mark in ET.fromstring(drawn).iter()}


def test_names_stand_in_the_boxes_that_have_room_for_them():
    spans = (Activity("rank 0", "compute", "forward", 0.0, 9.0),
             Activity("rank 0", "compute", "backward", 9.0, 9.1))  # fmt: skip
    drawn = chart.svg(timeline(ROWS[:1], spans, "ms", ACTIVITIES, WIDE), "a", "t", "d", "c")
    words = [text.text for text in ET.fromstring(drawn).iter("text")]
    assert "forward" in words
    assert "backward" not in words


def test_the_words_of_a_title_cannot_break_out_of_it():
    drawn = chart.svg(SPECS["lines"], "a", "<script>alert(1)</script>", "a & b", "c")
    assert "<script>" not in drawn
    assert ET.fromstring(drawn)[1].text == "a & b"


def test_bars_are_as_long_as_what_they_stand_for():
    drawn = chart.svg(SPECS["bars"], "a", "t", "d", "c")
    widths = [
        float(re.search(r"h(-?[\d.]+)", shape)[1])
        for shape in re.findall(
            r'<path[^>]*d="([^"]+)"[^>]*fill="var\(--pb-(?:fails|compute)\)"', drawn
        )
    ]
    sizes = [bar.size for bar in BARS]
    rounding = 0.01 / widths[0]  # places are rounded to a hundredth of a pixel
    assert [w / widths[0] for w in widths] == pytest.approx(
        [size / sizes[0] for size in sizes], abs=2 * rounding
    )


def test_the_outcome_is_said_in_words_and_the_budget_is_dashed():
    for name in ("bars", "bars, narrow"):
        drawn = chart.svg(SPECS[name], "a", "t", "d", "c")
        assert "refused in backward" in drawn
        assert "completes" in drawn
        assert "budget 401 MiB" in drawn
        assert "stroke-dasharray" in drawn


def test_series_differ_by_dash_as_well_as_by_colour():
    assert len({tuple(dash) for _, dash in SERIES}) == len({c for c, _ in SERIES}) == len(SERIES)
    drawn = chart.svg(SPECS["lines"], "a", "t", "d", "c")
    assert "var(--pb-series-a)" in drawn
    assert "var(--pb-series-b)" in drawn


def test_the_order_of_series_pins_their_colour_whatever_their_names():
    renamed = lines(
        [Series("zebra", CURVES[0].points), Series("ant", CURVES[1].points)], "x", False
    )
    first = chart.svg(renamed, "a", "t", "d", "c")
    assert first.index("var(--pb-series-a)") < first.index("var(--pb-series-b)")
    assert first.index("zebra") < first.index("ant")


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_layers_are_as_wide_as_their_bytes(layout):
    lanes = (
        Lane("rank 0", "", (Piece("a", 300.0, False), Piece("b", 100.0, False))),
        Lane("rank 1", "", (Piece("c", 200.0, False),)),
    )
    diagram = panels([Panel("split", lanes, ())], layout, travel=False)
    widths = [part.width for part in diagram.parts if hasattr(part, "radius")]
    assert widths[0] == pytest.approx(3 * widths[1])
    assert widths[2] == pytest.approx(2 * widths[1])


def test_in_a_chain_no_two_ranks_work_at_once():
    lanes = tuple(Lane(f"rank {r}", "", ()) for r in range(3))
    diagram = steps([(Panel("chain", lanes, (), is_chain=True), ("forward", "backward"))], WIDE)
    tops = [part.y for part in diagram.parts if hasattr(part, "radius")]
    assert len(tops) == len(set(tops)) == 6


def test_what_goes_past_a_lane_goes_round_it():
    rows = [lanes_drawing.Lane(f"rank {rank}", "4 × 4", "") for rank in range(3)]
    past = lanes_drawing.lanes(rows, [Travel("send 1 KiB", 0, 2)], "nothing recorded")
    arrows = [part for part in past.parts if type(part).__name__ == "Arrow"]
    boxes = [part for part in past.parts if type(part).__name__ == "Box"]
    (arrow,) = arrows
    assert arrow.x2 == boxes[0].x + boxes[0].width
    assert boxes[2].y < arrow.y2 < boxes[2].y + boxes[2].height
    near = lanes_drawing.lanes(rows, [Travel("send 1 KiB", 1, 2)], "nothing recorded")
    (arrow,) = (part for part in near.parts if type(part).__name__ == "Arrow")
    assert arrow.x1 == arrow.x2
