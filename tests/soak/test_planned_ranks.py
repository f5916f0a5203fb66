"""The layouts of plans that the gate leaves to `make soak`, on real ranks."""

import pytest

from tests.runners import conftest, test_planned_ranks

# As among their neighbours: torch has one thread, and a simulation the meter of gloo.
_no_forks_with_cuda = conftest._no_forks_with_cuda
_ranks_communicate_over_gloo = test_planned_ranks._ranks_communicate_over_gloo
check = test_planned_ranks.test_real_ranks_need_and_send_what_the_simulation_of_their_layout_says


@pytest.mark.soak
@pytest.mark.parametrize("layout", test_planned_ranks.AT_SOAK)
def test_real_ranks_need_and_send_what_the_simulation_of_their_layout_says(layout):
    check(layout)
