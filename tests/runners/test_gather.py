"""What ranks recorded of a stage, put together: who held what, and what travelled."""

from runners.measuring.gather import gather
from runners.measuring.launch import PassResult, Place
from runners.plans.experiment import RunPlan
from runners.traces.outcome import RankOutcome
from runners.traces.records import Move, Stage


def _outcome(rank, moves, rows):
    stage = Stage(
        name="forward", rank=rank, operation="pass on", shape_in=[rows], shape_out=[rows, 2],
        dtype="float32", bytes=8 * rows, values=[0.0],
    )  # fmt: skip
    parts = [Move(operation=o, source=s, destination=d, bytes=b) for o, s, d, b in moves]
    return RankOutcome(
        rank=rank,
        stages=[stage],
        stage_seconds={"forward": 0.5},
        step_seconds=[0.1] * 5,
        stage_moves={"forward": parts},
    )


def _gathered(moves, *, has_timeline=True):
    outcomes = [_outcome(rank, seen, rows=10 + rank) for rank, seen in enumerate(moves)]
    result = PassResult(outcomes=outcomes, root_cause=None, seconds=1.0, printed=[])
    plan = RunPlan(
        strategy="passing", world_size=len(moves), settings={}, has_timeline=has_timeline
    )
    return gather(
        plan, {"timed": result, "metered": result}, Place("cpu", "gloo"), oversubscribed=False
    )


def test_a_tensor_that_is_sent_travels_once_from_its_sender_to_its_receiver():
    (stage,) = _gathered([[("send", 0, 1, 40)], [("recv", 0, 1, 40)]]).stages
    assert stage.moves == [Move(operation="send", source=0, destination=1, bytes=40)]


def test_calls_of_a_collective_are_summed_on_a_rank_and_not_over_ranks():
    (stage,) = _gathered(
        [[("all_reduce", None, None, 8), ("all_reduce", None, None, 4)]] * 3
    ).stages
    assert stage.moves == [Move(operation="all_reduce", source=None, destination=None, bytes=12)]


def test_each_rank_tells_what_it_held_in_a_run_that_is_shown_and_in_no_other():
    (stage,) = _gathered([[], []]).stages
    assert [(one.rank, one.shape_in, one.bytes) for one in stage.ranks] == [
        (0, [10], 80),
        (1, [11], 88),
    ]
    (plain,) = _gathered([[("recv", 1, 0, 4)], []], has_timeline=False).stages
    assert plain.ranks == plain.moves == []
