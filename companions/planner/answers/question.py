"""What a plan asks: a model, a way to train it, and a strategy on a mesh of devices. No torch.

In: words of the command line, or a published configuration. Out: a `Question`, which one process
simulates, and its mesh. An impossible mesh raises a `PlanError` of one line.
"""

from collections.abc import Iterator
from math import prod
from typing import Literal

from proofbook.companions.planner.answers.architecture import Architecture
from proofbook.runners.closed_forms.steps import layers_of_stages
from proofbook.runners.core.declared.settings import Count, FactorOrZero
from proofbook.runners.core.trace.schema import Record
from proofbook.runners.system.errors import FixableError, unknown

Precision = Literal["fp32", "autocast", "bf16-mixed", "bf16"]
Optimizer = Literal["sgd", "momentum", "adam", "adam8bit"]
Checkpointing = Literal["none", "selective", "all"]
Sharding = Literal["none", "zero1", "fsdp", "fsdp-keep"]
FrozenBits = Literal[4, 8, 16]
Schedule = Literal["none", "gpipe", "1f1b", "interleaved"]


class PlanError(FixableError):
    """A question that cannot be planned; the message is one line."""


class Strategy(Record):
    """How many ways each axis divides the work."""

    name: str  # as a table shows it
    data: Count = 1  # ranks that see other samples; `sharding` says what they keep of the model
    replicas: Count = 1  # groups of data-parallel ranks that each shard the whole model (HSDP)
    # shards of a unit's parameters after forward, each on a rank of a smaller group
    # (`reshard_after_forward` as a number); 0: as many as before
    reshards_to: int = 0
    context: Count = 1  # ranks that divide the sequence of a sample, and hold the same of the model
    expert: Count = 1  # ranks, among those of a stage, that divide the experts
    tensor: Count = 1  # ranks that divide each layer
    pipeline: Count = 1  # ranks that divide the layers into stages
    chunks: Count = 1  # stages of each of these ranks
    sharding: Sharding = "none"
    schedule: Schedule = "none"
    has_sequence_parallel: bool = False
    # with sequence parallelism, a rank keeps the whole inputs of its products for backward, as
    # torch's `SequenceParallel` does; else it keeps its part of the sequence and gathers again in
    # backward, as Megatron-LM does
    keeps_gathered: bool = False
    has_bucket_views: bool = False
    layers_of_stages: list[int] = []

    @property
    def num_devices(self) -> int:
        """The product of all axes."""
        return self.ranks_of_stage * self.pipeline

    @property
    def num_summing(self) -> int:
        """Ranks that sum their gradients, since they see other samples or parts of these."""
        return self.data * self.context

    @property
    def ranks_of_stage(self) -> int:
        """Ranks that hold the same layers, or parts of them."""
        return self.num_summing * self.tensor

    @property
    def shards(self) -> int:
        """Ranks among which data parallelism shards the model or the optimizer."""
        return 1 if self.sharding == "none" else self.num_summing // self.replicas

    @property
    def num_stages(self) -> int:
        """Stages of the pipeline, over all ranks."""
        return self.pipeline * self.chunks

    def stages_of(self, rank: int) -> list[int]:
        """The stages of a pipeline rank: each pass through the ranks adds one."""
        return list(range(rank, self.num_stages, self.pipeline))


class TrainingSettings(Record):
    """The settings of a step that a person chooses, whichever strategy divides it."""

    sequence: Count  # tokens of a sample
    microbatch: Count = 1  # samples of one forward pass on one data-parallel rank
    global_batch: Count = 1  # samples of one update over all ranks
    # `autocast` keeps fp32 parameters and computes in bf16; `bf16-mixed` has bf16 parameters and
    # gradients, and the optimizer an fp32 copy (under FSDP: shards are fp32); `bf16` has no fp32
    # copy, and keeps the optimizer's state in bf16, too
    precision: Precision = "bf16-mixed"
    optimizer: Optimizer = "adam"
    checkpointing: Checkpointing = "none"
    # parts of the sequence whose losses are computed one after another, where the logits do not
    # become their softmax in place
    loss_chunks: Count = 1
    adapter_rank: int = 0  # of LoRA beside each matrix of a layer; 0 trains every parameter
    frozen_bits: FrozenBits = 16  # of an element of these matrices, where LoRA freezes them


class Implementation(Record):
    """How a framework executes that step: as published rows state, and few users need to set."""

    has_wide_gradients: bool = False  # gradients are summed up in fp32 whatever the parameters are
    # the optimizer takes temporaries of the size of the model (torch's default on CUDA); else its
    # update is one kernel
    is_foreach: bool = False
    # after the backward pass of each microbatch, FSDP reduces gradients to shards and frees
    # gathered parameters. Else gradients stay whole, and parameters gathered, until the last one.
    # None: as torch, whose pipelines alone wait for the last one
    reduces_each: bool | None = None
    # a pipeline's stage has memory for what it receives of every microbatch, and the last one keeps
    # its logits until their backward pass
    has_stages_of_torch: bool = True
    last_unit_stays: bool = True  # FSDP does not free the last unit's parameters after forward
    # FSDP wraps the embedding, and the last norm with the logits, as units of their own, of which
    # it does not free the latter, as torchtitan does since 2025
    ends_are_units: bool = False
    # FSDP allocates its copy of a unit's gradients where it allocates their sums, on the stream of
    # its reduce-scatters, as torch did in 2024
    copies_on_reduce_stream: bool = False
    has_fused_attention: bool = True
    has_fused_norm: bool = True
    # the logits become their softmax in one fp32 copy, as in Megatron; else torch computes the
    # loss, by `loss_parallel` where ranks divide the logits
    has_loss_in_place: bool = False
    has_compiled_loss: bool = False  # torch.compile makes its gradient in another fp32 copy
    has_expandable_segments: bool = False  # a setting of CUDA's allocator
    keeps_logits: bool = False  # the loop holds the logits, in fp32, until those of the next step
    dropout: FactorOrZero = 0.0  # probability, of hidden states and of attention alike
    # rows of the embedding as allocated, over all tensor-parallel ranks; 0: as many as the model's
    # vocabulary, rounded up to a multiple of these ranks
    vocabulary: int = 0


class PlannedModel(Record):
    """A preset's architecture, or functions of a module of your own."""

    name: str
    architecture: Architecture | None = None
    module: str | None = None  # `module:function` that builds an `nn.Module`
    batch: str | None = None  # `module:function` of (microbatch, sequence) to its arguments
    tensor_plan: str | None = None  # `module:function` to a plan for `parallelize_module`


class Question(Record):
    """One strategy for one model."""

    model: PlannedModel
    training: TrainingSettings
    implementation: Implementation = Implementation()
    strategy: Strategy

    @property
    def has_fsdp(self) -> bool:
        """Whether `fully_shard` shards the model."""
        return self.strategy.sharding.startswith("fsdp")

    @property
    def reduces_each(self) -> bool:
        """Whether FSDP reduces the gradients of each microbatch."""
        strategy, asked = self.strategy, self.implementation.reduces_each
        return strategy.pipeline == 1 if asked is None else asked

    @property
    def num_microbatches(self) -> int:
        """Forward passes of a rank in an update; a PlanError where the batch does not divide so."""
        each = self.training.microbatch * self.strategy.data
        count, rest = divmod(self.training.global_batch, each)
        if rest or not count:
            raise PlanError(
                f"{self.strategy.name}: microbatches of {self.training.microbatch} on "
                f"{self.strategy.data} data-parallel ranks do not divide a global batch of "
                f"{self.training.global_batch}"
            )
        return count

    @property
    def microbatches_of_round(self) -> int:
        """Microbatches that pass a chunk before a rank of interleaved 1F1B turns to its next.

        A PlanError where torch's schedule does not allow so many.
        """
        total, ranks = self.num_microbatches, self.strategy.pipeline
        rounds = max(1, total // ranks)
        if total % rounds:
            raise PlanError(
                f"{self.strategy.name}: {total} microbatches do not divide into {rounds} rounds "
                f"over {ranks} ranks"
            )
        return total // rounds

    @property
    def ranks(self) -> list[int]:
        """The ranks to simulate: the first of the pipeline's first, second and last position.

        Inner ranks send both ways. The second has as many microbatches as any of them; where layers
        differ, the inner rank with most parameters is one, too.
        """
        stages = self.strategy.pipeline
        each = self.strategy.num_devices // stages
        sizes = [self._parameters_of(stage) for stage in range(1, stages - 1)]
        fullest = 1 + sizes.index(max(sizes)) if sizes else 0
        return [stage * each for stage in sorted({0, min(1, stages - 1), fullest, stages - 1})]

    def _parameters_of(self, rank: int) -> float:
        """Parameters of the layers of a pipeline's rank."""
        shape = self.model.architecture
        if shape is None:
            return 0
        layers = [n for s in self.strategy.stages_of(rank) for n in self.layers_of(s)]
        return sum(shape.parameters_of_layer(n) for n in layers)

    def layers_of(self, stage: int) -> range:
        """The range of a stage's layers: as many as the strategy lists, else split evenly."""
        shape = self.model.architecture
        total, stages = (shape.num_layers if shape else 0), self.strategy.num_stages
        sizes = self.strategy.layers_of_stages or layers_of_stages(total, stages)
        start = sum(sizes[:stage])
        return range(start, start + sizes[stage])

    def check(self) -> None:
        """Refuse a mesh that the model does not allow, by a PlanError of one line."""
        _ = self.num_microbatches
        if shape := self.model.architecture:
            self._refuse(_obstacles(self, shape))

    def check_simulation(self) -> None:
        """Refuse, as `check`, also what closed forms have and no simulation has."""
        self.check()
        if self.strategy.schedule == "interleaved":
            _ = self.microbatches_of_round
        shape = self.model.architecture
        self._refuse(_limits(self, shape) if shape else _missing_functions(self))

    def _refuse(self, reasons: Iterator[str]) -> None:
        for why in reasons:
            raise PlanError(f"{self.strategy.name}: {why}")


def _obstacles(question: Question, shape: Architecture) -> Iterator[str]:
    """Reasons for which a mesh does not divide a model with an architecture."""
    strategy, training = question.strategy, question.training
    # As in Megatron-LM, the first and the last of a rank's stages may have the ends alone.
    if strategy.num_stages > shape.num_layers + 2 * (strategy.chunks > 1):
        yield f"{shape.num_layers} layers do not make {strategy.num_stages} stages"
    parts = 2 * strategy.context if strategy.context > 1 else 1
    parts *= strategy.tensor if strategy.has_sequence_parallel else 1
    tensor, expert = f"{strategy.tensor} tensor-parallel ranks", f"{strategy.expert} ranks"
    # Ranks that divide the experts leave each of them whole.
    of_experts = strategy.tensor if strategy.expert == 1 else 1
    for size, ranks, count, what in (
        (strategy.tensor, tensor, shape.num_kv_heads, "heads of keys and values"),
        (strategy.tensor, tensor, shape.num_heads, "heads"),
        (of_experts, tensor, shape.ffn_size, "columns of the feed-forward network"),
        (strategy.tensor, tensor, shape.dense_size, "columns of layers without experts"),
        (strategy.tensor, tensor, shape.shared_size, "columns of the shared expert"),
        (strategy.tensor, tensor, shape.state_groups, "groups of a state space"),
        (strategy.expert, expert, shape.num_experts, "experts"),
        (strategy.expert, expert, strategy.ranks_of_stage, "ranks of a stage"),
        (parts, f"{parts} parts", training.sequence, "tokens of a sample"),
    ):
        if count % size:
            yield f"{ranks} do not divide {count} {what}"
    if "M" in shape.pattern and strategy.context > 1:
        yield "state spaces are planned without cp"


def _limits(question: Question, shape: Architecture) -> Iterator[str]:
    """Reasons for which no rank of a mesh is simulated, though closed forms know it."""
    strategy, training = question.strategy, question.training
    if training.adapter_rank:
        yield "LoRA is planned by closed forms alone"
    if shape.pattern:
        yield "layers of one part, such as state spaces, are planned by closed forms alone"
    if strategy.num_stages > shape.num_layers:
        yield "each simulated stage has layers"
    if strategy.expert > 1:
        is_plain = strategy.sharding != "none" and not strategy.reshards_to
        if not is_plain or strategy.replicas * strategy.tensor > 1:
            yield "ep is simulated with zero1, fsdp or fsdp-keep, and without tp"
        if strategy.num_summing % strategy.expert:
            yield "ep is simulated among ranks of the data axis"
        if strategy.sharding != "zero1" and training.checkpointing == "selective":
            yield "torch recomputes units of FSDP within a layer all or not at all"
    yield from _limits_of_layers(question, shape)


def _limits_of_layers(question: Question, shape: Architecture) -> Iterator[str]:
    """Reasons for which layers that few models have are not simulated on a mesh."""
    strategy, is_fused = question.strategy, question.implementation.has_fused_attention
    if strategy.context > 1 and not is_fused:
        yield "ring attention is a fused kernel"
    has_window = 0 < shape.window < question.training.sequence
    if (has_window or shape.has_sinks or shape.kv_rank) and (strategy.context > 1 or not is_fused):
        yield "windows, sinks and latent attention are simulated in a fused kernel and without cp"
    if strategy.tensor > 1 and (shape.kv_rank or shape.has_wide_query_key_norm):
        yield "latent attention, and norms over all heads, are simulated without tp"
    first = len(question.layers_of(0))
    if strategy.pipeline > 1 and (shape.expert_step > 1 or shape.num_dense_layers > first):
        yield "only the first stage of a simulated pipeline has layers without experts"


def _missing_functions(question: Question) -> Iterator[str]:
    """Reasons for which a mesh does not fit a model of one's own."""
    model, strategy = question.model, question.strategy
    if strategy.tensor > 1 and model.tensor_plan is None:
        yield "needs a plan of the model's layers (--tensor-plan)"
    if max(strategy.pipeline, strategy.context, strategy.expert) > 1:
        yield "pipelines, cp and ep are planned for presets alone"


_Fields = dict[str, object]
# A word of `--strategies`: its axis, what it sets besides, and what it does.
_DATA, _TENSOR, _STAGES = "data", "tensor", "pipeline"
_VIEWS: _Fields = {"sharding": "none", "has_bucket_views": True}
_SEQUENCE: _Fields = {"has_sequence_parallel": True}
_KEEPS = _SEQUENCE | {"keeps_gathered": True}
_AXES: dict[str, tuple[str, _Fields, str]] = {
    "ddp": (_DATA, {"sharding": "none"}, "replicates the model"),
    "ddp-view": (_DATA, _VIEWS, "replicates it; gradients are views of DDP's buckets"),
    "zero1": (_DATA, {"sharding": "zero1"}, "shards the optimizer's state"),
    "fsdp": (_DATA, {"sharding": "fsdp"}, "shards the model; fsdp.16.8: over 8 after forward"),
    "fsdp-keep": (_DATA, {"sharding": "fsdp-keep"}, "shards it, gathered until backward"),
    "hsdp": (_DATA, {"sharding": "fsdp"}, "hsdp.2.8: shards it within each of 2 replicas"),
    "cp": ("context", {}, "divides the sequence"),
    "ep": ("expert", {}, "divides the experts among ranks of a stage"),
    "tp": (_TENSOR, {}, "divides each layer"),
    "tp-sp": (_TENSOR, _SEQUENCE, "and the sequence between layers, as Megatron-LM does"),
    "tp-sp-keep": (_TENSOR, _KEEPS, "and keeps the gathered sequence, as torch does"),
    "gpipe": (_STAGES, {"schedule": "gpipe"}, "divides the layers into stages"),
    "1f1b": (_STAGES, {"schedule": "1f1b"}, "alternates forward and backward"),
    "interleaved": (
        _STAGES,
        {"schedule": "interleaved", "chunks": 2},
        "interleaved.8.4: four stages on each of 8 ranks, or two",
    ),
}
STRATEGY_WORDS = "\n".join(f"  {name:<13}{says}" for name, (*_, says) in _AXES.items())

# How many sizes a word has; others have one or none.
_NUM_SIZES = {"fsdp": (0, 1, 2), "hsdp": (2,), "ep": (1,), "interleaved": (0, 1, 2)}
_ALIASES = {  # of other programs
    "zero3": "fsdp", "zero-3": "fsdp", "zero2": "fsdp-keep", "zero-2": "fsdp-keep",
    "zero-1": "zero1", "dp": "ddp", "pp": "1f1b", "sp": "tp-sp",
}  # fmt: skip


def strategy_of(text: str, devices: int) -> Strategy:
    """The `Strategy` that a command line's name means on `devices`; a PlanError says what is wrong.

    `ddp`, `tp-sp`, `fsdp.4+tp.2`: words with the size of their axis; one word may leave its size
    out and takes the devices that remain. `interleaved` gives each rank 2 stages and
    `interleaved.8.4` each of 8 ranks 4, `hsdp.2.8` shards within each of 2 groups of 8, and
    `fsdp.16.8` reshards to groups of 8. The ranks of `ep.8` are among those of a stage. The name is
    written in these words: `zero3` is `fsdp`.
    """
    heads = (word.partition(".") for word in text.split("+"))
    text = "+".join(_ALIASES.get(name, name) + dot + sizes for name, dot, sizes in heads)
    if text == "single":
        return Strategy(name=text)
    sizes: dict[str, int] = {}
    free: list[str] = []
    fields: _Fields = {}
    for word in text.split("+"):
        axis, also, size = _parsed(word)
        if axis in (*sizes, *free):
            raise PlanError(f"{text}: two strategies for the {axis} axis")
        if size:
            sizes[axis] = size
        else:
            free.append(axis)
        fields |= also
    if len(free) > 1:
        raise PlanError(f"{text}: only one axis may leave its size out")
    product = prod(size for axis, size in sizes.items() if axis != "expert")
    if devices % product or (not free and product != devices):
        raise PlanError(f"{text}: its axes do not make {devices} devices")
    sizes |= dict.fromkeys(free, devices // product)
    return Strategy.model_validate({"name": text, **fields, **sizes})


def _parsed(word: str) -> tuple[str, _Fields, int]:
    """Parse a word: its axis, the other fields that it sets, and its size or 0."""
    name, *written = word.split(".")
    if name not in _AXES:
        raise unknown("strategy", word, ("single", *_AXES))
    axis, fields, _ = _AXES[name]
    sizes = [int(size) for size in written if size.isdecimal()]
    is_read = len(sizes) == len(written) and 0 not in sizes
    if not is_read or len(sizes) not in _NUM_SIZES.get(name, (0, 1)):
        raise PlanError(f"{word}: sizes are numbers, as in fsdp.16, fsdp.16.8, hsdp.2.8, ep.8")
    if name == "hsdp":
        return axis, fields | {"replicas": sizes[0]}, prod(sizes)
    if name == "interleaved" and len(sizes) == 2:
        return axis, fields | {"chunks": sizes[1]}, sizes[0]
    if len(sizes) == 2 and sizes[0] % sizes[1]:
        raise PlanError(f"{word}: groups of {sizes[1]} do not divide {sizes[0]} ranks")
    resharded = {"reshards_to": sizes[1]} if len(sizes) == 2 else {}
    return axis, fields | resharded, sizes[0] if sizes else 0
