"""Drawings: each mark where the axis says, told apart without colour, with nothing inline."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from generator.figures.axes import Scale, around, percent, plain, powers
from generator.figures.drawing import (
    NARROW,
    SIZE,
    SMALL,
    WIDE,
    fitting,
    text_width,
    wrapped,
)
from generator.figures.drawings import lanes as lanes_drawing
from generator.figures.drawings.lanes import Travel
from generator.figures.drawings.lines import SERIES, Series, lines
from generator.figures.drawings.memory_bars import Bar, memory_bars
from generator.figures.drawings.placement import Lane, Panel, Piece, panels, steps
from generator.figures.drawings.spreads import Spread, spreads
from generator.figures.drawings.timeline import Activity, timeline
from generator.website import publish
from tests.generator.drawn import Drawn, at, middle, points

NEAR = 0.2  # pixels: places are rounded to a tenth
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
ACTIVITIES = {name: name for name in ("compute", "communication", "waiting")}
CURVES = (
    Series("training", ((1.0, 1.2), (2.0, 0.8))),
    Series("validation", ((1.0, 1.3), (2.0, 0.9))),
)
SPREADS = (
    Spread("single", 1.0, 1.2, 1.4, (0.9, 1.2, 1.9), "1.2 ms"),
    Spread("split, 2 ranks", 2.0, 2.1, 2.8, (1.9, 2.1, 5.5), "2.1 ms"),
)


def bars(layout=WIDE):
    return memory_bars(BARS, "MiB per rank", "budget 401 MiB", layout)


def step(layout=WIDE):
    return timeline(ROWS, SPANS, "ms", ACTIVITIES, layout)


DRAWINGS = {
    "bars": bars,
    "bars, narrow": lambda: bars(NARROW),
    "timeline": step,
    "timeline, narrow": lambda: step(NARROW),
    "lines": lambda: lines(CURVES, "epoch", is_share=False),
    "spreads": lambda: spreads(SPREADS, "ms", WIDE),
    "spreads, narrow": lambda: spreads(SPREADS, "ms", NARROW),
}


@pytest.fixture(params=DRAWINGS, ids=str)
def drawn(request):
    return Drawn(DRAWINGS[request.param]())


# --- what every drawing is


def test_a_drawing_is_sound_xml_with_a_title_and_a_description(drawn):
    assert drawn.tree.attrib["role"] == "img"
    assert drawn.tree.attrib["aria-labelledby"] == "figure-wide-title figure-wide-desc"
    assert drawn.tree[0].text == "A title"
    assert drawn.tree[1].text == "A description"


def test_a_drawing_holds_no_colour_no_style_and_no_font(drawn):
    assert not re.search(r"\b(?:fill|stroke|style|font)[a-z-]*=", drawn.markup)


def test_every_look_of_a_drawing_is_in_the_style_sheet(drawn):
    styled = set(re.findall(r"\.(pb-[a-z-]+)", publish.style().decode()))
    looks = {look for one in drawn.tree.iter() for look in one.get("class", "").split()}
    assert looks - styled <= {"pb-wide"}


def test_the_same_rows_give_the_same_bytes(drawn):
    again = [Drawn(draw()).markup for draw in DRAWINGS.values()]
    assert drawn.markup in again


def test_words_of_a_mark_a_title_or_a_name_cannot_break_out_of_it():
    evil = '"><script>alert(1)</script>'
    drawing = lines([Series(evil, ((1.0, 1.0),), (evil,))], "x", is_share=False)
    assert "<script>" not in Drawn(drawing).markup
    assert Drawn(drawing).says() == [evil]
    titled = str(drawing.svg("a", "<script>", "a & b", "c"))
    assert "<script>" not in titled
    assert "a &amp; b" in titled


@pytest.mark.parametrize(
    ("drawing", "told"),
    [
        (bars(), [f"{bar.label}: {bar.words}" for bar in BARS]),
        (step(), ["forward", "waiting", "recv"]),
        (spreads(SPREADS, "ms", WIDE), ["1.2 ms", "2.1 ms"]),
        (lines([Series("a", ((1.0, 1.2), (2.0, 0.8)), ("first", "second"))], "x", is_share=False),
         ["first", "second"]),
        (lines(CURVES, "epoch", is_share=False), []),
    ],
)  # fmt: skip
def test_each_mark_tells_what_it_stands_for_and_nothing_else_does(drawing, told):
    assert Drawn(drawing).says() == told


# --- each value where the labels of its axis say


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_bars_and_the_budget_end_where_the_axis_says(layout):
    drawn = Drawn(bars(layout))
    x = drawn.across()
    boxes = [*drawn.marks("rect", "fails"), *drawn.marks("rect", "compute")]
    assert [at(box, "x") for box in boxes] == pytest.approx([x(0)] * 4, abs=NEAR)
    ends = [at(box, "x") + at(box, "width") for box in boxes]
    assert ends == pytest.approx([x(bar.size) for bar in BARS], abs=NEAR)
    for limit in drawn.marks("line", "budget"):
        assert at(limit, "x1") == at(limit, "x2") == pytest.approx(x(401.0), abs=NEAR)


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_activities_stand_between_their_moments(layout):
    drawn = Drawn(step(layout))
    x = drawn.across()
    boxes = {box.attrib["data-say"]: box for box in drawn.marks("rect", "span")}
    for span in SPANS:
        box = boxes[span.name]
        assert at(box, "x") == pytest.approx(x(span.start), abs=NEAR)
        assert at(box, "x") + at(box, "width") == pytest.approx(x(span.end), abs=NEAR)


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_quartiles_medians_and_samples_stand_where_the_axis_says(layout):
    drawn = Drawn(spreads(SPREADS, "ms", layout))
    x = drawn.across()
    boxes = drawn.marks("line", "quartiles")
    assert [at(box, "x1") for box in boxes] == pytest.approx([x(1.0), x(2.0)], abs=NEAR)
    assert [at(box, "x2") for box in boxes] == pytest.approx([x(1.4), x(2.8)], abs=NEAR)
    medians = [at(line, "x1") for line in drawn.marks("line", "thick")]
    assert medians == pytest.approx([x(1.2), x(2.1)], abs=NEAR)
    dots = [middle(dot)[0] for dot in drawn.marks("circle", "faint")]
    samples = [sample for row in SPREADS for sample in row.samples]
    assert dots == pytest.approx([x(sample) for sample in samples], abs=NEAR)


@pytest.mark.parametrize("is_share", [False, True])
def test_curves_go_through_their_points(is_share):
    curves = [Series("a", ((1.0, 0.2), (2.0, 0.8), (3.0, 0.75)), ("one", "two", "three"))]
    drawn = Drawn(lines(curves, "epoch", is_share=is_share))
    x, y = drawn.across(), drawn.up()
    expected = [pytest.approx((x(at), y(value)), abs=NEAR) for at, value in curves[0].points]
    (curve,) = drawn.marks("polyline", "series-a")
    assert list(points(curve)) == expected
    assert [middle(dot) for dot in drawn.marks("circle", "series-a")] == expected
    assert any(word.endswith("%") for word in drawn.words()) == is_share


@given(
    low=st.floats(-1e3, 1e3), size=st.floats(0.01, 1e6), num=st.integers(2, 8)
)  # fmt: skip
def test_ticks_are_round_evenly_spaced_inside_and_about_as_many_as_asked(low, size, num):
    ticks = Scale(low, low + size, 0, 100).ticks(num)
    assert all(low - size * 1e-6 <= tick <= low + size * (1 + 1e-6) for tick in ticks)
    assert num / 2 - 1 <= len(ticks) <= 2 * num + 1
    gaps = [after - before for before, after in pairwise(ticks)]
    assert all(gap == pytest.approx(gaps[0], rel=1e-5, abs=1e-9) for gap in gaps)
    if gaps:
        assert f"{gaps[0]:.0e}"[0] in "125"


@given(st.floats(0, 1e6), st.floats(0.01, 1e6), st.integers(2, 8), st.booleans())
def test_a_grid_has_a_line_above_and_below_all_that_is_drawn(low, size, num, is_logarithmic):
    low += 0.01 if is_logarithmic else 0
    high = low + size
    lines = around(low, high, num, is_logarithmic=is_logarithmic)
    assert lines[0] <= low + size * 1e-6
    assert high - size * 1e-6 <= lines[-1]
    assert not any(line <= low or line >= high for line in lines[1:-1])


@given(st.floats(1e-6, 1e9), st.floats(1.5, 1e6))
def test_powers_are_round_and_inside(low, factor):
    assert all(low <= one <= low * factor for one in powers(low, low * factor))
    assert all(f"{one:.0e}"[0] in "125" for one in powers(low, low * factor))


@pytest.mark.parametrize(
    ("value", "printed"),
    [(0, "0"), (0.5, "0.5"), (2000, "2,000"), (1e6, "1,000,000"), (0.001, "0.001"),
     (-1.5, "−1.5"), (1234567, "1,234,570"), (0.251, "0.251"), (10.0, "10")],
)  # fmt: skip
def test_numbers_of_an_axis_are_plain(value, printed):
    assert plain(value) == printed


def test_shares_are_percentages():
    assert [percent(share) for share in (0, 0.5, 0.125, 1)] == ["0%", "50%", "12.5%", "100%"]


# --- words


def test_text_is_cut_or_wrapped_to_what_fits():
    assert fitting("backward", 200) == "backward"
    cut = fitting("gradient_synchronization", 60)
    assert cut.endswith("…")
    assert text_width(cut) <= 60 < text_width(cut[:-1] + "ra…")
    assert fitting("backward", 10) == ""
    rows = wrapped("all_reduce 12.0 MiB / 3.0 MiB per rank", 120)
    assert " ".join(rows) == "all_reduce 12.0 MiB / 3.0 MiB per rank"
    assert len(rows) > 1
    assert all(text_width(row) <= 120 for row in rows)


@pytest.mark.browser
def test_text_is_never_wider_in_the_browser_whatever_its_fonts(open_page, tmp_path):
    (tmp_path / "page.html").write_text("<!doctype html>")
    page = open_page(tmp_path / "page.html")
    said = [
        "budget 401 MiB",
        "642 MiB · refused in backward",
        "(a) “b” 12.5% → 3 × µ – W−1",
        "gradient_synchronization",
    ]
    script = """([said, weight, font]) => {
        const draw = document.createElement('canvas').getContext('2d');
        draw.font = weight + '13px ' + font;
        return said.map(one => draw.measureText(one).width);
    }"""
    for font in ('"Liberation Sans", Arial, Helvetica, sans-serif', '"DejaVu Sans", sans-serif'):
        for weight in ("", "bold "):
            drawn = page.evaluate(script, [said, weight, font])
            for one, width in zip(said, drawn, strict=True):
                assert width <= text_width(one, bold=bool(weight)) + 0.5, (one, font)
                assert text_width(one) < 1.35 * width


def test_names_stand_in_the_boxes_that_have_room_for_them():
    spans = (Activity("rank 0", "compute", "forward", 0.0, 9.0),
             Activity("rank 0", "compute", "backward", 9.0, 9.1))  # fmt: skip
    words = Drawn(timeline(ROWS[:1], spans, "ms", ACTIVITIES, WIDE)).words()
    assert "forward" in words
    assert "backward" not in words
    assert "compute (forward, backward)" in words


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_names_with_one_initial_have_letters_of_their_own_and_each_stands_by_its_colour(layout):
    names = ("all_gather", "all_reduce", "send")
    spans = [
        Activity("rank 0", "communication", name, at, at + size, name)
        for name, at, size in zip(names, (0.0, 5.0, 20.0), (5.0, 6.0, 0.1), strict=True)
    ]
    spans.append(Activity("rank 0", "compute", "forward", 25.0, 100.0))
    words = Drawn(timeline(ROWS, spans, "ms", ACTIVITIES, layout)).words()
    assert words[:3] == ["A", "R", "forward"]
    legend = " ".join(words[words.index("ms") + 1 :])
    named = "A: all_gather, R: all_reduce, send"
    assert legend == f"compute (forward) communication ({named})"
    assert "waits 67%" in words


def test_a_phone_has_what_stands_at_the_end_of_a_row_below_its_name():
    drawn = Drawn(step(NARROW))
    name, said = drawn.word("rank 0"), drawn.word("waits 67%")
    assert at(name, "y") < at(said, "y")
    assert at(name, "x") == at(said, "x") >= text_width("waits 67%") * SMALL / SIZE - NEAR


@pytest.mark.parametrize("num", [2, 8, 12])
def test_layers_of_a_figure_are_all_called_by_their_names_or_all_by_their_numbers(num):
    pieces = tuple(Piece(f"layer{n}", 1.0, False) for n in range(num))
    drawing = panels([Panel("split", (Lane("rank 0", "", pieces),), ())], WIDE, travel=False)
    words = [word for word in Drawn(drawing).words() if word[-1].isdigit()][1:]
    names = [piece.name for piece in pieces]
    assert words in (names, [name[5:] for name in names])


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_numbers_of_layers_do_not_touch_their_boxes(layout):
    pieces = tuple(Piece(f"layer{n}", 1.0, False) for n in range(1, 15))
    split = Panel("split", (Lane("rank 0", "214 MiB", pieces),), ())
    drawn = Drawn(panels([split], layout, travel=False))
    words = drawn.words()
    assert any("214 MiB" in word for word in words)
    numbers = [word for word in words if word.isdecimal()]
    assert len(numbers) == len(pieces)
    for number, box in zip(numbers, drawn.marks("rect", "layer"), strict=True):
        assert text_width(number) + 4 <= at(box, "width")


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_the_outcome_and_the_budget_are_said_in_words(layout):
    words = " ".join(Drawn(bars(layout)).words())
    for said in ("refused in backward", "completes", "budget 401 MiB", "MiB per rank"):
        assert said in words


def test_the_budget_does_not_cross_the_words_beside_a_bar():
    drawn = Drawn(bars())
    (limit,) = drawn.marks("line", "budget")
    for bar in BARS:
        for word in (one for one in drawn.tree.iter("text") if one.text == bar.words):
            start = at(word, "x")
            assert not start <= at(limit, "x1") <= start + text_width(bar.words)


def test_many_labels_leave_out_those_that_would_touch_and_keep_the_last():
    curve = Series("a", tuple((float(x), 1.0 / x) for x in range(1, 101)))
    drawn = Drawn(lines([curve], "epoch", is_share=False))
    kept = [one for one in drawn.marks("text", "soft") if one.get("text-anchor") == "middle"]
    assert kept[0].text == "100"
    edges = sorted((at(one, "x"), text_width(one.text)) for one in kept)
    assert all(x + w / 2 < other - v / 2 for (x, w), (other, v) in pairwise(edges))


# --- told apart without colour


def test_series_differ_by_dash_as_well_as_by_colour():
    drawn = Drawn(
        lines([Series(str(n), ((1.0, n), (2.0, n))) for n in range(4)], "x", is_share=True)
    )
    style = publish.style().decode()
    dashes = dict(re.findall(r"\.(pb-[a-z-]+)\{stroke-dasharray:([\d ]+)", style))
    looks = [set(one.attrib["class"].split()) for one in drawn.marks("polyline")]
    assert [sorted(dashes[look] for look in one if look in dashes) for one in looks] == [
        [], ["6 3"], ["2 3"], ["9 3 2 3"],
    ]  # fmt: skip
    assert len({look.split()[0] for look in SERIES}) == 4


def test_a_line_on_which_another_lies_is_a_band():
    ys = {"a": (1.0, 0.2), "b": (0.5, 0.1), "c": (1.0, 0.201)}
    curves = [Series(name, ((1.0, one), (2.0, two))) for name, (one, two) in ys.items()]
    drawn = Drawn(lines(curves, "x", is_share=False))
    looks = [set(one.attrib["class"].split()) for one in drawn.marks("polyline")]
    assert ["pb-band" in look for look in looks] == [True, False, False]
    assert len(drawn.marks("line", "band")) == 1  # in the legend as in the plot


def test_the_order_of_series_pins_their_colour_whatever_their_names():
    renamed = [Series("zebra", CURVES[0].points), Series("ant", CURVES[1].points)]
    drawn = Drawn(lines(renamed, "x", is_share=False))
    first, second = drawn.marks("polyline")
    assert "pb-series-a" in first.attrib["class"]
    assert "pb-series-b" in second.attrib["class"]
    assert drawn.words().index("zebra") < drawn.words().index("ant")


# --- ranks, layers, and what travels


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_layers_are_as_wide_as_their_bytes(layout):
    lanes = (
        Lane("rank 0", "", (Piece("a", 300.0, False), Piece("b", 100.0, True))),
        Lane("rank 1", "", (Piece("c", 200.0, False),)),
    )
    drawn = Drawn(panels([Panel("split", lanes, ())], layout, travel=False))
    first, second, third = (at(box, "width") for box in drawn.marks("rect", "layer"))
    assert first == pytest.approx(3 * second, abs=NEAR)
    assert third == pytest.approx(2 * second, abs=NEAR)
    assert len(drawn.marks("rect", "shard")) == 1


def test_in_a_chain_no_two_ranks_work_at_once():
    lanes = tuple(Lane(f"rank {r}", "", ()) for r in range(3))
    chain = (Panel("chain", lanes, (), is_chain=True), ("forward", "backward"))
    tops = [at(box, "y") for box in Drawn(steps([chain], WIDE)).marks("rect", "layer")]
    assert len(tops) == len(set(tops)) == 6


def _arrow(drawn):
    """Where the one arrow of a drawing starts and ends."""
    (arrow,) = drawn.marks("path", "arrow")
    start, end = re.match(r"M([\d. ]+)L([\d. ]+)M", arrow.attrib["d"]).groups()
    return [tuple(map(float, place.split())) for place in (start, end)]


def test_what_goes_past_a_lane_goes_round_it():
    rows = [lanes_drawing.Lane(f"rank {rank}", "4 × 4", "") for rank in range(3)]
    past = Drawn(lanes_drawing.lanes(rows, [Travel("send 1 KiB", 0, 2)], "nothing recorded"))
    first, _, last = past.marks("rect", "layer")
    _, (x, y) = _arrow(past)
    assert x == at(first, "x") + at(first, "width")
    assert at(last, "y") < y < at(last, "y") + at(last, "height")
    near = Drawn(lanes_drawing.lanes(rows, [Travel("send 1 KiB", 1, 2)], "nothing recorded"))
    start, end = _arrow(near)
    assert start[0] == end[0]
