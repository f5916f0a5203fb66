"""Decoder-only transformers as public configurations describe them, and presets of some. No torch.

In: the numbers of a configuration file, and `content/planner/model_presets.yml`. Out:
`Architecture`, with the number of its parameters by a closed form, and `ModelPreset` by its id.
"""

from functools import cache
from typing import Annotated, Literal, Self

import yaml
from pydantic import Field, TypeAdapter, model_validator

from runners.declared.settings import Count
from runners.traces.digest import ROOT
from runners.traces.schema import Record

PRESETS = ROOT / "content" / "planner" / "model_presets.yml"

Id = Annotated[str, Field(pattern=r"^[a-z0-9]+([-.][a-z0-9]+)*$")]


class Architecture(Record):
    """Layers of attention and a feed-forward network, between an embedding and logits.

    Attributes:
        num_kv_heads: heads of keys and values; fewer than `num_heads` share them among queries.
        ffn_size: width inside the feed-forward network, of one expert where there are several.
        vocabulary: rows of the embedding, before any padding.
        context_length: most positions; with learned positions also the rows of their embedding.
        activation: with `swiglu` the first matrix is two, one of which gates the other.
        has_bias: linear layers have biases (norms of the kind `layernorm` always do).
        has_qkv_bias: the layers of queries, keys and values do, whatever the others do.
        has_tied_embeddings: the logits use the embedding's matrix.
        has_query_key_norm: queries and keys are normalized, head by head.
        head_dim: width of one attention head; 0 where the heads make up the hidden size.
        rotary_base: of the angles of rotary positions (`rope_theta` of a configuration).
        num_active_experts: experts that each token passes through.
    """

    num_layers: Count
    hidden_size: Count
    num_heads: Count
    num_kv_heads: Count
    ffn_size: Count
    vocabulary: Count
    context_length: Count
    positions: Literal["learned", "rotary"]
    activation: Literal["gelu", "swiglu"]
    norm: Literal["layernorm", "rmsnorm"]
    has_bias: bool
    has_tied_embeddings: bool
    has_query_key_norm: bool = False
    has_qkv_bias: bool = False
    head_dim: int = 0
    rotary_base: Count = 10_000
    num_experts: Count = 1
    num_active_experts: Count = 1

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if not self.head_dim and self.hidden_size % self.num_heads:
            raise ValueError(f"{self.num_heads} heads do not divide a width of {self.hidden_size}")
        if self.num_heads % self.num_kv_heads:
            raise ValueError(f"{self.num_kv_heads} heads of keys do not divide {self.num_heads}")
        if self.num_active_experts > self.num_experts:
            raise ValueError(f"{self.num_active_experts} of {self.num_experts} experts are active")
        return self

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.head_dim or self.hidden_size // self.num_heads

    @property
    def embedding_parameters(self) -> int:
        """Of the token embedding, which is also the size of an untied output matrix."""
        return self.vocabulary * self.hidden_size

    @property
    def norm_parameters(self) -> int:
        """Of one norm over the hidden size: a weight, and for `layernorm` a bias."""
        return self.hidden_size * self._norm_vectors

    @property
    def attention_parameters(self) -> int:
        """Of one layer's attention: queries, keys and values, and the output."""
        queries = self.num_heads * self.head_size
        inputs = queries + 2 * self.num_kv_heads * self.head_size
        biases = inputs + self.hidden_size if self.has_bias else inputs * self.has_qkv_bias
        norms = 2 * self.head_size * self._norm_vectors if self.has_query_key_norm else 0
        return self.hidden_size * (inputs + queries) + biases + norms

    @property
    def expert_parameters(self) -> int:
        """Parameters of one expert's feed-forward network."""
        gates = 2 if self.activation == "swiglu" else 1
        biases = gates * self.ffn_size + self.hidden_size if self.has_bias else 0
        return (gates + 1) * self.hidden_size * self.ffn_size + biases

    @property
    def layer_parameters(self) -> int:
        """Of one layer: attention, all experts, the router where there are several, two norms."""
        router = self.num_experts * self.hidden_size if self.num_experts > 1 else 0
        experts = self.num_experts * self.expert_parameters
        return self.attention_parameters + experts + router + 2 * self.norm_parameters

    @property
    def num_parameters(self) -> int:
        """Parameters of the whole model."""
        logits = 0 if self.has_tied_embeddings else self.embedding_parameters
        positions = self.context_length * self.hidden_size if self.positions == "learned" else 0
        ends = self.embedding_parameters + positions + self.norm_parameters + logits
        return self.num_layers * self.layer_parameters + ends

    @property
    def _norm_vectors(self) -> int:
        return 2 if self.norm == "layernorm" else 1


class Source(Record):
    """A place in a public repository.

    Attributes:
        repository: owner and name on GitHub.
        field: the function, table or key that states the values.
    """

    repository: str
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{7,40}$")]
    path: str
    field: str


class ModelPreset(Record):
    """One model that `plan` knows by name."""

    id: Id
    title: str
    architecture: Architecture
    source: Source


@cache
def model_presets() -> dict[str, ModelPreset]:
    """All presets by their id, in the order of the file.

    Raises:
        ValueError: the file is not what it should be.
    """
    document = yaml.safe_load(PRESETS.read_text(encoding="utf-8"))
    presets = TypeAdapter(list[ModelPreset]).validate_python(document["presets"])
    return {one.id: one for one in presets}
