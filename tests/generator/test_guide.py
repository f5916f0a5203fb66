"""The decision guide: claims behind its edges, ways that end, sections that exist, and its page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from generator.checks.layout_checks import Recommended
from generator.content.errors import ContentErrors
from runners.planning.answer import Layout
from runners.planning.law_of_time import Bounds, Cluster
from tests.generator import rendering

FILE = "guide.yml"


@pytest.mark.parametrize(("fits", "better"), [(False, ["less"]), (True, [])])
def test_where_memory_is_free_needing_less_of_it_is_no_gain(fits, better):
    mine = Layout(None, Bounds(2, 0, 1, 0), 50, "fits")
    others, cluster = {"less": replace(mine, needed_bytes=40)}, Cluster(1, 8, 1, 1, 1)
    assert Recommended((), "run", mine, others, cluster, fits).better == better


def test_a_section_that_its_lesson_does_not_have_is_refused_when_pages_are_printed(copy):
    copy.edit(FILE, "section: What came before", "section: What came next")
    with pytest.raises(ContentErrors) as refused:
        rendering.render(copy.load())
    assert [str(one) for one in refused.value.errors] == [
        "content/guide.yml:19:52: averaging/why has no section 'What came next'; "
        "did you mean 'What came before'?"
    ]
