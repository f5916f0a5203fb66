"""How ranks end: refused as declared, time and again; lost with a node; killed and started anew."""

import pytest

from proofbook.runners.core.declared.experiment import find
from proofbook.runners.core.measuring.launch import Launcher
from proofbook.runners.core.measuring.measure import measure_run
from proofbook.runners.traces.files import read
from proofbook.runners.traces.summary import how_it_ended
from tests.runners.two_nodes import WAYS, ended, lost, two_nodes, with_nodes
from tests.test_first_run import DDP, EXACT, assert_same, killed, steps, trained

pytestmark = [pytest.mark.soak, pytest.mark.ranks]
REPEATS = 20


@pytest.mark.timeout(3 * 3600)
def test_every_outcome_of_a_budget_is_as_declared_twenty_times_of_twenty():
    experiment = find("large_model")
    with Launcher() as launcher:
        for name in experiment.runs:
            runs = [measure_run(launcher, experiment, name) for _ in range(REPEATS)]
            assert {how_it_ended(run) for run in runs if run.is_surprise} == set(), name


@with_nodes
@pytest.mark.parametrize("how", WAYS)
def test_the_others_say_which_node_is_lost_and_end(how, tmp_path):
    with two_nodes(tmp_path) as nodes:
        folder = lost(nodes, how).folder
        if how != "rank":
            return
        nodes.start("c10d", "name", "lasting.brief")  # takes what had ended
        found = ended(nodes)
        assert found.codes == [0, 0], found.said
        assert "kept as measured before" in found.said[0]
        assert read(folder / "lasting.json").runs["brief"].status == "completed"
        assert not (folder / ".lasting.part").exists()


def test_a_killed_rank_makes_torchrun_start_all_ranks_again_from_the_checkpoint(tmp_path):
    log = trained(tmp_path / "whole", DDP, 2, *EXACT)
    ended = killed(tmp_path / "checkpoints", DDP, *EXACT, restarts=1)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("resumed after step 6\n") == 1
    assert steps(ended.stdout) == steps(log)
    assert_same(tmp_path / "whole", tmp_path / "checkpoints")
