"""How a number grows: the points drawn, the numbers in the table, what authors get wrong."""

import json

import pytest
import yaml

from generator.evidence.evaluation import Evidence
from generator.evidence.growth import runs_by_series
from generator.figures.drawing import NARROW, WIDE
from generator.figures.drawings.growth import MARKS, Axes, Grown, Point, growth
from generator.pages import rendering
from tests.generator.drawn import Drawn, at, middle, points

COST = "topics/averaging/cost.yml"
PAGE = "topics/averaging/cost.md"
LAW = """
  - id: peak-by-parameters
    for: tiny_memory.whole
    says: Parameters and gradients make the peak in tensor bytes.
    predicted: 2 * run.ranks[0].num_parameters * cited['fp32-width']
    observed: run.ranks[0].memory.peak_bytes
    tolerance: {relative: 0.25, because: labels are counted as well}
"""


def figure(book):
    lesson = next(topic for topic in book.topics if topic.id == "averaging").lessons["cost"]
    return lesson.model.figures[0].growth


def test_each_run_stands_at_what_it_was_set_to_and_what_it_measured(copy):
    found = runs_by_series(figure(copy.load()), Evidence(copy.load()))
    runs = json.loads(copy.trace("tiny_memory").read_text())["runs"]
    expected = sorted(
        (
            runs[name]["ranks"][0]["num_parameters"],
            runs[name]["ranks"][0]["memory"]["peak_bytes"],
            2 * runs[name]["ranks"][0]["num_parameters"] * 4,
        )
        for name in ("whole", "halves")
    )
    (points,) = found.values()
    drawn = [(one.x.number, one.measured.number, one.predicted.number) for one in points]
    assert drawn == expected


def test_the_numbers_behind_the_figure_stand_in_a_table_with_their_difference(copy):
    text = rendering.render(copy.load())[PAGE].split('id="figure-peaks"')[1].split("</figure>")[0]
    table = text.split("<table")[1]
    assert table.count("<tr>") == 3
    for shown in ("10,000", "82.0", "78.1", "−4.76%", "20,000", "160", "156", "−2.44%"):
        assert f">{shown}" in table, shown


def drawn(series, layout=WIDE, *, is_logarithmic=False):
    axes = Axes("ranks", "bytes", "measured", "by the formula", is_logarithmic=is_logarithmic)
    return Drawn(growth(series, axes, layout))


def place(x, y, values):
    """Where these points lie, by the labels of the axes."""
    return [pytest.approx((x(across), y(up)), abs=0.2) for across, up in values]


def test_points_and_formula_are_drawn_where_they_belong_each_line_with_its_own_mark():
    runs = (Point(1, 10, 11, "one"), Point(2, 20, 22, "two"), Point(4, 40, None, "four"))
    other = (Point(1, 5, None), Point(4, 5, None))
    found = drawn([Grown("first", runs), Grown("second", other)])
    x, y = found.across(), found.up()
    one, two, formula = (list(points(curve)) for curve in found.marks("polyline"))
    assert one == place(x, y, [(1, 10), (2, 20), (4, 40)])
    assert two == place(x, y, [(1, 5), (4, 5)])
    assert formula == place(x, y, [(1, 11), (2, 22)])
    dots = [middle(dot) for dot in found.marks("circle", MARKS[0][0])]
    assert dots[1:] == place(x, y, [(1, 10), (2, 20), (4, 40)])  # the first is the legend's
    assert len(found.marks("polygon", MARKS[1][0])) == 3
    assert found.says() == ["one", "two", "four"]
    assert {"first, measured", "second, measured", "by the formula"} <= set(found.words())


@pytest.mark.parametrize("layout", [WIDE, NARROW])
@pytest.mark.parametrize("is_logarithmic", [False, True])
def test_every_point_lies_inside_the_plot_and_the_last_run_has_its_label(layout, is_logarithmic):
    xs = [2.0**power for power in range(12)]
    runs = tuple(Point(x, x * x, x * x * 1.1) for x in xs)
    found = drawn([Grown("line", runs)], layout, is_logarithmic=is_logarithmic)
    axis = max(found.marks("line", "axis"), key=lambda one: at(one, "x2") - at(one, "x1"))
    title = at(found.word("bytes"), "y")
    for curve in found.marks("polyline"):
        for x, y in points(curve):
            assert at(axis, "x1") <= x <= at(axis, "x2")
            assert title < y <= at(axis, "y1")
    assert "2,048" in found.words()
    y = found.up(is_logarithmic=is_logarithmic)
    assert [place[1] for place in points(found.marks("polyline", "formula")[0])] == pytest.approx(
        [y(1.1 * x * x) for x in xs], abs=0.2
    )


def _growth(**changes):
    def edit(copy):
        file = copy.content / COST
        document = yaml.safe_load(file.read_text(encoding="utf-8"))
        document["figures"][0]["growth"].update(changes)
        file.write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")

    return edit


@pytest.mark.parametrize(
    ("edit", "key", "said"),
    [
        (_growth(x="run.settings.num_rowes"), "x", "has no entry 'num_rowes'"),
        (_growth(x="rum.world_size"), "x", "unknown name 'rum'"),
        (_growth(x="run.strategy"), "x", "is text, not a number"),
        (_growth(measured="run.ranks[0].memory"), "measured", "cannot be printed"),
        (_growth(measured="run.timing.step"), "measured", "are samples"),
        (
            _growth(predicted="run.ranks[0].memory.peak_bytes * 2"),
            "predicted",
            "the very field that it is drawn beside",
        ),
        (
            _growth(predicted="run.timing.wall_seconds"),
            "predicted",
            "bytes and seconds cannot be added or compared",
        ),
        (
            _growth(x="run.ranks[0].num_parameters - run.ranks[0].num_parameters",
                    logarithmic=True),
            "x",
            "no place on a logarithmic axis",
        ),
    ],
)  # fmt: skip
def test_a_mistake_in_a_growth_figure_is_told_once_at_its_expression(copy, edit, key, said):
    edit(copy)
    found = [error for error in copy.errors() if said in error]
    assert len(found) == 1, copy.errors()
    line = int(found[0].split(":")[1])
    assert f"{key}:" in (copy.content / COST).read_text().splitlines()[line - 1]


def test_a_law_gives_a_figure_what_it_observes_and_what_it_predicts(copy):
    by_hand = runs_by_series(figure(copy.load()), Evidence(copy.load()))
    copy.append("claims/tiny_memory.yml", LAW)
    _growth(law="peak-by-parameters@tiny_memory.whole", measured=None, predicted=None)(copy)
    assert copy.errors() == []
    book = copy.load()
    found = runs_by_series(figure(book), Evidence(book))
    numbers = [
        [(one.x.number, one.measured.number, one.predicted.number) for one in runs]
        for points in (by_hand, found)
        for runs in points.values()
    ]
    assert numbers[0] == numbers[1]
