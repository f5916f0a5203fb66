"""What the trace of `batch_split` shows: the stages of a split step, and one batch followed.

In: a rank, and its replica once it is trained. Out: stages, prediction steps, epochs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor, nn

from runners.experiments.batch_split import Settings
from runners.ranks.rank import Rank
from runners.traces.schema import Setting
from runners.training.steps import validate
from runners.training.teacher import Lesson

# The phase, whether it computes, and what its stage does.
STAGES = {
    "scatter": ("scatter", False, "scatter the batch over the ranks"),
    "forward": ("forward", True, "run this rank's replica on its samples"),
    "gather": ("gather", False, "gather the logits in the batch's order"),
    "loss": ("loss", True, "compute the loss of the whole batch and its gradient"),
    "scatter_back": ("scatter", False, "scatter the gradient of the logits"),
    "backward": ("backward", True, "run backward through this rank's replica"),
}


@contextmanager
def shown(rank: Rank[Settings], name: str, of: Tensor | None) -> Iterator[Callable[[Tensor], None]]:
    """Mark one stage of a split step, and its phase."""
    phase, computes, operation = STAGES[name]
    with rank.phase(phase, computes=computes), rank.stage(name, operation, of) as out:
        yield out


def report(
    rank: Rank[Settings],
    epoch: int,
    seen: tuple[float, float, int] | None,
    model: nn.Module,
    lesson: Lesson,
) -> None:
    """Rank 0 knows the loss; every replica gives its digest."""
    loss, accuracy, count = seen or (None, None, 0)
    graded = validate(model, lesson.validation) if seen and not rank.is_metered else None
    rank.epoch(
        epoch,
        loss=loss,
        accuracy=accuracy,
        num_samples=count,
        validation=graded,
        parameters=model.parameters(),
    )
    if loss is not None:
        print(f"epoch {epoch}: loss {loss:.4f}")


@torch.no_grad()
def follow(rank: Rank[Settings], model: nn.Module, lesson: Lesson) -> None:
    """Follow the first batch: split, forward on each rank, combine."""
    settings = rank.settings
    samples = lesson.training.take(slice(0, settings.batch_size))
    own = torch.empty(settings.num_samples_per_rank, settings.num_features, device=rank.device)
    if rank.rank == 0:
        with rank.predict("split", "scatter the batch over the ranks", samples.features) as out:
            dist.scatter(own, list(samples.features.chunk(rank.world_size)))
            out(own)
    else:
        dist.scatter(own, None)
    name, operation = f"forward_rank_{rank.rank}", STAGES["forward"][-1]
    with rank.predict(name, operation, own) as out:
        logits = model(own)
        out(logits)
    if rank.rank:
        dist.gather(logits, None)
        return
    gathered = [torch.empty_like(logits) for _ in range(rank.world_size)]
    facts: dict[str, Setting] = {"num_samples_combined": settings.batch_size}
    with rank.predict("combine", STAGES["gather"][-1], logits, facts) as out:
        dist.gather(logits, gathered)
        whole = torch.cat(gathered)
        out(whole)
        facts["loss"] = nn.functional.cross_entropy(whole, samples.labels).item()
        facts["predicted_class"] = int(whole[0].argmax())
        facts["true_class"] = int(samples.labels[0])
