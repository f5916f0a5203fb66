"""The book's one model: a small GPT, trained under every strategy from the same global batches.

The text is prose of the book's own lessons, a byte a token. Each run builds the same parameters
and takes the same batches in the same order, so all should arrive at one model.

    python -m runners run transformer
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import torch
from torch import Tensor, nn
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor.parallel import parallelize_module

from proofbook.runners.api import Count, Declaration, Factor, Setting
from proofbook.runners.closed_forms.shape import FLOAT_BYTES, VOCABULARY, TransformerSettings
from proofbook.runners.training.networks import grade
from proofbook.runners.training.rank import Rank
from proofbook.runners.training.split import blocks_plan, shard_blocks
from proofbook.runners.training.stages import back_through_stage, through_stage
from proofbook.runners.training.steps import of_all_ranks, replica_of
from proofbook.runners.training.text import Text, batch_starts, held_out_starts, record, windows
from proofbook.runners.training.transformer_model import (
    SmallGPT,
    count_operations,
    next_token_loss,
    next_token_step,
)


def ddp(rank: Rank[Settings]) -> None:
    """A replica on every rank, which takes its share of each batch; gradients are averaged."""
    _train(rank, replica_of(rank, _whole(rank)))


def single(rank: Rank[Settings]) -> None:
    """Build and train the whole model on one device, to compare with; record a step's FLOPs."""
    model = _whole(rank)
    _train(rank, model)
    if not rank.is_metered:
        starts = range(rank.settings.global_batch_size)
        count_operations(rank, model, *_windows(rank, Text.read().training, starts))


def _train(
    rank: Rank[Settings],
    model: nn.Module,
    step: Callable[[Tensor, Tensor], float | None] | None = None,
    logits_of: Callable[[Tensor], Tensor | None] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
) -> None:
    """Train what this rank has of the model to the end, and look at held-out text.

    `step` is forward and backward of this rank's sequences, and gives their loss, or None where
    another rank sees it, as `logits_of` gives logits. A model that takes sequences in one piece
    needs neither.
    """
    settings, text = rank.settings, Text.read()
    if rank.rank == 0:
        record(rank, text)
    size = settings.num_samples_per_rank
    first = size * (rank.rank * settings.num_data_parts // rank.world_size)
    starts = batch_starts(
        text.training, rank.seed, settings.num_steps, settings.global_batch_size, settings.context
    )
    step, rate = step or partial(next_token_step, model), settings.learning_rate
    fused = settings.num_tensor_ranks == 1  # it refuses a mixture of shards and whole parameters
    optimizer = optimizer or torch.optim.Adam(model.parameters(), lr=rate, fused=fused)
    rank.watch(model, getattr(optimizer, "optim", optimizer))  # ZeRO-1 has its Adam inside
    losses = []
    for index in rank.steps(settings.num_steps):
        tokens, targets = _windows(rank, text.training, starts[index][first : first + size])
        losses.append(step(tokens, targets))
        with rank.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        rank.count_samples(len(tokens))
    if not rank.is_metered:
        _report(rank, text, losses, logits_of or model)


def accumulated(rank: Rank[Microbatched]) -> None:
    """Build and train a GPT by DDP in microbatches, added up; only the last backward averages."""
    replica, parts = replica_of(rank, _whole(rank)), rank.settings.num_microbatches

    def step(tokens: Tensor, targets: Tensor) -> float:
        loss = 0.0
        for part, (own, wanted) in enumerate(
            zip(tokens.chunk(parts), targets.chunk(parts), strict=True)
        ):
            replica.require_backward_grad_sync = part == parts - 1  # as `no_sync` sets it
            of_part = next_token_loss(replica(own), wanted) / parts
            of_part.backward()
            loss += of_part.item()
            del of_part  # before the next forward pass
        return loss

    _train(rank, replica, step)


def zero(rank: Rank[Settings]) -> None:
    """DDP, and ZeRO-1: each rank updates some of the parameters and broadcasts them."""
    replica = replica_of(rank, _whole(rank))
    rate, adam = rank.settings.learning_rate, torch.optim.Adam
    optimizer = ZeroRedundancyOptimizer(replica.parameters(), adam, lr=rate, fused=True)
    _train(rank, replica, optimizer=optimizer)


def fsdp(rank: Rank[Settings]) -> None:
    """Build and train a GPT in shards, all parameters; a block is gathered while it computes."""
    model = _whole(rank)
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    with rank.phase("wrap"):
        shard_blocks(model, mesh)
    _train(rank, model)


def tensor_parallel(rank: Rank[Settings]) -> None:
    """Build and train a GPT, its blocks' projections split: in by columns, out by rows."""
    model = _whole(rank)
    mesh = init_device_mesh(rank.device.type, (rank.world_size,))
    with rank.phase("wrap"):
        parallelize_module(model, mesh, blocks_plan(rank.settings.num_layers))
    _train(rank, model)


def fsdp_tensor(rank: Rank[Settings]) -> None:
    """Build and train a GPT on a square of ranks: projections split one way, FSDP the other."""
    shape = (rank.world_size // TENSOR_RANKS, TENSOR_RANKS)
    mesh = init_device_mesh(rank.device.type, shape, mesh_dim_names=("shard", "tensor"))
    model = _whole(rank)
    with rank.phase("wrap"):
        parallelize_module(model, mesh["tensor"], blocks_plan(rank.settings.num_layers))
        shard_blocks(model, mesh["shard"])
    _train(rank, model)


def pipelined(rank: Rank[Microbatched]) -> None:
    """Build and train some blocks on each rank; microbatches pass on and back (GPipe by hand)."""
    layers, parts = _stage(rank, _whole(rank)), rank.settings.num_microbatches
    is_last, width = rank.rank == rank.world_size - 1, rank.settings.width

    def step(tokens: Tensor, targets: Tensor) -> float | None:
        passed = []
        for own, wanted in zip(tokens.chunk(parts), targets.chunk(parts), strict=True):
            run = partial(_mean_loss, layers, wanted, parts) if is_last else layers
            passed.append(through_stage(rank, run, own, (*own.shape, width)))
        loss = sum(given.item() for _, given in passed) if is_last else None
        while passed:  # first in, first out, and freed
            back_through_stage(rank, *passed.pop(0))
        return loss

    def logits_of(tokens: Tensor) -> Tensor | None:
        given = through_stage(rank, layers, tokens, (*tokens.shape, width))[1]
        return given if is_last else None

    _train(rank, layers, step, logits_of)


def _mean_loss(layers: nn.Module, targets: Tensor, parts: int, taken: Tensor) -> Tensor:
    """The share of a microbatch in the mean loss of its batch."""
    return next_token_loss(layers(taken), targets) / parts


def checkpointed(rank: Rank[Settings]) -> None:
    """One device: forward keeps the input of each block, backward computes the rest again."""
    model = _whole(rank)
    for place, block in enumerate(model.blocks, start=1):
        model[place] = checkpoint_wrapper(block)
    _train(rank, model)


def autocast(rank: Rank[Settings]) -> None:
    """Build and train a GPT on one device: products in bf16, parameters and updates in fp32."""
    model = _whole(rank)

    def step(tokens: Tensor, targets: Tensor) -> float:
        with torch.autocast(rank.device.type, dtype=torch.bfloat16):
            loss = next_token_loss(model(tokens), targets)
        loss.backward()
        return loss.item()

    _train(rank, model, step)


def _whole(rank: Rank[Settings]) -> SmallGPT:
    """The whole model, with the same parameters on every rank."""
    settings = rank.settings
    rank.describe(
        settings.shape.description(
            rank.world_size,
            is_sharded=rank.declaration.strategy in IN_SHARDS,
            is_split=settings.num_tensor_ranks > 1,
            is_staged=settings.num_stages > 1,
        )
    )
    torch.manual_seed(rank.seed)
    return SmallGPT(settings.shape, rank.device)


def _stage(rank: Rank[Settings], model: SmallGPT) -> nn.Sequential:
    """This rank's blocks, the first rank's with the embedding, the last rank's with the head."""
    size = rank.settings.num_layers // rank.world_size
    start = 1 + rank.rank * size if rank.rank > 0 else 0
    end = 1 + (rank.rank + 1) * size if rank.rank < rank.world_size - 1 else None
    return nn.Sequential(*list(model)[start:end])


def _windows(rank: Rank[Settings], text: bytes, starts: Iterable[int]) -> tuple[Tensor, Tensor]:
    """Sequences and what follows each, on this rank's device and known as input."""
    tokens, targets = (
        part.to(rank.device) for part in windows(text, starts, rank.settings.context)
    )
    rank.inputs(tokens, targets)
    return tokens, targets


@torch.no_grad()
def _report(
    rank: Rank[Settings],
    text: Text,
    losses: list[float | None],
    logits_of: Callable[[Tensor], Tensor | None],
) -> None:
    """The mean loss of each global batch, and of held-out text, from the first rank that knows."""
    settings = rank.settings
    starts = held_out_starts(text.held_out, settings.num_held_out_samples, settings.context)
    tokens, targets = _windows(rank, text.held_out, starts)
    logits = logits_of(tokens)  # every rank takes part
    of_ranks = of_all_ranks(rank, losses)
    known = [own for own in of_ranks if None not in own]
    if logits is None:
        return
    means = [sum(of_step) / len(known) for of_step in zip(*known, strict=True)]
    for loss in means:
        rank.step_loss(loss)
    graded = None
    if rank.rank == of_ranks.index(known[0]):
        loss, accuracy = grade(logits.flatten(0, 1), targets.flatten())
        graded = (len(tokens), loss, accuracy)
    count = rank.outcome.num_samples or 0
    rank.epoch(1, loss=sum(means) / len(means), num_samples=count, validation=graded)


QUESTION = (
    "Does a transformer learn the same under every strategy, and what does each strategy cost?"
)
TENSOR_RANKS = 2  # of a square of ranks
IN_SHARDS = ("fsdp", "fsdp_tensor")


class Settings(TransformerSettings):
    """A small GPT, its training, and the closed forms that its claims rest on."""

    context: Count = 64
    width: Count = 64
    num_heads: Count = 4
    num_layers: Count = 4
    hidden: Count = 256
    global_batch_size: Count = 8
    num_steps: Count = 32
    learning_rate: Factor = 0.003
    num_held_out_samples: Count = 32
    equal_parts = (
        ("width", "num_heads"),
        ("num_heads", "num_tensor_ranks"),
        ("num_layers", "num_stages"),
        ("global_batch_size", "num_data_parts"),
        ("num_samples_per_rank", "num_parts"),
    )

    @property
    def num_parts(self) -> int:
        """Microbatches of a rank's share of a batch."""
        return getattr(self, "num_microbatches", 1)

    @property
    def num_stages(self) -> int:
        """Into how many stages the layers are divided."""
        return self.world_size if self.strategy == "pipelined" else 1

    @property
    def num_data_parts(self) -> int:
        """Into how many equal parts ranks divide the sequences of a global batch."""
        return self.world_size // (self.num_tensor_ranks * self.num_stages)

    @property
    def num_samples_per_rank(self) -> int:
        """Sequences of a global batch that a rank sees."""
        return self.global_batch_size // self.num_data_parts

    def closed_forms(self) -> dict[str, Setting]:
        """By name, of the settings: numbers of parameters; bytes of parts; FLOPs of a batch."""
        shape, num_tokens = self.shape, self.global_batch_size * self.context
        block_on_a_rank = shape.block_parameters_on_a_rank(self.num_tensor_ranks)
        fullest = max(range(self.world_size), key=lambda r: self._state(r) + self._activations(r))
        return {
            "num_tokens_per_step": num_tokens,
            "num_parameters": shape.num_parameters(),
            "num_embedding_parameters": shape.embedding_parameters(),
            "num_rank_parameters": max(map(self._held, range(self.world_size))),
            "model_bytes": FLOAT_BYTES * shape.num_parameters(),
            "block_bytes": FLOAT_BYTES * self.num_layers * shape.block_parameters(),
            "rank_block_bytes": FLOAT_BYTES * self.num_layers * block_on_a_rank,
            "hidden_state_bytes": FLOAT_BYTES * num_tokens * self.width,
            "sample_bytes": 8 * self.num_samples_per_rank * (self.context + 1),
            "state_bytes": self._state(fullest),
            "activation_bytes": self._activations(fullest),
            # Forward once and backward twice: a multiplication and an addition for each weight.
            "num_weight_flops": 6 * num_tokens * self._block_weights,
            "num_attention_flops": 6 * num_tokens * self.num_layers * 2 * self.context * self.width,
            "num_head_flops": 6 * num_tokens * VOCABULARY * self.width,
        }

    @property
    def num_tensor_ranks(self) -> int:
        """Over how many ranks the projections of a block are split."""
        ranks = {"tensor_parallel": self.world_size, "fsdp_tensor": TENSOR_RANKS}
        return ranks.get(self.strategy, 1)

    @property
    def _block_weights(self) -> int:
        """Weights of the products of all blocks."""
        return self.num_layers * (4 * self.width**2 + 2 * self.width * self.hidden)

    def _held(self, rank: int) -> int:
        """Parameters that a rank keeps between steps."""
        first, last = self.shape.embedding_parameters(), self.shape.head_parameters()
        if self.num_stages > 1:
            first, last = first * (rank == 0), last * (rank == self.num_stages - 1)
        block = self.shape.block_parameters_on_a_rank(self.num_tensor_ranks)
        computes = first + self.num_layers // self.num_stages * block + last
        return computes // (self.num_data_parts if self.strategy in IN_SHARDS else 1)

    def _state(self, rank: int) -> int:
        """Bytes that a rank keeps besides activations at its peak.

        Parameters and Adam's two moments; DDP's buckets; what FSDP's root has gathered; gradients
        that microbatches or blocks before have left; autocast's copies of weights.
        """
        own, shape = FLOAT_BYTES * self._held(rank), self.shape
        ends = FLOAT_BYTES * shape.root_parameters(1)
        added = {
            "ddp": own,
            "zero": 2 * own // self.world_size - own,  # buckets, and a share of the moments
            "accumulated": 2 * own,
            "fsdp": ends,
            "fsdp_tensor": ends,
            "checkpointed": FLOAT_BYTES * self._recomputing()[0],
            "autocast": FLOAT_BYTES // 2 * (self._block_weights + VOCABULARY * self.width),
        }
        return 3 * own + added.get(self.strategy, 0)

    def _activations(self, rank: int) -> int:
        """Bytes of activations that a rank keeps at its peak, and of the scores' gradients.

        The head keeps its norm's output and the scores' logarithms, beside which the scores'
        gradient stands twice when backward begins.
        """
        width, tokens = self.width, self.num_samples_per_rank * self.context
        layers, head = self.num_layers // self.num_stages, width + 2 + 3 * VOCABULARY
        block = self.shape.block_activations(self.num_tensor_ranks)
        if self.strategy == "checkpointed":
            return FLOAT_BYTES * self._recomputing()[1]
        if self.strategy == "autocast":  # what products read and give is half as wide
            halves = (8 * width + 2 * self.hidden) // 2
            block = 2 * width + 4 + self.num_heads + halves  # the two sums, statistics
            head -= width // 2
        if self.num_stages == 1:
            tokens //= self.num_parts
        elif rank < self.num_stages - 1:
            head = 0
        else:  # scores of all microbatches, their gradients of one
            head -= 2 * VOCABULARY - 2 * VOCABULARY // self.num_parts
        return FLOAT_BYTES * tokens * (width + layers * block + head)

    def _recomputing(self) -> tuple[int, int]:
        """Gradients and activations at the peak of checkpointing, in values.

        It is where backward computes a block again, up to the gradient of its GELU, or before.
        """
        tokens, width, layers = self.global_batch_size * self.context, self.width, self.num_layers
        head, down = self.shape.head_parameters(), (self.hidden + 1) * width
        block = self.shape.block_activations()
        before = (0, tokens * ((layers + 2) * width + 2 + 3 * VOCABULARY))
        of_blocks = (
            (
                head + down + (layers - place) * self.shape.block_parameters(),
                tokens * (place * width + block + self.hidden),
            )
            for place in range(1, layers + 1)
        )
        return max([before, *of_blocks], key=sum)


class Microbatched(Settings):
    """The same training, each rank's share of a batch in microbatches."""

    num_microbatches: Count = 4


LONG = Settings(
    context=128, width=128, hidden=512, num_steps=800, num_held_out_samples=128, learning_rate=0.002
)


run = partial(Declaration, settings=Settings(), keeps_steps=True)
RUNS = {
    "single": run("single"),
    "ddp": run("ddp", 2),
    "accumulated": run("accumulated", 2, settings=Microbatched()),
    "zero": run("zero", 2, label="zero1"),
    "fsdp": run("fsdp", 2, can_share_device=False),
    "tensor_parallel": run("tensor_parallel", 2, can_share_device=False),
    "pipelined": run("pipelined", 2, settings=Microbatched(), has_timeline=True),
    "fsdp_tensor": run("fsdp_tensor", 4, can_share_device=False),
    "checkpointed": run("checkpointed"),
    "autocast": run("autocast"),
    "long": Declaration("ddp", 2, LONG, full=True, passes=("timed",)),
}
ON_CUDA = {
    "*": {
        "context": 512,
        "width": 1024,
        "num_heads": 16,
        "num_layers": 12,
        "hidden": 4096,
        "global_batch_size": 32,
        "learning_rate": 0.0003,
    }
}
TRIED_WITH = {"*": {"num_steps": 8}, "long": {"num_steps": 50}}
