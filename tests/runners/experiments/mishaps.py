"""Runs that end badly on purpose: the tests' own experiment, never part of the book."""

import os
import signal
import time

import torch
import torch.distributed as dist
from torch import nn

from proofbook.runners.core.declared.experiment import Declaration
from proofbook.runners.core.trace.records import Death

QUESTION = "What does the launcher say when a run ends badly?"
MEBIBYTE = 1 << 20


def well(rank):
    """Two ranks agree on a sum."""
    with rank.phase("sum"):
        tensor = torch.full((4,), float(rank.rank + 1))
        dist.all_reduce(tensor)
    rank.epoch(1, loss=tensor[0].item(), num_samples=1)
    facts = {}
    with rank.predict("sum", "add over the ranks", tensor, facts) as out:
        out(tensor)
        facts["inside"] = 1
    facts["after"] = 2
    print("all is well")


def killed(rank):
    """Rank 1 is killed while rank 0 waits for it."""
    for step in range(3):
        rank.step_index = step
        with rank.phase("forward"):
            if rank.rank == 1 and step == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            dist.all_reduce(torch.ones(1))


def left(rank):
    """Rank 1 leaves without a record."""
    with rank.phase("optimizer"):
        if rank.rank == 1:
            os._exit(3)
        dist.all_reduce(torch.ones(1))


def hangs(rank):
    """Rank 1 sleeps for ever; rank 0 waits in a collective."""
    with rank.phase("forward"):
        if rank.rank == 0:
            with rank.phase("all_reduce"):
                dist.all_reduce(torch.ones(1))
        time.sleep(3600)


def level(rank):
    """Each rank waits for what the other would send next."""
    with rank.phase("communicate"):
        dist.recv(torch.ones(1), 1 - rank.rank)


def raises(rank):
    """Rank 0 has a bug; rank 1 waits for it."""
    with rank.phase("loss"):
        if rank.rank == 0:
            raise ValueError("labels and samples differ in number")
        dist.all_reduce(torch.ones(1))


def holds(rank):
    """Known tensors are held, then one more is too large."""
    with rank.phase("forward"):
        held = [torch.ones(8 * MEBIBYTE // 4) for _ in range(4)]
        held.append(torch.ones(24 * MEBIBYTE // 4))


def holds_gradients(rank):
    """Backward is refused memory while a large gradient is on its way."""
    values = torch.ones(8 * MEBIBYTE // 4, requires_grad=True)
    with rank.phase("backward"):
        values.sin().sin().sum().backward()


def diverges(rank):
    """A learning rate so large that the loss leaves the numbers."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e30)
    for epoch in rank.epochs(3):
        for _ in rank.steps(2):
            loss = model(torch.ones(2, 4)).square().mean()
            loss.backward()
            optimizer.step()
            rank.step_loss(loss.item())
        rank.epoch(epoch, loss=loss.item(), num_samples=2)


BUDGETED = ("budgeted",)
TIMED = ("timed",)
KILLED = Death(rank=1, phase="forward", signal="SIGKILL")
LEFT = Death(rank=1, phase="optimizer", exit_code=3)
RUNS = {
    "well": Declaration("well", 2, passes=TIMED),
    "killed": Declaration("killed", 2, passes=TIMED, expected="died", expected_death=KILLED),
    "left": Declaration("left", 2, passes=TIMED, expected="died", expected_death=LEFT),
    "hangs": Declaration("hangs", 2, passes=TIMED, expected="deadlocked"),
    "level": Declaration("level", 2, passes=TIMED, expected="deadlocked"),
    "raises": Declaration("raises", 2, passes=TIMED, expected="failed"),
    "holds": Declaration(
        "holds", 1, passes=BUDGETED, budget_bytes=48 * MEBIBYTE, expected="out_of_memory"
    ),
    "holds_gradients": Declaration(
        "holds_gradients", 1, passes=BUDGETED, budget_bytes=28 * MEBIBYTE, expected="out_of_memory"
    ),
    "diverges": Declaration("diverges", 1, passes=TIMED, expected="diverged", keeps_steps=True),
}
