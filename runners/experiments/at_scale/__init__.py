"""One rank of many: what a large transformer needs there, worked out with empty tensors.

A process is rank 0 of a group that pretends to be large, and trains a transformer of fake tensors:
every allocation has a size and takes no memory, and the meter follows it. The same functions train
a small transformer on real ranks, where the two meters are compared.

    python -m runners run at_scale
"""

from __future__ import annotations

from functools import cached_property

from runners.experiments.at_scale.peak import (
    BYTES_PER_VALUE,
    COPIES_PER_PARAMETER,
    parameters_on_a_rank,
    peak_of,
)
from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, RunSettings
from runners.training.shape import TransformerShape

QUESTION = "What does one rank out of many hold of a transformer that no single device could train?"


class Settings(RunSettings):
    """A transformer, and how ranks divide it: replicas, parts of a layer, and shards of these."""

    vocabulary: Count
    width: Count
    num_heads: Count
    hidden: Count
    num_layers: Count
    length: Count
    num_samples: Count = 1
    num_ranks: Count
    num_replicas: Count
    num_tensor_ranks: Count

    @property
    def shape(self) -> TransformerShape:
        """The transformer."""
        return TransformerShape(
            vocabulary=self.vocabulary,
            context=self.length,
            width=self.width,
            num_heads=self.num_heads,
            num_layers=self.num_layers,
            hidden=self.hidden,
        )

    def check(self) -> None:
        """Refuse ranks that cannot be divided so, or that cannot divide the model."""
        shape, num_ranks, parts = self.shape, self.num_ranks, self.num_tensor_ranks
        if self.strategy == "real" and num_ranks != self.world_size:
            raise ValueError(f"num_ranks {num_ranks} must be the world_size {self.world_size}")
        if num_ranks % (self.num_replicas * parts):
            raise ValueError(
                f"{num_ranks} ranks cannot be {self.num_replicas} replicas of {parts} tensor ranks"
            )
        if num_ranks < 2:
            raise ValueError("num_ranks must be two or more")
        if shape.width % shape.num_heads or shape.num_heads % parts:
            raise ValueError(f"{shape.num_heads} heads over {parts} ranks do not fit the width")
        for name in ("vocabulary", "context", "width", "hidden"):
            if getattr(shape, name) % (self.num_shards * parts):
                raise ValueError(f"{name} {getattr(shape, name)} cannot be dealt out to the ranks")

    @cached_property
    def num_shards(self) -> int:
        """Of each part of a replica."""
        return self.num_ranks // (self.num_replicas * self.num_tensor_ranks)

    @cached_property
    def num_parameters(self) -> int:
        """Of the whole model."""
        return self.shape.num_parameters()

    @cached_property
    def num_parameters_per_rank(self) -> int:
        """That one rank keeps between steps."""
        return parameters_on_a_rank(self.shape, self.num_shards, self.num_tensor_ranks)

    @cached_property
    def model_bytes(self) -> int:
        """All parameters."""
        return BYTES_PER_VALUE * self.num_parameters

    @property
    def _is_sharded(self) -> bool:
        return self.num_shards * self.num_replicas > 1

    @cached_property
    def held_bytes(self) -> int:
        """What a rank keeps between steps, with gradients."""
        copies = COPIES_PER_PARAMETER * BYTES_PER_VALUE * self.num_parameters_per_rank
        if self._is_sharded:
            return copies
        # Nothing shards the gradient of a table that is split by its rows: DTensor leaves it whole.
        table = BYTES_PER_VALUE * self.vocabulary * self.width
        return copies + table - table // self.num_tensor_ranks

    @cached_property
    def peak_bytes(self) -> int:
        """The closed form of a rank's peak."""
        num_tokens = self.num_samples * self.length
        shards, parts = self.num_shards, self.num_tensor_ranks
        return peak_of(self.shape, num_tokens, shards, parts, is_sharded=self._is_sharded)


MODELS: dict[str, dict[str, int]] = {
    "small": {
        "vocabulary": 1024, "width": 256, "num_heads": 8, "hidden": 1024, "num_layers": 6,
        "length": 64,
    },
    # Billions of parameters, with the widths and depths of models that are called so.
    "seven": {
        "vocabulary": 32768, "width": 4096, "num_heads": 32, "hidden": 16384, "num_layers": 32,
        "length": 2048,
    },
    "seventy": {
        "vocabulary": 32768, "width": 8192, "num_heads": 64, "hidden": 36864, "num_layers": 80,
        "length": 2048,
    },
}  # fmt: skip
# How a run uses its ranks: replicas of the model, and parts of a layer; the others are shards.
SMALL = {"fsdp": (1, 1), "tensor": (1, 4), "fsdp_tensor": (1, 2), "hsdp": (2, 1)}
# (ranks, replicas, parts of a layer) of each run of a large model at its full depth.
LARGE = {
    "seven": {
        "fsdp_8": (8, 1, 1),
        "fsdp_1024": (1024, 1, 1),
        "tensor_8": (8, 1, 8),
        "fsdp_tensor_64": (64, 1, 8),
        "hsdp_64": (64, 8, 1),
    },
    "seventy": {
        "tensor_8": (8, 1, 8),
        "fsdp_1024": (1024, 1, 1),
        "fsdp_tensor_1024": (1024, 1, 8),
        "hsdp_1024": (1024, 16, 1),
    },
}
SHALLOW = (4, 6)  # layers of a large model that are soon worked out; a layer is like the next


def _run(
    model: str,
    ranks: tuple[int, int, int],
    *,
    is_real: bool = False,
    full: bool = True,
    **changed: int,
) -> RunPlan[Settings]:
    """One run of a model; `ranks` are ranks, replicas and parts of a layer."""
    num_ranks, replicas, parts = ranks
    divided = {"num_ranks": num_ranks, "num_replicas": replicas, "num_tensor_ranks": parts}
    return RunPlan(
        "real" if is_real else "fake",
        num_ranks if is_real else 1,
        Settings(**{**MODELS[model], **changed, **divided}),
        passes=("metered",),
        has_timeline=False,
        can_share_device=False,
        only_on_cpu=True,
        nature="real" if is_real else "simulated",
        full=full,
    )


def _runs() -> dict[str, RunPlan[Settings]]:
    runs: dict[str, RunPlan[Settings]] = {}
    for way, divided in SMALL.items():
        full = way != "fsdp_tensor"
        runs[f"real_{way}"] = _run("small", (4, *divided), is_real=True, full=full)
        runs[f"fake_{way}"] = _run("small", (4, *divided), full=full)
    for num_layers in SHALLOW:
        ranks = LARGE["seventy"]["fsdp_tensor_1024"]
        runs[f"seventy_layers_{num_layers}"] = _run("seventy", ranks, num_layers=num_layers)
    for model, ways in LARGE.items():
        for way, ranks in ways.items():
            runs[f"{model}_{way}"] = _run(model, ranks)
    return runs


RUNS = _runs()
