"""What each rank of a layout holds, computes and sends, by closed forms, before any simulation.

In: a `Question` of a preset or a configuration. Out: an `Answer` whose ranks have the fields that
simulated ones have, a few per cent beside them. A search orders its whole space by these, and
simulates the first few. No torch.

Formula: state + gathered units + activations of the microbatches in flight + logits, where a layer
keeps for each token what autograd saves of its norms, products and attention.
Source: Korthikanti et al., “Reducing Activation Recomputation in Large Transformer Models”, 4;
Rajbhandari et al., “ZeRO: Memory Optimizations Toward Training Trillion Parameter Models”, 3.
"""

from runners.planner.answers.answer import Answer
from runners.planner.answers.architecture import Architecture
from runners.planner.answers.plan_grid import GridRank
from runners.planner.answers.question import Question
from runners.simulate.log import AxisCalls
from runners.traces.measured import MemoryClasses

# Bytes of each parameter: its state in the optimizer, with an fp32 copy where there is one.
_STATE = {"adam": 8, "adam8bit": 2, "momentum": 4, "sgd": 0}
_WIDTHS = {"fp32": 2.0, "autocast": 1.5, "bf16-mixed": 1.0, "bf16": 1.0}  # of activations
_LOGIT = 12  # bytes of each logit: in 16 bits, in 32, and their gradients
_LOGIT_MORE = 5  # that torch keeps where ranks divide the logits, or a schedule holds them
_KEPT = {"none": 1.0, "selective": 0.6, "all": 0.0}  # of a layer's activations
KEPT_BYTES = 16
_FRAGMENTS = 1.02  # reserved bytes next to allocated ones, where no stream but one allocates


def answer(question: Question, kept_bytes: int = KEPT_BYTES) -> Answer:
    """The ranks that a simulation would have: the first, the second and the last stage.

    Args:
        question: of a model with an architecture.
        kept_bytes: for each element of a hidden state, that autograd keeps of a layer beside its
            feed-forward network, in 16 bits; other programs than ours keep more.

    Raises:
        PlanError: the global batch does not divide so.
    """
    strategy = question.strategy
    each = strategy.num_devices // strategy.pipeline
    ranks = [_Rank(question, rank // each, rank, kept_bytes).found() for rank in question.ranks]
    return Answer.model_construct(question=question, reason=None, ranks=ranks, seconds=0.0)


class _Rank:
    """One rank, whose properties are the terms of the forms."""

    def __init__(self, question: Question, stage: int, number: int, kept_bytes: int) -> None:
        self._question, self._stage, self._number = question, stage, number
        self._kept_bytes = kept_bytes
        self._strategy, self._training = question.strategy, question.training
        shape = question.model.architecture
        assert shape is not None
        self._shape: Architecture = shape
        self._layers = [n for s in self._strategy.stages_of(stage) for n in question.layers_of(s)]
        self._is_first = stage == 0
        self._is_last = stage == self._strategy.pipeline - 1
        self._tokens = self._training.microbatch * self._training.sequence // self._strategy.context
        self._num = question.num_microbatches
        self._shards_all = self._strategy.sharding.startswith("fsdp")

    def found(self) -> GridRank:
        """The rank with the fields of a simulated one."""
        reserved = round(self._memory_bytes)
        held = self._parameters / (self._strategy.shards if self._shards_all else 1)
        return GridRank.model_construct(
            rank=self._number,
            peak_bytes=reserved,
            peak_phase=None,
            at_peak=MemoryClasses.model_construct(),
            between_steps_bytes=reserved,
            allocated_bytes=reserved,
            reserved_bytes=reserved,
            num_parameters=round(held),
            flops=round(self._flops),
            sent_bytes=0,
            calls=self._calls,
        )

    @property
    def _ends(self) -> int:
        """Parameters of the embedding and the logits that this stage has."""
        num = self._is_first + self._is_last
        tied = num == 2 and self._shape.has_tied_embeddings
        return self._shape.embedding_parameters * (num - tied)

    @property
    def _parameters(self) -> float:
        """Of this rank, before data parallelism shards them."""
        layers = sum(map(self._shape.parameters_of_layer, self._layers))
        return (layers + self._ends) / self._strategy.tensor

    @property
    def _memory_bytes(self) -> float:
        """At the peak: while the last layers' activations are there, or once gradients are."""
        whole, gradients = self._state
        held = self._activations * self._in_flight + self._logits + self._one_layer
        wide = self._question.implementation.has_wide_gradients  # which stay between steps
        both = wide or self._num > 1
        peak = held + gradients if both else max(held, gradients + self._one_layer)
        return _FRAGMENTS * (whole + peak) + self._gathered

    @property
    def _state(self) -> tuple[float, float]:
        """Bytes of parameters and optimizer, and of gradients."""
        training, strategy, own = self._training, self._strategy, self._parameters
        optimizer = float(_STATE[training.optimizer])
        wide = 4 * self._question.implementation.has_wide_gradients
        match training.precision:
            case "bf16":
                parameter, gradient, optimizer = 2, 2, optimizer / 2
            case "bf16-mixed" if not self._shards_all:
                parameter, gradient, optimizer = 2, 2 + wide, optimizer + 4
            case _:
                parameter, gradient = 4, 4
        shards = strategy.shards
        if self._shards_all:
            return own * (parameter + optimizer) / shards, own * gradient / shards
        copies = 4 * own if self._copies_gradients else 0.0
        return own * (parameter + optimizer / shards) + copies / 2, own * gradient

    @property
    def _copies_gradients(self) -> bool:
        """Whether DDP's buckets are beside the gradients."""
        strategy = self._strategy
        is_plain = strategy.sharding == "none" and strategy.num_summing > 1
        return is_plain and not strategy.has_bucket_views and strategy.pipeline == 1

    @property
    def _gathered(self) -> float:
        """Units that FSDP has gathered, with their gradients before and while these are reduced."""
        if not self._shards_all:
            return 0.0
        low = 4 if self._training.precision in ("fp32", "autocast") else 2
        layer = self._shape.layer_parameters / self._strategy.tensor / self._strategy.expert
        ends = self._ends / self._strategy.tensor
        units = (2 * low + low + 4) * layer + (2 * low + 4) * ends
        kept = self._strategy.sharding == "fsdp-keep" or self._strategy.reshards_to
        return units + (low * len(self._layers) * layer if kept else 0)

    @property
    def _layer_bytes(self) -> float:
        """What autograd keeps of one layer for a microbatch."""
        shape, strategy = self._shape, self._strategy
        heads = shape.num_heads * shape.head_size
        inner = 8 if "glu" in shape.activation else 4
        ffn = inner * (shape.ffn_size * shape.num_active_experts + shape.shared_size)
        moved = 8 * shape.hidden_size * shape.num_active_experts if shape.num_experts > 1 else 0
        divided = (self._kept_bytes - 8) * heads + ffn
        whole = 8 * shape.hidden_size  # what norms keep and give on
        share = strategy.tensor if strategy.has_sequence_parallel else 1
        gathered = 4 * shape.hidden_size if strategy.keeps_gathered else 0
        kept = divided / strategy.tensor + whole / share + gathered + moved
        return kept * self._tokens * _WIDTHS[self._training.precision]

    @property
    def _activations(self) -> float:
        """Of the layers of one microbatch; with checkpointing their inputs, and one layer whole."""
        share = self._strategy.tensor if self._strategy.has_sequence_parallel else 1
        inputs = 2 * self._tokens * self._shape.hidden_size / share
        inputs *= _WIDTHS[self._training.precision]
        kept = _KEPT[self._training.checkpointing]
        return len(self._layers) * max(kept * self._layer_bytes, inputs)

    @property
    def _one_layer(self) -> float:
        """Of a layer that is computed again."""
        return self._layer_bytes if self._training.checkpointing != "none" else 0.0

    @property
    def _logits(self) -> float:
        each = self._tokens * self._shape.vocabulary / self._strategy.tensor
        parts = self._training.loss_chunks
        others = self._num - 1 if self._strategy.schedule == "gpipe" else 0
        in_place = self._question.implementation.has_loss_in_place
        keeps_more = self._strategy.tensor * self._strategy.pipeline > 1 and not in_place
        size = (
            (_LOGIT + _LOGIT_MORE * keeps_more) / parts + (2 if parts > 1 else 0) + others * 4
        )  # whose softmax is kept
        return self._is_last * each * size

    @property
    def _in_flight(self) -> float:
        """Microbatches whose activations a stage holds at once."""
        strategy, total = self._strategy, self._num
        match strategy.schedule:
            case "gpipe":
                return total
            case "1f1b":
                return min(total, strategy.pipeline - self._stage)
            case "interleaved":
                ahead = 2 * (strategy.pipeline - self._stage - 1)
                rounds = (strategy.chunks - 1) * strategy.pipeline
                return min(total, (ahead + rounds + 1) / strategy.chunks)
        return 1

    @property
    def _flops(self) -> float:
        """Of a step: 6 for each weight and token, causal attention, and what is computed again."""
        shape, training = self._shape, self._training
        idle = (shape.num_experts - shape.num_active_experts) * shape.expert_parameters
        layers = 0
        for layer in self._layers:
            seen = min(shape.window_of(layer) * 2 or training.sequence, training.sequence)
            weights = shape.parameters_of_layer(layer) - idle * shape.has_experts(layer)
            layers += 6 * (weights + shape.num_heads * shape.head_size * seen)
        again = {"none": 0.0, "selective": 1 / 6, "all": 1 / 3}[training.checkpointing]
        head = self._is_last * 6 * shape.embedding_parameters
        return self._num * self._tokens * (layers * (1 + again) + head) / self._strategy.tensor

    @property
    def _calls(self) -> list[AxisCalls]:
        strategy, training, shape = self._strategy, self._training, self._shape
        low = 4 if training.precision == "fp32" else 2
        found: list[tuple[str, str, int, float]] = []
        hidden = low * self._tokens * shape.hidden_size
        if strategy.tensor > 1:
            # Of each layer two sums forward and two backward, as a gather and a scatter each;
            # torch's own keeps what it gathered, Megatron's gathers once more.
            again = training.checkpointing == "all"
            gathers = 5 if strategy.keeps_gathered else 6
            each = hidden * len(self._layers) * self._num
            found += [
                ("all_gather", "tensor", strategy.tensor, each * (gathers + 2 * again)),
                ("reduce_scatter", "tensor", strategy.tensor, each * (4 + again)),
            ]
        if strategy.context > 1:
            keys = 2 * low * self._tokens * shape.num_kv_heads * shape.head_size / strategy.tensor
            ring = 3 * keys * (strategy.context - 1) * len(self._layers) * self._num
            found.append(("all_to_all", "context", strategy.context, ring))
        if strategy.expert > 1:
            moved = 4 * hidden * shape.num_active_experts * len(self._layers) * self._num
            found.append(("all_to_all", "expert", strategy.expert, moved))
        if strategy.pipeline > 1:
            both = 2 - (self._is_first or self._is_last)
            sent = both * self._num * strategy.chunks * hidden / strategy.tensor
            found.append(("send", "pipeline", strategy.pipeline, sent))
        found += self._data_calls(self._parameters, low)
        return [
            AxisCalls(operation=one, axis=axis, num_ranks=ranks, count=1, bytes=round(size))
            for one, axis, ranks, size in found
        ]

    def _data_calls(self, own: float, low: int) -> list[tuple[str, str, int, float]]:
        """What data parallelism sends in a step."""
        strategy, ranks = self._strategy, self._strategy.num_summing
        wide = 4 if self._question.implementation.has_wide_gradients else low
        if ranks == 1:
            return []
        if strategy.sharding == "none":
            return [("all_reduce", "data", ranks, own * wide)]
        if strategy.sharding == "zero1":
            return [
                ("reduce_scatter", "data", ranks, own * wide),
                ("all_gather", "data", ranks, own * low),
            ]
        axis = "shards" if strategy.replicas > 1 else "data"
        gathers = 1 if strategy.sharding == "fsdp-keep" else 2
        found = [
            ("all_gather", axis, strategy.shards, gathers * self._num * own * low),
            ("reduce_scatter", axis, strategy.shards, self._num * own * 4),
        ]
        if strategy.replicas > 1:
            found.append(("all_reduce", "replicas", strategy.replicas, own * 4 / strategy.shards))
        return found
