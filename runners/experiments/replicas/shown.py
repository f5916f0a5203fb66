"""What a trace of `replicas` shows beside DDP's gradient: the oracle, and what a norm has seen."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from runners.ranks.rank import Rank
from runners.ranks.recorder import parameter_digest
from runners.traces.schema import Setting
from runners.training.networks import flat_gradient
from runners.training.steps import of_all_ranks
from runners.training.teacher import Samples


def compare(rank: Rank, whole: nn.Module, batch: Samples, averaged: Tensor) -> None:
    """What one device would have computed for the whole batch, and how far off DDP's mean is."""
    facts: dict[str, Setting] = {}
    with rank.predict("compare", "the gradient of the whole batch", batch.features, facts) as out:
        loss = nn.functional.cross_entropy(whole(batch.features), batch.labels)
        loss.backward()
        oracle = flat_gradient(whole)
        out(oracle)
        apart = (torch.linalg.norm(averaged - oracle) / torch.linalg.norm(oracle)).item()
        facts["loss"] = loss.item()
        facts["relative_differences"] = [*of_all_ranks(rank, apart)]
        if rank.rank == 0:
            print(f"DDP's gradient is {apart:.1%} away from that of the whole batch")


def watch_buffers(rank: Rank, replica: nn.Module, samples: Tensor) -> None:
    """Running statistics after the step, and when the next forward pass begins."""
    norm = next(m for m in replica.modules() if isinstance(m, nn.BatchNorm1d))
    buffers = list(norm.buffers())
    after = parameter_digest(buffers)
    met: list[str] = []
    hook = norm.register_forward_pre_hook(lambda *_: met.append(parameter_digest(buffers)))
    facts: dict[str, Setting] = {}
    with rank.predict("buffers", "begin the next forward pass", samples, facts) as out:
        out(replica(samples))
        for when, digest in (("after", after), ("met", met[0])):
            digests = of_all_ranks(rank, digest)
            facts[f"digests_{when}"] = [*digests]
            facts[f"num_distinct_{when}"] = len(set(digests))
    hook.remove()
