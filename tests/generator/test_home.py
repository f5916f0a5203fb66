"""The home page: a picture from the runs of one machine."""

import re

import pytest

from tests.generator import rendering
from tests.popovers import popovers_of

HOME = "index.md"


def test_bars_are_the_peaks_of_the_machine_at_hand_on_one_axis(copy):
    copy.add_machine("desk", "tiny_memory", "tiny_training")
    book = copy.load()
    page = rendering.render(book)[HOME]
    peaks = [
        rank.memory.peak_bytes
        for run in ("tiny_memory.whole", "tiny_memory.halves", "tiny_memory.halves")
        for rank in book.run(run).ranks
    ]
    bar = r'<p(?: class="pb-within")?><svg width="([\d.]+)%"'
    shares = [float(one) for one in re.findall(bar, page)]
    assert [one / shares[0] for one in shares] == pytest.approx(
        [peak / peaks[0] for peak in peaks], rel=1e-3
    )
    opened = popovers_of(page)
    assert all(opened[int(n)].on != "reference-frozen" for n in re.findall(r'data-v="(\d+)"', page))
