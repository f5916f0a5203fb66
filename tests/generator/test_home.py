"""The home page: a picture from the runs of one machine, the first hour, the map of topics."""

import re

import pytest

from generator.pages import rendering
from tests.popovers import popovers_of

HOME, PATH = "index.md", "topics/index.md"


@pytest.fixture
def desk(copy):
    """The frozen book on a second machine, which measured the runs of the home page itself."""
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    return copy


def test_bars_are_the_peaks_of_the_machine_at_hand_on_one_axis(desk):
    book = desk.load()
    page = rendering.render(book)[HOME]
    peaks = [
        rank.memory.peak_bytes
        for run in ("tiny_memory.whole", "tiny_memory.halves", "tiny_memory.halves")
        for rank in book.run(run).ranks
    ]
    shares = [float(one) for one in re.findall(r'<p><svg width="([\d.]+)%"', page)]
    assert [one / shares[0] for one in shares] == pytest.approx(
        [peak / peaks[0] for peak in peaks], rel=1e-3
    )
    opened = popovers_of(page)
    assert all(opened[int(n)].on != "reference-frozen" for n in re.findall(r'data-v="(\d+)"', page))


def test_lessons_of_the_first_hour_lead_to_each_other(copy):
    pages = rendering.render(copy.load())
    first, last = pages["topics/sharding/deep.md"], pages["topics/averaging/learn.md"]
    assert "topics/averaging/learn.html" in first.split("pb-in-hour")[1].split("</p>")[0]
    assert "topics/index.html" in last.split("pb-in-hour")[1].split("</p>")[0]
    assert "pb-in-hour" not in pages["topics/averaging/why.md"]
    assert 'href="topics/sharding/deep.html"' in pages[HOME]


def test_a_topic_stands_behind_those_that_it_requires_and_never_before_them(copy):
    copy.edit("topics/averaging/topic.yml", "order: 2", "order: 2\nrequires: [sharding]")
    columns = rendering.render(copy.load())[PATH].split('class="pb-map"')[1].split("<ul>")[1:]
    assert ["averaging/" in one for one in columns] == [False, True]
    assert "sharding/" in columns[0]
    copy.edit("topics/sharding/topic.yml", "order: 1", "order: 1\nrequires: [averaging]")
    assert any("'averaging' comes later" in error for error in copy.errors()), copy.errors()
