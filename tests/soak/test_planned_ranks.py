"""The layouts of plans that the gate leaves to `make soak`, on real ranks."""

import pytest

from tests.runners import test_planned_ranks
from tests.runners.test_planned_ranks import _ranks_communicate_over_gloo  # noqa: F401


@pytest.mark.soak
@pytest.mark.parametrize("layout", test_planned_ranks.AT_SOAK)
def test_real_ranks_need_and_send_what_the_simulation_of_their_layout_says(layout):
    check = test_planned_ranks
    check.test_real_ranks_need_and_send_what_the_simulation_of_their_layout_says(layout)
