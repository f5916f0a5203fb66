"""What each rank of a layout holds, computes and sends, by closed forms, before any simulation.

In: a `Question` of a preset or a configuration. Out: a `PlanAnswer` whose ranks have the fields
of simulated ones: FLOPs within 1 %, bytes that are sent within 1.5 % (a quarter too many where
1F1B, sequence parallelism and selective checkpointing meet), memory mostly within 10 %. A search
orders its whole space by these, and simulates the first few. No torch.

Formula: state + gathered units + activations of the microbatches in flight + logits, where a layer
keeps for each token what autograd saves of its norms, products and attention; and free segments of
CUDA's caching allocator that are too small for what comes later.
Source: Korthikanti et al., “Reducing Activation Recomputation in Large Transformer Models”, 4;
Rajbhandari et al., “ZeRO: Memory Optimizations Toward Training Trillion Parameter Models”, 3.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from math import prod

from proofbook.companions.planner.answers.answer import PlanAnswer
from proofbook.companions.planner.answers.plan_grid import GridRank
from proofbook.companions.planner.answers.question import Question
from proofbook.runners.core.trace.measured import MemoryClasses
from proofbook.runners.simulate.log import RESHARDED, AxisCalls

_Call = tuple[str, str, int, float]  # operation, axis, ranks, and bytes of a step
_STATE = {"adam": 8, "adam8bit": 2, "momentum": 4, "sgd": 0}  # bytes of each parameter
# Bytes of a frozen parameter: in 4 bits with constants that are quantized, too (0.127 bits).
# Source: Dettmers et al., “QLoRA: Efficient Finetuning of Quantized LLMs”, 3.
_FROZEN = {16: 2.0, 8: 1.0, 4: (4 + 0.127) / 8}
_WIDTHS = {"fp32": 2.0, "autocast": 1.5, "bf16-mixed": 1.0, "bf16": 1.0}  # of activations


def answer(question: Question) -> PlanAnswer:
    """The ranks that a simulation would have; a PlanError where the batch does not divide."""
    each = question.strategy.num_devices // question.strategy.pipeline
    ranks = [_Rank(question, rank // each).grid_rank(rank) for rank in question.ranks]
    return PlanAnswer.model_construct(
        question=question, reason=None, ranks=ranks, seconds=0.0, is_simulated=False
    )


class _Rank:
    """A rank; each method is a term of the closed forms."""

    def __init__(self, question: Question, stage: int) -> None:
        strategy, training = question.strategy, question.training
        shape = question.model.architecture
        assert shape is not None
        self._question, self._stage = question, stage
        self._strategy, self._training, self._shape = strategy, training, shape
        layers = [n for s in strategy.stages_of(stage) for n in question.layers_of(s)]
        firsts: dict[tuple[str, int], int] = {}
        kinds = ((shape.parts_of(n), shape.window_of(n)) for n in layers)
        # How many layers there are of a kind, by the first of them.
        self._kinds = Counter(map(firsts.setdefault, kinds, layers))
        self._last, self._num = max(layers, default=0), question.num_microbatches
        self._is_last = stage == strategy.pipeline - 1
        self._ends = (stage == 0) + self._is_last  # of the model, which this stage has
        self._neighbours = 2 * strategy.chunks - self._ends  # stages that send to those of the rank
        self._shards_all = strategy.sharding.startswith("fsdp")
        self._is_mixed = training.precision == "bf16-mixed"
        self._is_wide = question.implementation.has_wide_gradients
        # Bytes of what a product gives, a parameter that computes, and a gradient that is summed.
        self._low = 4 if training.precision == "fp32" else 2
        self._parameter = 2 if training.precision.startswith("bf16") else 4
        is_wide = self._is_wide or (self._shards_all and self._is_mixed)
        self._gradient = 4 if is_wide else self._parameter
        self._width = _WIDTHS[training.precision]
        self._tokens = training.microbatch * training.sequence // strategy.context
        self._hidden = self._tokens * shape.hidden_size
        self._own = self._hidden / (strategy.tensor if strategy.has_sequence_parallel else 1)
        self._routed = self._hidden if strategy.expert == 1 else self._own  # what experts receive
        self._logits = self._is_last * self._tokens * shape.vocabulary / strategy.tensor
        self._embedding = shape.embedding_parameters / strategy.tensor * (self._ends > 0)
        matrices = 1 if shape.has_tied_embeddings and self._ends else self._ends
        self._others = self._embedding * matrices  # parameters that no layer has
        self._others += shape.norm_parameters * self._is_last
        self._parameters = self._sum(shape.parameters_of_layer) / strategy.tensor + self._others
        self._experts = self._sum(lambda layer: self._units(layer)[0])
        self._undivided = self._sum(lambda layer: self._units(layer)[1]) + self._others
        self._in_layers = self._experts + self._undivided - self._others
        self._trains_all = not training.adapter_rank
        # What trains on this rank: experts that ranks divide, and others; all, or adapters alone.
        self._trained = self._experts, self._undivided
        self._optimized = self._parameters
        # Bytes of a parameter of a layer's matrices.
        self._layer_parameter: float = self._parameter
        if training.adapter_rank:
            self._trained = 0.0, self._sum(self._adapters)
            self._optimized = sum(self._trained)
            self._layer_parameter = _FROZEN[training.frozen_bits]

    def grid_rank(self, number: int) -> GridRank:
        """The rank as a grid records it, with the fields of a simulated one."""
        reserved = round(self._memory_bytes())
        always, optimizer, gradients = self._state()
        # Gradients may lie where activations were.
        gradients = min(gradients, reserved - always - optimizer)
        at_peak = MemoryClasses.model_construct(
            parameters_bytes=round(always),
            gradients_bytes=round(gradients),
            optimizer_bytes=round(optimizer),
            activations_bytes=round(reserved - always - optimizer - gradients),
            buckets_bytes=0,
            buffers_bytes=0,
        )
        held = self._experts + self._undivided
        if self._shards_all:
            held = self._parameters / self._strategy.shards
        units = self._num * self._kinds.total()  # that FSDP gathers for backward
        calls = [
            AxisCalls(operation=name, axis=axis, num_ranks=ranks, count=count, bytes=round(size))
            for name, axis, ranks, size in (*self._calls(), *self._data_calls())
            if ranks > 1 and size
            for count in (units if axis == RESHARDED else 1,)
        ]
        return GridRank.model_construct(
            rank=number,
            peak_bytes=reserved,
            peak_phase=None,
            at_peak=at_peak,
            between_steps_bytes=reserved,
            allocated_bytes=reserved,
            reserved_bytes=reserved,
            num_parameters=round(held),
            flops=round(self.flops()),
            sent_bytes=0,
            calls=calls,
        )

    def _sum(self, of: Callable[[int], float]) -> float:
        return sum(count * of(layer) for layer, count in self._kinds.items())

    def _units(self, layer: int) -> tuple[float, float]:
        """Parameters of a layer that FSDP gathers: experts, where ranks divide them, and others."""
        divided = self._shape.num_experts * self._shape.expert_parameters
        divided *= self._strategy.expert > 1 and self._shape.has_experts(layer)
        others = self._shape.parameters_of_layer(layer) - divided
        return divided / self._strategy.expert, others / self._strategy.tensor

    def _adapters(self, layer: int) -> float:
        """Parameters of LoRA beside each matrix of a layer on this rank, those of all its experts.

        Source: Hu et al., “LoRA: Low-Rank Adaptation of Large Language Models”, 4.1.
        """
        shape, strategy = self._shape, self._strategy
        own = sum(inputs + outputs for inputs, outputs in self._products(layer))
        if shape.has_experts(layer):
            idle = shape.num_experts / strategy.expert - shape.num_active_experts
            width = shape.ffn_size / (strategy.tensor if strategy.expert == 1 else 1)
            own += idle * (2 + ("glu" in shape.activation)) * (shape.expert_inputs + width)
        return self._training.adapter_rank * own

    # --- memory

    def _memory_bytes(self) -> float:
        """Bytes that the allocator reserves at the peak.

        A block lies where others were, if these were as large: gradients where activations were,
        and where the loss was but for the optimizer's state, which came while they were there.
        """
        always, optimizer, gradients = self._state()
        again = 0.0  # of a layer that is computed again
        if self._training.checkpointing != "none":
            again = max((self._layer_bytes(n, "none") for n in self._kinds), default=0.0)
        activations = self._sum(lambda n: self._layer_bytes(n, self._training.checkpointing))
        activations = activations * self._in_flight() + again
        if self._strategy.pipeline > 1 and self._question.implementation.has_stages_of_torch:
            activations += self._num * self._neighbours * 2 * self._own * self._width  # to receive
        hole = self._low * self._logits  # where the logits were before they became fp32
        largest = 4 * self._logits / self._training.loss_chunks
        if self._shards_all:
            return always + gradients + self._fsdp_bytes(optimizer, activations, hole, largest)
        loss = self._loss() + hole
        is_large = (
            0 < largest < self._parameter * self._embedding
        )  # which no block of the loss holds
        if self._is_wide or self._num > 1 or is_large:
            peak = loss + activations + gradients
        else:
            displaced = min(gradients, optimizer)
            peak = max(loss + max(activations, displaced + again), gradients + again)
        copy = 4 * self._embedding / self._strategy.shards * self._is_mixed  # of a gradient
        return always + optimizer + peak + copy * (copy > largest) * self._trains_all

    def _fsdp_bytes(self, optimizer: float, held: float, hole: float, largest: float) -> float:
        """Bytes of activations, gathered units, and copies of their gradients.

        FSDP has three streams, and a block of one is not given to another: what is gathered, and
        what remains of gradients, add to the peak of all others.
        """
        trains, others = self._trains_all, self._parameter * self._others
        num = max((sum(self._units(n)) for n in self._kinds), default=0.0)
        layer, layers = self._layer_parameter * num, self._layer_parameter * self._in_layers
        copy = 4 * max(num, self._others) * trains  # of a gradient
        keeps = self._strategy.sharding == "fsdp-keep"
        if not self._question.reduces_each:  # gradients stay whole until the last microbatch
            held += 4 * sum(self._trained)
        of_loss = held + self._loss() + (layers + others if keeps else layer)
        of_loss += copy * (copy > largest)
        of_loss += others * trains * (self._parameter * self._embedding > largest)
        of_loss += max(optimizer, hole + others * (not keeps))  # which lies in such holes
        of_layer = held + optimizer + 4 * num * trains + (1 + trains) * layer + 2 * others
        summed = copy / self._strategy.shards * (self._num > 1)
        return layer + max(others, layer) + summed + max(of_loss, of_layer)

    def _state(self) -> tuple[float, float, float]:
        """Bytes of parameters with copies and DDP's buckets, of the optimizer, and of gradients."""
        training, strategy, own = self._training, self._strategy, self._optimized
        is_halved = training.precision == "bf16" and training.optimizer != "adam8bit"
        optimizer = _STATE[training.optimizer] * own / (1 + is_halved) / strategy.shards
        frozen = 0.0
        if not self._trains_all:  # all shards divide all experts; else a rank has its own
            layers = self._parameters - self._others if self._shards_all else self._in_layers
            frozen = self._layer_parameter * layers + self._parameter * self._others
        if self._shards_all:
            parameter = 4 if self._is_mixed else self._parameter
            shard = own / strategy.shards
            always = shard * parameter + frozen / strategy.shards
            return always, optimizer, shard * self._gradient
        whole = sum(self._trained)
        gradients = whole * self._gradient
        if self._layer_parameter < _FROZEN[16]:  # the widest matrix in 16 bits, to compute with
            frozen += 2 * max(prod(sizes) for n in self._kinds for sizes in self._products(n))
        always = frozen + whole * self._parameter + own * 4 * self._is_mixed / strategy.shards
        is_ddp = strategy.sharding == "none" and strategy.num_summing > 1 == strategy.pipeline
        if not is_ddp or self._is_wide:
            return always, optimizer, gradients
        return always + gradients, optimizer, gradients * (not strategy.has_bucket_views)

    def _networks(self, layer: int) -> list[tuple[int, int]]:
        """Inputs and widths of the feed-forward networks that a token passes."""
        shape, hidden = self._shape, self._shape.hidden_size
        if not shape.has_experts(layer):
            width = shape.dense_size or shape.ffn_size
            return [(hidden, width)] if "-" in shape.parts_of(layer) else []
        shared = [(hidden, shape.shared_size)] if shape.shared_size else []
        return [(shape.expert_inputs, shape.ffn_size)] * shape.num_active_experts + shared

    def _products(self, layer: int) -> list[tuple[float, float]]:
        """Inputs and outputs of a token in a layer's products on this rank, in their order."""
        shape, is_gated = self._shape, "glu" in self._shape.activation
        tensor, hidden, parts = self._strategy.tensor, shape.hidden_size, shape.parts_of(layer)
        heads, keys = (n * shape.head_size / tensor for n in (shape.num_heads, shape.num_kv_heads))
        first = [heads, keys, keys] if is_gated else [heads + 2 * keys]
        products = [*[(hidden, width) for width in first], (heads, hidden)] * ("*" in parts)
        state = [(hidden, shape.state_inputs / tensor), (shape.state_inner / tensor, hidden)]
        products += state * ("M" in parts)
        products += [(hidden, shape.num_experts)] * ("E" in parts)
        if shape.latent_size and "E" in parts:
            products += [(hidden, shape.latent_size), (shape.latent_size, hidden)]
        for inputs, width in self._networks(layer):
            products += [*[(inputs, width / tensor)] * (1 + is_gated), (width / tensor, inputs)]
        return products

    def _layer_bytes(self, layer: int, checkpointing: str) -> float:
        """Bytes that autograd keeps of one layer for a microbatch."""
        shape, tensor, own = self._shape, self._strategy.tensor, self._own
        parts, heads = shape.parts_of(layer), shape.num_heads * shape.head_size
        heads *= "*" in parts
        kept = 2 * own
        if checkpointing == "selective":  # each other product, and what attention returns
            outputs = heads / tensor + sum(width for _, width in self._products(layer)[::2])
            kept += 2 * self._tokens * outputs
        elif checkpointing == "none":
            widths = sum(width for _, width in self._networks(layer))
            inner = (8 if "glu" in shape.activation else 4) * widths + 8 * heads
            # Of a state space what its first product gives, and what the scan gives: without its
            # gate, with it as its norm's input, and behind that norm. Source: `MambaMixer` of
            # Megatron-LM (d98e8a64d), `MambaSplitConv1dScanCombinedFn` and `RMSNorm` of
            # state-spaces/mamba (e9594ce1c). The latter's own `Mamba2` keeps two of them less.
            inner += 2 * (shape.state_inputs + 3 * shape.state_inner) * ("M" in parts)
            kept += self._tokens * inner / tensor
            whole = self._hidden if self._strategy.keeps_gathered else own
            kept += 2 * own * (len(parts) - 1)  # of norms, as the next line
            kept += sum(2 * (self._routed if part == "E" else whole) for part in parts)
            kept += 6 * self._sent_to_experts() * ("E" in parts)  # there and back
        return kept * self._width + self._kept_beside() * (checkpointing == "none")

    def _sent_to_experts(self) -> float:
        """Elements of a microbatch that a layer sends to experts."""
        shape = self._shape
        return self._routed * shape.expert_inputs / shape.hidden_size * shape.num_active_experts

    def _kept_beside(self) -> float:
        """Bytes that a layer keeps for dropout, and for scores of attention that is no kernel."""
        implementation = self._question.implementation
        has_dropout = implementation.dropout > 0
        masks = 2 * self._own * has_dropout  # of a byte an element
        if implementation.has_fused_attention:
            return masks
        scores = self._tokens * self._training.sequence * self._shape.num_heads
        return masks + (self._low + (1 + self._low) * has_dropout) * scores / self._strategy.tensor

    def _loss(self) -> float:
        """Bytes of the logits, of their copies in fp32, and of those that stay until the loss."""
        strategy, implementation = self._strategy, self._question.implementation
        size = 12 if strategy.tensor == 1 else 16
        if implementation.has_loss_in_place:
            size = 4 + 4 * implementation.has_compiled_loss
        stays = self._low * (strategy.pipeline > 1) * implementation.has_stages_of_torch
        stays += 4 * implementation.keeps_logits
        others = self._num - 1 if strategy.schedule == "gpipe" else 0
        parts = self._training.loss_chunks
        return self._logits * (size / parts + stays + others * (4 + self._low))

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
                together = -(-total // max(1, total // strategy.pipeline))
                rounds = (strategy.chunks - 1) * together
                return min(total, (ahead + rounds + 1) / strategy.chunks)
        return 1

    # --- FLOPs and bytes that are sent

    def flops(self) -> float:
        """FLOPs of a step."""
        head = self._is_last * 6 * self._shape.embedding_parameters / self._strategy.tensor
        layers = self._sum(self._layer_flops)
        return self._num * self._tokens * (layers + head)

    def _layer_flops(self, layer: int) -> float:
        """FLOPs of a token: 6 for each weight, attention, and recomputation."""
        shape, which = self._shape, self._training.checkpointing
        idle = (shape.num_experts - shape.num_active_experts) * shape.expert_parameters
        weights = shape.parameters_of_layer(layer) - idle * shape.has_experts(layer)
        length, window = self._training.sequence, shape.window_of(layer)
        attended = length - max(0, length - window) ** 2 / length if window else length
        is_kept = which == "none" or (which == "selective" and self._strategy.context == 1)
        # A kernel computes its scores again in backward, which makes 7 operations of 6.
        parts, heads = shape.parts_of(layer), shape.num_heads * shape.head_size
        scores = (7 + 2 * (not is_kept)) * heads * attended * ("*" in parts)
        # Writing to a state and reading from it, forward and twice backward.
        scores += 12 * shape.state_inner * shape.state_size * ("M" in parts)
        # Nothing but the router's weights needs what the last product gave.
        end = None if shape.has_experts(layer) else -1
        again = {"none": slice(0), "selective": slice(1, end, 2), "all": slice(end)}[which]
        products = sum(inputs * outputs for inputs, outputs in self._products(layer)[again])
        # Each weight forward, for its input's gradient, and for its own unless it is frozen.
        passes = 6 if self._trains_all else 4
        return (passes * weights + scores) / self._strategy.tensor + 2 * products

    def _calls(self) -> Iterator[_Call]:
        """Calls of all axes but data; norms and the loss, a few bytes a token, are left out."""
        strategy, shape, low = self._strategy, self._shape, self._low
        hidden, layers = low * self._hidden * self._num, self._kinds.total()
        of_experts, again = self._sum(shape.has_experts), self._training.checkpointing != "none"
        parts = self._sum(lambda layer: len(shape.parts_of(layer)))
        # Of each part a sum forward and one backward; one of the embedding and of the logits.
        sums = hidden * (2 * parts + again * layers + self._ends)
        if strategy.has_sequence_parallel:
            # A sum is a gather and a scatter; Megatron's products gather their inputs once more.
            more = 0 if strategy.keeps_gathered else parts - of_experts + self._is_last
            gathers = sums + hidden * (more + again * layers)
            yield "all_gather", "tensor", strategy.tensor, gathers
            yield "reduce_scatter", "tensor", strategy.tensor, sums
        else:
            yield "all_reduce", "tensor", strategy.tensor, sums
        keys = 2 * shape.num_kv_heads * shape.head_size / strategy.tensor
        passed = keys * self._tokens * self._num * strategy.context * layers
        yield "all_gather", "context", strategy.context, (2 + again) * low * passed
        yield "all_to_all", "context", strategy.context, 4 * passed  # of gradients, in fp32
        moved = (4 + 2 * again) * low * self._sent_to_experts() * self._num * of_experts
        yield "all_to_all", "expert", strategy.expert, moved
        if strategy.pipeline > 1:
            sent = 2 * self._own * self._width * self._num
            yield "send", "pipeline", strategy.pipeline, self._neighbours * sent
            if shape.has_tied_embeddings and self._embedding:
                shards = strategy.shards if self._shards_all else 1
                yield "all_reduce", "embedding", 2, self._embedding / shards * self._gradient

    def _data_calls(self) -> Iterator[_Call]:
        strategy, ranks, (experts, others) = (
            self._strategy,
            self._strategy.num_summing,
            self._trained,
        )
        of_experts = strategy.shards if self._shards_all else ranks
        of_experts = of_experts * strategy.tensor // strategy.expert
        if self._shards_all:
            axis, shards = "shards" if strategy.replicas > 1 else "data", strategy.shards
            last = self._units(self._last)
            yield from self._fsdp_calls("expert_data", of_experts, self._experts, last[0], experts)
            yield from self._fsdp_calls(axis, shards, self._undivided, last[1], others)
            summed = self._optimized * self._gradient / shards
            yield "all_reduce", "replicas", strategy.replicas, summed
            return
        for axis, num, whole in (("data", ranks, others), ("expert_data", of_experts, experts)):
            if strategy.sharding == "none":
                yield "all_reduce", axis, num, whole * self._gradient
            else:
                yield "reduce_scatter", axis, num, whole * self._gradient
                yield "all_gather", axis, num, whole * self._parameter

    def _fsdp_calls(
        self, axis: str, ranks: int, whole: float, stays: float, trained: float
    ) -> Iterator[_Call]:
        """Calls of FSDP: each unit is gathered forward and backward, the last layer's once."""
        strategy, times = self._strategy, self._num if self._question.reduces_each else 1
        again = self._num * (whole - stays) * (strategy.sharding == "fsdp")
        after = (RESHARDED, strategy.reshards_to) if strategy.reshards_to else (axis, ranks)
        yield "all_gather", axis, ranks, self._layer_parameter * times * whole
        yield "all_gather", *after, self._layer_parameter * again
        yield "reduce_scatter", axis, ranks, self._gradient * times * trained
