"""What both complete programs share: stop, save, resume, skip and evaluate, on several ranks."""

import os
import signal
from itertools import count

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import _disable_current_modes

from tests.judged import judged
from tests.killed_saves import saved_twice, training

pytestmark = pytest.mark.ranks


def stopped(_):
    """After which step each rank stops, where one of them gets the signal in the third."""
    from resume import Stop

    with _disable_current_modes():
        told, step = Stop(torch.device("cpu")), 1
        while not told():
            step += 1
            if step == 3 and dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGTERM)
    return step


def test_a_signal_to_one_rank_stops_all_ranks_after_the_same_step():
    assert [one.returned for one in judged(stopped, 2)] == [3, 3]


def skipped(_):
    """The weight after each update, where the second and the last four have no finite norm."""
    with _disable_current_modes():
        one, weights = training(0), []
        for step in range(6):
            for parameter in one.model.parameters():
                parameter.grad = torch.ones_like(parameter)
            is_bad = step == 1 or (step > 2 and dist.get_rank() == 1)
            one.update(torch.tensor(float("nan") if is_bad else 1.0))
            weights.append(one.model.weight[0, 0].item())
        with pytest.raises(RuntimeError, match="gradients are not finite"):
            one.update(torch.tensor(float("inf")))
    return weights


def test_a_step_that_is_not_finite_on_one_rank_is_skipped_on_all_and_four_in_a_row_are_an_error():
    first, second = (one.returned for one in judged(skipped, 2))
    assert first == second
    moved = [before != after for before, after in zip([0, *first], first, strict=False)]
    assert moved == [True, False, True, False, False, False]


SAMPLES = [torch.full((4,), float(number)) for number in range(7)]


def squares(model, batch):
    """A sum over a batch, and over how many samples."""
    return model(batch).square().sum(), torch.tensor(len(batch))


def evaluated(_):
    """The mean over samples that do not divide evenly, of a sharded model."""
    from resume import evaluate

    with _disable_current_modes():
        torch.manual_seed(0)
        model = nn.Linear(4, 4)
        fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
        return evaluate(model, SAMPLES, 2, squares)


@pytest.mark.parametrize("num_ranks", [1, 3])
def test_each_sample_is_evaluated_once_on_any_number_of_ranks(num_ranks):
    torch.manual_seed(0)
    whole = nn.Linear(4, 4)
    expected = squares(whole, torch.stack(SAMPLES))[0].item() / len(SAMPLES)
    for one in judged(evaluated, num_ranks):
        assert one.returned == pytest.approx(expected, rel=1e-6)


def test_a_save_that_is_killed_at_any_point_leaves_a_whole_checkpoint(tmp_path):
    for left in count():
        folder = tmp_path / str(left)
        folder.mkdir()
        is_dead, step = saved_twice(folder, left)
        if not is_dead:
            break
        assert step in (1, 2)
    assert left > 7  # points
    assert step == 2
