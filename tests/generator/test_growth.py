"""How a number grows: the points drawn, the numbers in the table, what authors get wrong."""

import pytest

from generator.figures.drawing import WIDE
from generator.figures.drawings.growth import MARKS, Axes, Grown, Point, growth
from tests.generator.drawn import Drawn, middle, points


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
