"""How a number grows: the points drawn, the numbers in the table, what authors get wrong."""

import json
import math
from itertools import pairwise

import pytest
import yaml

from generator.evidence.evaluation import Evidence
from generator.evidence.growth import faults, grown
from generator.figures.chart import NARROW, WIDE
from generator.figures.drawings.growth import MARKS, Axes, Grown, Point, growth
from generator.pages import rendering

COST = "topics/averaging/cost.yml"
PAGE = "topics/averaging/cost.md"
AXES = Axes("ranks", "bytes", "measured", "by the formula", is_logarithmic=False)


def figure(book):
    lesson = next(topic for topic in book.topics if topic.id == "averaging").lessons["cost"]
    return lesson.model.figures[0].growth


def lines(spec, colour):
    """The points of every line of a colour in a chart."""
    return [
        [(row["x"], row["y"]) for row in part["data"]["values"]]
        for part in spec["layer"]
        if part["mark"]["type"] == "line" and part["mark"]["stroke"] == colour
    ]


def test_each_run_stands_at_what_it_was_set_to_and_what_it_measured(copy):
    found = grown(figure(copy.load()), Evidence(copy.load()))
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


def test_a_run_that_was_skipped_is_left_out_and_said(copy):
    copy.add_machine("cpu-mine", "tiny_memory", "tiny_training")
    lacks = {"status": "skipped", "reason": "no second device", "ranks": []}
    copy.change_run("tiny_memory.halves", machine="cpu-mine", **lacks)
    (points,) = grown(figure(copy.load()), Evidence(copy.load())).values()
    assert [one.run for one in points] == ["tiny_memory.whole"]
    assert "tiny_memory.halves: no second device" in rendering.render(copy.load())[PAGE]


def test_the_numbers_behind_the_figure_stand_in_a_table_with_their_difference(copy):
    text = rendering.render(copy.load())[PAGE].split('id="figure-peaks"')[1].split("</figure>")[0]
    table = text.split("<table")[1]
    assert table.count("<tr>") == 3
    for shown in ("10,000", "82.0", "78.1", "−4.76%", "20,000", "160", "156", "−2.44%"):
        assert f">{shown}" in table, shown


def test_points_and_formula_are_drawn_where_they_belong_each_line_with_its_own_mark():
    points = (Point(1, 10, 11), Point(2, 20, 22), Point(4, 40, None))
    other = (Point(1, 5, None), Point(4, 5, None))
    spec = growth([Grown("first", points), Grown("second", other)], AXES, WIDE)
    first, second = MARKS[:2]
    assert lines(spec, first[0]) == [[(1, 10), (2, 20), (4, 40)]]
    assert lines(spec, second[0]) == [[(1, 5), (4, 5)]]
    assert lines(spec, "currentColor") == [[(1, 11), (2, 22)]]
    shapes = [part["mark"]["shape"] for part in spec["layer"] if "shape" in part["mark"]]
    assert set(shapes) == {first[1], second[1]}
    words = {row.get("name") for part in spec["layer"] for row in part["data"]["values"]}
    assert {"first, measured", "second, measured", "by the formula"} <= words


def test_every_series_differs_from_every_other_by_colour_and_by_shape():
    assert len({colour for colour, _ in MARKS}) == len({shape for _, shape in MARKS}) == 5


def test_without_a_formula_nothing_is_dashed():
    spec = growth([Grown("only", (Point(1, 2, None), Point(2, 3, None)))], AXES, WIDE)
    assert not any("strokeDash" in part["mark"] for part in spec["layer"])


@pytest.mark.parametrize("layout", [WIDE, NARROW])
@pytest.mark.parametrize("is_logarithmic", [False, True])
def test_every_point_lies_inside_the_frame_and_labels_have_room(layout, is_logarithmic):
    xs = [2.0**power for power in range(12)]
    points = tuple(Point(x, x * x, x * x * 1.1) for x in xs)
    axes = Axes("x", "y", "measured", "formula", is_logarithmic=is_logarithmic)
    spec = growth([Grown("line", points)], axes, layout)
    line = next(part for part in spec["layer"] if part["mark"]["type"] == "line")
    for channel, values in (("x", xs), ("y", [1.1 * x * x for x in xs])):
        low, high = line["encoding"][channel]["scale"]["domain"]
        assert low <= min(values) <= max(values) <= high
    ticks = line["encoding"]["x"]["axis"]["values"]
    assert set(ticks) <= set(xs)
    assert max(xs) in ticks
    low, high = line["encoding"]["x"]["scale"]["domain"]
    scale = math.log if is_logarithmic else float
    places = [
        (scale(x) - (scale(low) if low else 0)) / (scale(high) - (scale(low) if low else 0))
        for x in ticks
    ]
    gaps = [(after - before) * spec["width"] for before, after in pairwise(places)]
    assert min(gaps) > 40


def test_a_logarithmic_axis_has_round_numbers():
    spec = growth(
        [Grown("line", (Point(1, 3, None), Point(2, 3000, None)))],
        Axes("x", "y", "measured", "formula", is_logarithmic=True),
        WIDE,
    )
    ticks = next(p for p in spec["layer"] if p["mark"]["type"] == "line")["encoding"]["y"]["axis"]
    assert set(ticks["values"]) >= {10.0, 100.0, 1000.0}
    assert all(f"{tick:.0e}"[0] in "125" for tick in ticks["values"])


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


def test_a_run_that_is_nowhere_is_told_where_it_is_named(copy):
    copy.edit(COST, "runs: [tiny_memory.whole, tiny_memory.halves]",
              "runs: [tiny_memory.whole, tiny_memory.halfs]")  # fmt: skip
    assert [error for error in copy.errors() if "tiny_memory has no run 'halfs'" in error]
    assert list(faults(Evidence(copy.load()), figure(copy.load()))) == []
