"""The plain scripts that `make bench` holds the runners against do the same work, unrecorded."""

import pytest

from runners.measuring.launch import Launcher
from runners.plans.experiment import Experiment, RunPlan, find
from runners.ranks.rank import Rank
from tests.bench.bare import BareRank, pass_of
from tests.bench.suite import Case, plain_run, reason_against

# What a strategy needs of a rank to do its work; all else marks, meters or records.
WORKS = {"epochs", "send", "receive", "link_count", "beat", "is_metered", "settle"}
AFTER = {
    "again",
    "finish",
    "keep_peak",
    "keep_facts",
    "start_kernel",
    "limit_allocator",
    "note_refusals",
    "note_held",
    "lift_limit",
}  # the process body calls them, no strategy does
PHASES = {"begin", "end"}  # a bare rank has no phases that could call them


def test_a_bare_rank_overrides_all_that_records() -> None:
    public = {name for name in dir(Rank) if not name.startswith("_")}
    assert public - WORKS - AFTER - PHASES == {
        name for name in vars(BareRank) if not name.startswith("_")
    }


def test_what_a_plain_script_cannot_repeat_is_left_out_with_a_reason() -> None:
    experiment = Experiment("one", "", {}, {})
    assert reason_against(experiment, RunPlan("train")) is None
    for plan in (
        RunPlan("train", expected="deadlocked"),
        RunPlan("train", full=True),
        RunPlan("train", nature="simulated"),
        RunPlan("train", own_network=True),
        RunPlan("train", follows="other"),
    ):
        assert reason_against(experiment, plan)
    assert reason_against(Experiment("one", "", {}, {}, full=True), RunPlan("train"))


@pytest.mark.ranks
def test_a_plain_script_trains_the_same_parameters() -> None:
    case = Case(find("batch_split"), "split")
    with Launcher() as launcher:
        printed = plain_run(launcher, case, case.plan, digest=True)
        outcomes = launcher.run_pass(case.experiment, case.run, pass_of(case.plan)).outcomes
    told = sorted(line for line in printed.splitlines() if line.startswith("digest "))
    assert told == [f"digest {o.rank} {o.parameter_digest}" for o in outcomes]
