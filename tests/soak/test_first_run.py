"""A program of the page "first run" that torchrun starts again itself after a rank was killed."""

import pytest

from tests.test_first_run import DDP, EXACT, assert_same, killed, steps, trained

pytestmark = [pytest.mark.soak, pytest.mark.ranks]


def test_a_killed_rank_makes_torchrun_start_all_ranks_again_from_the_checkpoint(tmp_path):
    log = trained(tmp_path / "whole", DDP, 2, *EXACT)
    ended = killed(tmp_path / "checkpoints", DDP, *EXACT, restarts=1)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("resumed after step 6\n") == 1
    assert steps(ended.stdout) == steps(log)
    assert_same(tmp_path / "whole", tmp_path / "checkpoints")
