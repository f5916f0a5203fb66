"""Bars, lines of points, and where a figure stands: against the traces and numbers by hand."""

import json
import re
import xml.etree.ElementTree as ET
from types import SimpleNamespace

import pytest

from proofbook.generator.content.exhibit import GrowthChart
from proofbook.generator.kinds.figures import figures
from proofbook.generator.kinds.figures.charts import bars, growth
from proofbook.generator.kinds.guide import guide
from proofbook.generator.kinds.guide.words import GuideFile
from proofbook.generator.kinds.lessons.lesson_checks import _unsaid_ends
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values.evaluation import Evidence
from tests.conftest import ROOT

TRACES = ROOT / "content" / "traces" / "reference-cpu-2c"


@pytest.fixture(scope="module")
def evidence(real):
    return Evidence(real)


@pytest.fixture
def folio(evidence):
    return Folio(evidence, evidence, path="topics/one/two.md")


@pytest.fixture
def drawn(evidence, folio):
    """The wide drawing of a figure of Deep, as a tree."""

    def draw(topic, name, kind):
        of = next(topic_ for topic_ in evidence.book.topics if topic_.id == topic)
        picture = kind(of.figures[f"deep#{name}"], folio)
        return ET.fromstring(re.search("<svg.*?</svg>", str(picture.drawings), re.DOTALL)[0])

    return draw


def recorded(path):
    experiment, run = path.split(".")
    return json.loads((TRACES / f"{experiment}.json").read_text())["runs"][run]


def widths(tree):
    """Of the parts of bars, which are thicker than the boxes of a legend."""
    return [float(box.attrib["width"]) for box in tree.iter("rect") if box.get("height") == "18"]


def place_of_mark(tree):
    """Of the line across the bars, as a share of the axis, and what stands at the end of that."""
    (mark,) = (path for path in tree.iter("path") if "data-scale" in path.attrib)
    start, end, top = map(float, mark.attrib["data-scale"].split())
    at = float(re.search(r"translate\(([\d.]+)\)", mark.attrib["transform"])[1])
    return top * (at - start) / (end - start), (end - start) / top


def test_a_bar_is_as_long_as_what_the_run_recorded_and_the_line_stands_at_its_value(drawn):
    report = recorded("listings.balance_ways")["prediction"]
    facts = next(step["facts"] for step in report if step["name"] == "report")
    tree = drawn("meshes-and-experts", "balance-ways", bars)
    mark, unit = place_of_mark(tree)
    busiest = [facts[f"rank_0_{way}_busiest"] for way in ("none", "auxiliary", "bias")]
    assert [width / unit for width in widths(tree)] == pytest.approx(busiest, abs=0.01)
    assert mark == pytest.approx(1, abs=0.01)


def test_parts_of_a_bar_follow_each_other_up_to_the_norm_that_the_run_recorded(drawn):
    ranks = recorded("mesh.cube")["ranks"]
    first, last = (ranks[at]["measures"]["stage_norm"] ** 2 for at in (0, -1))
    tree = drawn("meshes-and-experts", "stage-squares", bars)
    mark, unit = place_of_mark(tree)
    found = [width / unit for width in widths(tree)]
    assert found == pytest.approx([first, last, first, last], abs=0.01)
    assert sum(found[2:]) == pytest.approx(mark, abs=0.01)


def test_products_take_as_long_as_gathers_at_the_threshold_and_no_number_of_tokens_evens_sends(
    drawn,
):
    tree = drawn("meshes-and-experts", "thresholds", growth)
    lines = [
        [tuple(map(float, point.split(","))) for point in line.attrib["points"].split()]
        for line in tree.iter("polyline")
    ]
    products, gathers, adapter, nvlink = lines
    assert products[1] == gathers[1]
    assert products[0][1] > gathers[0][1]  # below the threshold, products are the shorter
    assert products[-1][1] < gathers[-1][1]
    for sends in (adapter, nvlink):  # on logarithmic axes, these are parallel
        apart = [sends[at][1] - products[at][1] for at in (0, -1)]
        assert apart[0] == pytest.approx(apart[1], abs=0.2)
    assert adapter[0][1] < products[0][1] < nvlink[0][1]


def test_a_series_that_ends_before_the_others_says_why_and_no_other_does(evidence):
    runs = [f"tensor_degree.wide_{n}" for n in (1, 2, 4, 8)]

    def faults(**more):
        series = [{"label": "long", "runs": runs}, {"label": "short", "runs": runs[:2]} | more]
        chart = {"x": "run.world_size", "measured": "run.timing.step | median",
                 "x_label": "ranks", "y_label": "step", "series": series}  # fmt: skip
        return [words for _, words in _unsaid_ends(GrowthChart.model_validate(chart), evidence)]

    assert faults() == ["'short' ends before another: say why"]
    assert faults(ends="Why.") == []
    assert faults(runs=runs, ends="Why.") == ["'short' ends with the last: delete this"]


def test_a_question_shows_no_figure_that_stands_above_it(evidence, folio):
    figure = evidence.book.exhibited["tl-deep-degree"]
    assert "<svg" in str(figures.exhibit(figure, "tl-deep-degree", folio).picture.drawings)
    figures.draw(figure, folio)
    assert figures.exhibit(figure, "tl-deep-degree", folio) is None


def test_an_edge_of_the_guide_that_shows_what_no_lesson_has_is_refused(evidence):
    (written,) = (one.model for one in evidence.book.documents if isinstance(one.model, GuideFile))
    edge = next(edge for _, edge in written.edges if edge.figure)

    def faults(edge):
        model = SimpleNamespace(edges=[(("edges", 0), edge)])
        return list(guide.mistakes(evidence, SimpleNamespace(fields=[], model=model)))

    assert faults(edge) == []
    ((at, words),) = faults(edge.model_copy(update={"figure": "sharding/deep#ringe"}))
    assert at == ("edges", 0, "figure")
    assert words.startswith("no lesson figure 'sharding/deep#ringe'")
