"""The order of the pages of a topic, and the map of what topics need."""

from types import SimpleNamespace

import pytest

from proofbook.generator.kinds.home.path import drawn
from proofbook.generator.kinds.lessons.chain import chain

NEEDS = {
    "memory": [], "copies": ["memory"], "stages": ["memory"], "layers": ["memory"],
    "batch": ["copies"], "shards": ["copies"], "time": ["copies"], "experts": ["layers", "shards"],
}  # fmt: skip


@pytest.fixture
def deep(book):
    return next(topic for topic in book.topics if topic.id == "sharding").lessons["deep"].model


def test_the_core_of_deep_comes_first_and_keeps_its_places_in_the_overview(deep):
    *others, last = deep.build_up
    steps = [*others, last.model_copy(update={"core": True})]
    pages = list(chain(deep.model_copy(update={"build_up": steps})))
    assert [page.title for page in pages[:3]] == [last.title, *(one.title for one in others)]
    assert [page.is_core for page in pages] == [True] + [False] * (len(pages) - 1)
    assert [page.anchor[0] for page in pages[:3]] == ["3", "1", "2"]


def test_where_no_step_is_marked_all_of_them_are_the_core(deep):
    assert [page.title for page in chain(deep) if page.is_core] == [
        step.title for step in deep.build_up
    ]


def test_in_practice_begins_with_what_all_need_and_ends_with_what_few_do(deep):
    groups = next(list(page.groups) for page in chain(deep) if page.title == "In practice")
    assert groups[0] == "When not to use it"
    assert groups[-1] == "Expert zone"


def test_on_the_map_a_topic_stands_below_what_it_needs_and_no_line_runs_behind_a_box():
    topics = [
        SimpleNamespace(id=name, file=SimpleNamespace(requires=needs))
        for name, needs in NEEDS.items()
    ]
    rows = [([topic.id for topic in row], passing, lines) for row, passing, lines in drawn(topics)]
    assert [names for names, *_ in rows] == [
        ["memory"], ["copies", "stages", "layers"], ["batch", "shards", "time"], ["experts"],
    ]  # fmt: skip
    middle, third = pytest.approx(1 / 2), pytest.approx(5 / 6)
    assert [*map(len, (lines for *_, lines in rows))] == [3, 4, 2, 0]
    assert (third, pytest.approx(2 / 3)) in rows[1][2]  # layers → experts, which is a row further
    assert rows[2][1] == [(pytest.approx(2 / 3),) * 2]  # between the boxes of shards and time
    assert rows[2][2] == [(pytest.approx(2 / 3), middle), (middle, middle)]
