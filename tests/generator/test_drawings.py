"""Drawings: each mark where the axis says, told apart without colour, with nothing inline."""

import re
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofbook.generator.content.exhibit import Figure
from proofbook.generator.kinds.figures import charts, step_rules
from proofbook.generator.kinds.figures.axes import AxisMark, Scale, percent, plain
from proofbook.generator.kinds.figures.drawing import NARROW, WIDE, Drawing, text_width
from proofbook.generator.kinds.figures.drawings.plot import (
    LINES,
    MARKS,
    Axis,
    Series,
    axis_of,
    plot,
)
from proofbook.generator.kinds.figures.drawings.schedule import schedule
from proofbook.generator.kinds.figures.drawings.stacks import BarPart, Panel, Stack, panels, stacks
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.website import publish


class Drawn:
    """The `<svg>` of a drawing as a reader sees it: marks, words, and what labels of axes say.

    The places of values are worked out again from the labels beside the ticks alone, so that a test
    of geometry shares nothing with the code that drew.
    """

    def __init__(self, drawing):
        self.markup = str(drawing.svg("figure-wide", "A title", "A description", "pb-wide"))
        self.tree = ET.fromstring(self.markup)

    def marks(self, kind, *looks):
        """Shapes of a kind that have all of these looks."""
        return [one for one in self.tree.iter(kind) if {f"pb-{look}" for look in looks} <= _of(one)]

    def words(self):
        """All texts, in the order in which they stand in the file."""
        return [one.text or "" for one in self.tree.iter("text")]

    def says(self):
        """What the marks tell."""
        return [one.attrib["data-say"] for one in self.tree.iter() if "data-say" in one.attrib]

    def across(self):
        """A value → its place across, by the labels below the ticks."""
        ticks = [
            at(one, "x1") for one in self.marks("line", "axis") if at(one, "y1") < at(one, "y2")
        ]
        labels = [(at(one, "x"), _number(one.text)) for one in self.marks("text", "soft")]
        return _through(ticks, labels)

    def up(self):
        """A value → its place from the top, by the labels of the grid."""
        lines = [
            at(one, "y1") for one in self.marks("line", "grid") if one.get("y1") == one.get("y2")
        ]
        labels = [(at(one, "y"), _number(one.text)) for one in self.marks("text", "soft")
                  if one.get("text-anchor") == "end"]  # fmt: skip
        return _through(lines, labels)


def at(mark, name):
    """A number of a mark."""
    return float(mark.attrib[name])


def _of(mark):
    return set(mark.get("class", "").split())


def _number(text):
    written = (text or "").replace(",", "").replace("−", "-")
    try:
        return float(written.removesuffix("%")) / (100 if written.endswith("%") else 1)
    except ValueError:
        return None


def _through(lines, labels):
    known = [(value, line) for line in lines for place, value in labels
             if value is not None and abs(place - line) < 0.2]  # fmt: skip
    (first, start), (last, end) = min(known), max(known)

    def place(value):
        return start + (value - first) / (last - first) * (end - start)

    assert len(known) > 1
    assert all(abs(place(value) - where) < 0.2 for value, where in known), known
    return place


NEAR = 0.2  # pixels: places are rounded to a tenth
BARS = (
    ("DDP", "DDP · all_reduce", 427.0, "427 MiB in 8 calls"),
    ("DDP", "broadcast", 38.0, "38 MiB in one call"),
    ("FSDP", "FSDP · all_gather", 854.0, "854 MiB in 16 calls"),
)
CURVES = [
    Series("training", [(1.0, 1.2, "a"), (2.0, 0.8, "b")], LINES[0], ("series-a", "circle")),
    Series("validation", [(1.0, 1.3, ""), (2.0, 0.9, "")], LINES[1]),
]


def payloads(layout=WIDE):
    rows = [Stack(group, label, [BarPart("all_reduce", "", size, words)], words)
            for group, label, size, words in BARS]  # fmt: skip
    rows.append(Stack("single", "one device", [], "nothing"))
    return stacks(rows, "MiB per step", 900.0, layout)


def curves(series=CURVES, says=plain):
    values = [y for one in series for _, y, _ in one.points]
    return plot(series, Axis("epoch", [1, 2, 3]), axis_of("loss", values, 4, says=says), 170, WIDE)


def test_words_of_a_mark_a_title_or_a_name_cannot_break_out_of_it():
    evil = '"><script>alert(1)</script>'
    drawing = curves([Series(evil, [(1.0, 1.0, evil)], mark=MARKS[0])])
    assert "<script>" not in Drawn(drawing).markup
    assert Drawn(drawing).says() == [evil]
    assert Drawn(drawing).tree.attrib["role"] == "img"
    assert Drawn(drawing).tree.attrib["aria-labelledby"] == "figure-wide-title figure-wide-desc"
    titled = str(drawing.svg("a", "<script>", "a & b", "c"))
    assert "<script>" not in titled
    assert "a &amp; b" in titled


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_bars_end_where_the_axis_says(layout):
    drawn = Drawn(payloads(layout))
    x = drawn.across()
    boxes = drawn.marks("rect", "communication")
    assert [at(box, "x") for box in boxes] == pytest.approx([x(0)] * 3, abs=NEAR)
    ends = [at(box, "x") + at(box, "width") for box in boxes]
    assert ends == pytest.approx([x(size) for _, _, size, _ in BARS], abs=NEAR)


@pytest.mark.parametrize(("across", "up"), [(30, 0), (0, -40), (-30, 20)])
def test_an_arrow_has_an_arm_on_each_side_behind_its_tip(across, up):
    drawing = Drawing(100, 100)
    drawing.arrow(50, 50, 50 + across, 50 + up)
    places = re.findall(r"([-.\d]+),([-.\d]+)", drawing.parts[-1])
    _, tip, one, same, other = (complex(float(x), float(y)) for x, y in places)
    assert tip == same == complex(50 + across, 50 + up)
    arms = [(arm - tip) / complex(across, up) for arm in (one, other)]  # as the arrow sees them
    assert all(arm.real < -abs(arm.imag) for arm in arms)
    assert arms[0].imag * arms[1].imag < 0


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_a_word_in_a_bar_stands_over_the_line_on_a_patch_of_its_bar(layout):
    name = "activations"
    parts = [BarPart("parameters", name, 58, ""), BarPart("buckets", name, 40, "")]
    rows = [Stack("", "DDP", parts, "99 MiB")]
    drawing = stacks(rows, "", 99, layout, budget=AxisMark(30))
    _, over = "".join(drawing.parts).split("data-scale")
    patch = r'<rect[^>]* x="([\d.]+)"[^>]* width="([\d.]+)"[^>]*/>'
    words = re.findall(patch + rf'<text[^>]* x="([\d.]+)"[^>]*>{name}<', over)
    assert words
    for x, wide, at_x in (map(float, word) for word in words):
        assert wide >= text_width(name)
        assert x < at_x < x + wide


@pytest.mark.parametrize("says", [plain, percent])
def test_curves_go_through_their_points(says):
    places = [(1.0, 0.2, "one"), (2.0, 0.8, "two"), (3.0, 0.75, "three")]
    drawn = Drawn(curves([Series("a", places, LINES[0], ("series-a", "circle"))], says))
    x, y = drawn.across(), drawn.up()
    expected = [pytest.approx((x(at), y(value)), abs=NEAR) for at, value, _ in places]
    (curve,) = drawn.marks("polyline", "series-a")
    corners = [tuple(map(float, one.split(","))) for one in curve.attrib["points"].split()]
    assert corners == expected
    circles = drawn.marks("circle", "series-a")
    assert [(at(dot, "cx"), at(dot, "cy")) for dot in circles][1:] == expected
    assert any(word.endswith("%") for word in drawn.words()) == (says is percent)


@given(low=st.floats(-1e3, 1e3), size=st.floats(0.01, 1e6), num=st.integers(2, 8))
def test_ticks_are_round_evenly_spaced_inside_and_about_as_many_as_asked(low, size, num):
    ticks = Scale(low, low + size, 0, 100).ticks(num)
    assert all(low - size * 1e-6 <= tick <= low + size * (1 + 1e-6) for tick in ticks)
    assert num / 2 - 1 <= len(ticks) <= 2 * num + 1
    gaps = [after - before for before, after in pairwise(ticks)]
    assert all(gap == pytest.approx(gaps[0], rel=1e-5, abs=1e-9) for gap in gaps)
    if gaps:
        assert f"{gaps[0]:.0e}"[0] in "125"


@pytest.mark.browser
def test_text_is_never_wider_in_the_browser_whatever_its_fonts(open_page, tmp_path):
    (tmp_path / "page.html").write_text("<!doctype html>")
    page = open_page(tmp_path / "page.html")
    script = """([said, font]) => {
        const draw = document.createElement('canvas').getContext('2d');
        draw.font = font;
        return draw.measureText(said).width;
    }"""
    for said in ("budget 401 MiB", "(a) “b” 12.5% → 3 × µ – W−1", "gradient_synchronization"):
        for font in ('"Liberation Sans", Arial, sans-serif', '"DejaVu Sans", sans-serif'):
            drawn = page.evaluate(script, [said, f"13px {font}"])
            assert drawn <= text_width(said) + 0.5
            assert text_width(said) < 1.35 * drawn


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_the_number_of_a_microbatch_stands_in_the_middle_of_its_box(layout):
    words = {kind: kind for kind in ("forward", "backward", "idle")}
    rows = dict(zip("abcd", step_rules.pipeline("one_f_one_b", 4, 4, 2.0), strict=True))
    drawn = Drawn(schedule(rows, "time", words, layout))
    centred = drawn.tree.iterfind(".//text[@text-anchor='middle']")
    numbers = [(n.text, at(n, "x"), at(n, "y")) for n in centred]
    boxes = [box for box in drawn.marks("rect", "span") if "data-say" in box.attrib]
    assert len(boxes) == 2 * 4 * 4
    for box in boxes:
        said = box.attrib["data-say"].split()[-1]
        x, y = at(box, "x") + at(box, "width") / 2, at(box, "y") + at(box, "height") / 2
        assert any(n == said and abs(across - x) < NEAR and up == y for n, across, up in numbers)


def test_series_differ_by_dash_as_well_as_by_colour():
    series = [Series(look, [(1.0, n, ""), (2.0, n, "")], look) for n, look in enumerate(LINES)]
    drawn = Drawn(curves(series))
    style = publish.style().decode()
    rules = re.findall(r"([^{}]+)\{stroke-dasharray:([\d ]+)", style)
    dashes = {look: dash for one, dash in rules for look in re.findall(r"\.(pb-[a-z-]+)", one)}
    looks = [set(one.attrib["class"].split()) for one in drawn.marks("polyline")]
    found = [sorted(dashes[look] for look in one if look in dashes) for one in looks]
    assert found == [[], ["5 4"], ["2 3"], ["9 3 2 3"]]
    assert len({look.split()[0] for look in LINES}) == 4


@pytest.mark.parametrize("layout", [WIDE, NARROW])
def test_layers_are_as_wide_as_their_bytes(layout):
    first = [BarPart("layer", "a", 300.0, ""), BarPart("shard", "b", 100.0, "")]
    ranks = [Stack("", "", first, ""), Stack("", "", [BarPart("layer", "c", 200.0, "")], "")]
    drawn = Drawn(panels([Panel("split", ranks, ())], layout))
    first, second, third = (at(box, "width") for box in drawn.marks("rect", "layer"))
    assert first == pytest.approx(3 * second, abs=NEAR)
    assert third == pytest.approx(2 * second, abs=NEAR)
    assert len(drawn.marks("rect", "shard")) == 1


def test_two_runs_of_one_name_are_both_drawn_by_their_paths(real):
    evidence = Evidence(real)
    folio = Folio(evidence, evidence, path="topics/one/two.md")
    runs = ["ddp.single", "batch_split.single"]
    written = {"id": "two", "kind": "epochs", "title": "T", "caption": "C", "runs": runs}
    picture = charts.epochs(Figure.model_validate(written), folio)
    assert len(picture.rows) == sum(len(real.run(path).epochs) for path in runs)
    assert all(f"{path}, training" in picture.drawings for path in runs)
