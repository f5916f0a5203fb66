"""A reference run once more with fewer instructions: who is repeated, and that ranks obey."""

import io
import platform

import pytest

from runners.measuring.instruction_sets import with_spread
from runners.measuring.progress import Progress
from runners.plans.experiment import find

pytestmark = pytest.mark.ranks


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the sets are those of x86")
def test_a_training_is_repeated_by_ranks_with_fewer_instructions_and_what_differs_is_kept(
    run, launcher
):
    def measured(name):
        once = run("rounded", name)
        again = with_spread(once, name, find("rounded"), launcher, Progress(io.StringIO()))
        assert again.model_copy(update={"spread": None}) == once
        return again.spread

    apart = {"ranks.measures.capability", "ranks.measures.products"}
    assert measured("trained") == dict.fromkeys(apart, 1.0)
    assert measured("counted") is None
    assert launcher.instructions == {}
