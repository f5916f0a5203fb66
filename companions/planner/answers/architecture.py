"""Decoder-only transformers as public configurations describe them, and presets of some. No torch.

In: the numbers of a configuration file, and `content/planner/model_presets.yml`. Out:
`Architecture`, with the number of its parameters by a closed form, and `ModelPreset` by its id.
"""

from functools import cache
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import Field, TypeAdapter, model_validator

from proofbook.runners.core.declared.settings import Count
from proofbook.runners.core.trace.schema import Record
from proofbook.runners.system.book import ROOT

MOST_LAYERS, MOST_PARAMETERS = 1_000, 10**14  # no model that was published comes near
PRESETS = ROOT / "content" / "planner" / "model_presets.yml"

Id = Annotated[str, Field(pattern=r"^[a-z0-9]+([-.][a-z0-9]+)*$")]


def _rare(default: Any) -> Any:
    """Declare a field that few models have; a document leaves it out at its default."""
    least = None if isinstance(default, str) else 0
    return Field(default=default, ge=least, exclude_if=lambda value: value == default)


def check_bound(number: int, most: int, what: str) -> None:
    """Refuse, by a ValueError, a size that no model has, before anything is computed with it."""
    if number > most:
        raise ValueError(f"at most {most:,} {what} are planned")


class Architecture(Record):
    """Layers of attention and a feed-forward network, between an embedding and logits."""

    num_layers: Count
    hidden_size: Count
    num_heads: Count
    num_kv_heads: Count  # heads of keys and values; fewer than `num_heads` share them among queries
    ffn_size: Count  # width inside the feed-forward network, of one expert where there are several
    vocabulary: Count  # rows of the embedding, before any padding
    context_length: Count  # most positions; with learned positions also the rows of their embedding
    positions: Literal["learned", "rotary"]
    # with the `glu` ones the first matrix is two, one of which gates the other
    activation: Literal["gelu", "gelu_tanh", "relu2", "swiglu", "geglu", "clamped_swiglu"]
    norm: Literal["layernorm", "rmsnorm"]
    has_bias: bool  # linear layers have biases (norms of the kind `layernorm` always do)
    has_tied_embeddings: bool  # the logits use the embedding's matrix
    has_query_key_norm: bool = False  # queries and keys are normalized, head by head
    has_qkv_bias: bool = False  # the layers of queries, keys and values do, whatever the others do
    head_dim: int = 0  # width of one attention head; 0 where the heads make up the hidden size
    rotary_base: Count = 10_000  # of the angles of rotary positions (`rope_theta`)
    num_experts: Count = 1
    num_active_experts: Count = 1  # experts that each token passes through
    has_output_bias: bool = _rare(False)  # the layer after attention does
    has_ffn_bias: bool = _rare(False)  # feed-forward networks and their router do
    has_wide_query_key_norm: bool = _rare(False)  # they are so over all heads together
    # of attention and of the feed-forward network, where a norm is
    norm_places: Literal["before", "after", "both"] = _rare("before")
    has_fused_inputs: bool = _rare(False)  # queries, keys and values, or a gate's, of one matrix
    has_sinks: bool = _rare(False)  # each head has a parameter that takes a share of its attention
    window: int = _rare(0)  # tokens to which a token attends, itself included; 0 for all before it
    whole_step: int = _rare(0)  # every n-th layer attends without the window; 0 if none does
    value_dim: int = _rare(0)  # of one head's values; 0 where it is that of queries and keys
    rotary_size: int = _rare(0)  # elements of a head that rotary positions turn; 0 for all
    kv_rank: int = _rare(0)  # elements that keys and values are made of in latent attention, or 0
    query_rank: int = _rare(0)  # the same of queries; 0 where they are made from the hidden state
    shared_size: int = _rare(0)  # width of the network of all tokens beside experts; 0 for none
    has_shared_gate: bool = _rare(False)  # a sigmoid of each token weighs what that network returns
    num_dense_layers: int = _rare(0)  # the first ones, which have one network and no experts
    dense_size: int = _rare(0)  # width of that network
    expert_step: Count = _rare(1)  # of the other layers, each n-th, counted from 1, has experts
    # the only part of each layer, in models whose layers have one: M a state space (Mamba-2),
    # * attention, - a network, E experts
    pattern: str = _rare("")
    state_heads: int = _rare(0)  # of a state space
    state_head_size: int = _rare(0)  # elements of one head, of which each has a state
    state_size: int = _rare(0)  # elements of the state of one
    state_groups: int = _rare(0)  # of heads that share what is written to and read from states
    conv_size: int = _rare(0)  # tokens of the convolution before
    latent_size: int = _rare(0)  # elements of what experts compute with; 0 for the hidden size

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if not self.head_dim and self.hidden_size % self.num_heads:
            raise ValueError(f"{self.num_heads} heads do not divide a width of {self.hidden_size}")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"{self.num_kv_heads} heads of keys do not divide {self.num_heads}")
        if self.positions == "rotary" and self.head_size % 2:
            raise ValueError(f"rotary positions turn pairs, and a head has {self.head_size}")
        if self.pattern and (len(self.pattern) != self.num_layers or {*self.pattern} - {*"M*-E"}):
            raise ValueError(f"{self.pattern} has no letter of M*-E for each of the layers")
        check_bound(self.num_layers, MOST_LAYERS, "layers")
        check_bound(self.num_parameters, MOST_PARAMETERS, "parameters")
        if self.num_active_experts > self.num_experts:
            raise ValueError(f"{self.num_active_experts} of {self.num_experts} experts are active")
        return self

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.head_dim or self.hidden_size // self.num_heads

    def parts_of(self, layer: int) -> str:
        """The parts of a layer, by its number from 0: letters of `pattern`."""
        if self.pattern:
            return self.pattern[layer]
        is_one = layer >= self.num_dense_layers and (layer + 1) % self.expert_step == 0
        return "*E" if self.num_experts > 1 and is_one else "*-"

    def has_experts(self, layer: int) -> bool:
        """Whether a layer, by its number from 0, has experts."""
        return "E" in self.parts_of(layer)

    def window_of(self, layer: int) -> int:
        """Tokens to which each token of a layer attends; 0 for all before it."""
        return 0 if self.whole_step and (layer + 1) % self.whole_step == 0 else self.window

    @property
    def embedding_parameters(self) -> int:
        """Parameters of the token embedding, and as many of an untied output matrix."""
        return self.vocabulary * self.hidden_size

    @property
    def norm_parameters(self) -> int:
        """Parameters of a norm over the hidden size: a weight, and for `layernorm` a bias."""
        return self.hidden_size * self._norm_vectors

    @property
    def attention_parameters(self) -> int:
        """Number of parameters of a layer's attention: matrices, biases, its norms, sinks."""
        hidden, heads, size = self.hidden_size, self.num_heads, self.head_size
        queries, outputs = heads * size, heads * (self.value_dim or size)
        if self.kv_rank:
            rank, inputs = self.query_rank, self.query_rank + self.kv_rank + self.rotary_size
            expanded = heads * (size - self.rotary_size + self.value_dim)
            matrices = hidden * inputs + (rank or hidden) * queries + self.kv_rank * expanded
            norms = (rank + self.kv_rank) * self._norm_vectors
        else:
            keys = self.num_kv_heads * size
            inputs = queries + 2 * keys
            matrices = hidden * inputs
            normed = queries + keys if self.has_wide_query_key_norm else 2 * size
            norms = normed * self._norm_vectors * self.has_query_key_norm
        biases = inputs * (self.has_bias or self.has_qkv_bias)
        biases += hidden * (self.has_bias or self.has_output_bias)
        return matrices + outputs * hidden + biases + norms + heads * self.has_sinks

    @property
    def state_inner(self) -> int:
        """Width inside a state space, of all its heads."""
        return self.state_heads * self.state_head_size

    @property
    def state_inputs(self) -> int:
        """Width of what the first product of a state space gives: gates, inputs, B, C and steps."""
        return 2 * self.state_inner + 2 * self.state_groups * self.state_size + self.state_heads

    @property
    def state_parameters(self) -> int:
        """Parameters of a state space: two matrices, a convolution, a norm, three of each head.

        Source: Dao and Gu, “Transformers are SSMs”, 7; `Mamba2` of state-spaces/mamba.
        """
        inner, mixed = self.state_inner, self.state_inputs - self.state_inner - self.state_heads
        matrices = self.hidden_size * (self.state_inputs + inner)
        return matrices + mixed * (self.conv_size + 1) + inner + 3 * self.state_heads

    @property
    def expert_inputs(self) -> int:
        """Elements of a token that experts compute with."""
        return self.latent_size or self.hidden_size

    @property
    def expert_parameters(self) -> int:
        """Parameters of one expert's feed-forward network."""
        return self._network_parameters(self.ffn_size, self.expert_inputs)

    def _network_parameters(self, width: int, inputs: int) -> int:
        num_inner = 1 + ("glu" in self.activation)
        biases = num_inner * width + inputs
        return (num_inner + 1) * inputs * width + biases * (self.has_bias or self.has_ffn_bias)

    def parameters_of_layer(self, layer: int) -> int:
        """Parameters, in number, of a layer (from 0): of its parts, and of their norms."""
        parts, hidden = self.parts_of(layer), self.hidden_size
        total = len(parts) * (1 + (self.norm_places == "both")) * self.norm_parameters
        total += self.attention_parameters * ("*" in parts) + self.state_parameters * ("M" in parts)
        if "-" in parts:
            total += self._network_parameters(self.dense_size or self.ffn_size, hidden)
        if "E" in parts:
            router = hidden + self.has_ffn_bias
            total += self.num_experts * (self.expert_parameters + router)
            total += self._network_parameters(self.shared_size, hidden) if self.shared_size else 0
            total += hidden * (self.has_shared_gate + 2 * self.latent_size)
        return total

    @property
    def layer_parameters(self) -> int:
        """Parameters of the largest layer; see `parameters_of_layer` for any other."""
        return max(map(self.parameters_of_layer, range(self.num_layers)))

    @property
    def num_parameters(self) -> int:
        """Parameters of the whole model."""
        logits = 0 if self.has_tied_embeddings else self.embedding_parameters
        positions = self.context_length * self.hidden_size if self.positions == "learned" else 0
        ends = self.embedding_parameters + positions + self.norm_parameters + logits
        return sum(map(self.parameters_of_layer, range(self.num_layers))) + ends

    @property
    def active_parameters(self) -> int:
        """Parameters of the whole model through which one token passes."""
        num_mixtures = sum(map(self.has_experts, range(self.num_layers)))
        idle = (self.num_experts - self.num_active_experts) * self.expert_parameters
        return self.num_parameters - num_mixtures * idle

    @property
    def _norm_vectors(self) -> int:
        return 2 if self.norm == "layernorm" else 1


class Source(Record):
    """A place in a public repository."""

    repository: str  # owner and name on GitHub
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{7,40}$")]
    path: str
    field: str  # the function, table or key that states the values


class ModelPreset(Record):
    """One model that `plan` knows by name."""

    id: Id
    title: str
    architecture: Architecture
    source: Source


@cache
def model_presets() -> dict[str, ModelPreset]:
    """All presets by their id, in the order of the file; a ValueError where one is wrong."""
    document = yaml.safe_load(PRESETS.read_text(encoding="utf-8"))
    presets = TypeAdapter(list[ModelPreset]).validate_python(document["presets"])
    return {preset.id: preset for preset in presets}
