"""The moments of a step in their order, and its replay: who waits for whom, by closed forms."""

import pytest

from runners.plans.closed_forms import pipeline_idle_share
from runners.simulate.log import Moment
from runners.simulate.timeline import Timeline, replay

FLOPS, BYTES = 1e9, 1e6  # of a second


def seconds_of(moment):
    return moment.flops / FLOPS + moment.bytes / BYTES


def compute(seconds):
    return Moment(kind="compute", phase="forward", flops=round(seconds * FLOPS))


def begin(call, operation, *, ranks=(0, 1), peer=None, seconds=0.0):
    return Moment(
        kind="begin", call=call, operation=operation, ranks=list(ranks), peer=peer,
        bytes=round(seconds * BYTES),
    )  # fmt: skip


def wait(call):
    return Moment(kind="wait", call=call)


def test_computing_ends_where_a_call_begins_or_is_waited_for():
    told = Timeline()
    told.is_on = True
    for flops in (1, 2):
        told.compute("backward", flops)
        told.begin("barrier", [], (0, 1))
    told.compute("backward", 3)
    told.wait_for_all()
    kinds = [(one.kind, one.flops or one.call) for one in told.moments()]
    assert kinds[:4] == [("compute", 1), ("begin", 1), ("compute", 2), ("begin", 2)]
    assert kinds[4:] == [("compute", 3), ("wait", 1), ("wait", 2)]


@pytest.mark.parametrize(("stages", "units"), [(2, 4), (4, 16)])
def test_stages_of_a_pipeline_are_idle_as_long_as_the_closed_form_says(stages, units):
    steps = []
    for stage in range(stages):
        moments = []
        for unit in range(1, units + 1):
            if stage:
                moments += [begin(2 * unit, "recv", peer=stage - 1), wait(2 * unit)]
            moments.append(compute(1))
            if stage < stages - 1:
                moments += [begin(2 * unit + 1, "send", peer=stage + 1), wait(2 * unit + 1)]
        steps.append(moments)
    ends = replay(steps, seconds_of)
    assert 1 - units / ends[-1] == pytest.approx(pipeline_idle_share(units, stages))


def test_a_collective_begins_with_its_last_rank_and_hides_behind_computing():
    waits_at_once = [begin(1, "all_reduce", seconds=2), wait(1), compute(3)]
    waits_late = [compute(1), begin(1, "all_reduce", seconds=2), compute(3), wait(1)]
    assert replay([waits_at_once, waits_late], seconds_of) == [6, 4]


def test_collectives_of_a_group_run_one_after_another():
    both = [begin(n, "all_reduce", seconds=2) for n in (1, 2)]
    assert replay([[*both, wait(1), wait(2)]] * 2, seconds_of) == [4, 4]


def test_ranks_that_wait_for_each_other_never_end():
    both = [[begin(1, "recv", peer=1 - rank), wait(1), begin(2, "send", peer=1 - rank)]
            for rank in range(2)]  # fmt: skip
    assert replay(both, seconds_of) is None
