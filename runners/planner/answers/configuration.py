"""A model from the configuration file that its weights come with, `config.json` of transformers.

In: the path of a file; nothing is downloaded. Out: an `Architecture`. Decoder-only models of the
Llama, Mistral, Qwen, Mixtral and GPT-2 families are read; others are refused in one line. No torch.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from runners.planner.answers.architecture import Architecture
from runners.planner.answers.question import PlanError

# Where a file states each field: under the first of these keys that has a value.
_KEYS = {
    "num_layers": ("num_hidden_layers", "n_layer"),
    "hidden_size": ("hidden_size", "n_embd"),
    "num_heads": ("num_attention_heads", "n_head"),
    "num_kv_heads": ("num_key_value_heads", "num_attention_heads", "n_head"),
    "head_dim": ("head_dim",),
    "ffn_size": ("moe_intermediate_size", "intermediate_size", "n_inner"),
    "vocabulary": ("vocab_size",),
    "context_length": ("max_position_embeddings", "n_positions"),
    "has_tied_embeddings": ("tie_word_embeddings",),
    "num_experts": ("num_local_experts", "num_experts"),
    "num_active_experts": ("num_experts_per_tok",),
}
# Families by `model_type`, and what their code does that the file does not say. The biases of
# Qwen2's queries, keys and values, a few thousandths of a per cent of its parameters, are left out.
_GATED: dict[str, Any] = {
    "positions": "rotary", "activation": "swiglu", "norm": "rmsnorm", "has_bias": False,
    "has_tied_embeddings": False,
}  # fmt: skip
_FAMILIES = {
    "gpt2": {
        "positions": "learned", "activation": "gelu", "norm": "layernorm", "has_bias": True,
        "has_tied_embeddings": True,
    },
    "llama": _GATED,
    "mistral": _GATED,
    "mixtral": _GATED,
    "qwen2": _GATED,
    "qwen3": _GATED | {"has_query_key_norm": True},
    "qwen3_moe": _GATED | {"has_query_key_norm": True},
}  # fmt: skip


def architecture_of(path: Path) -> Architecture:
    """The architecture that a configuration file describes.

    Raises:
        PlanError: it cannot be read, or describes a model of another kind.
    """
    try:
        said = dict(json.loads(path.read_text()))
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}; name a model's config.json") from error
    except (TypeError, ValueError) as error:
        raise PlanError(f"{path} is no configuration file in JSON: {error}") from error
    family = said.get("model_type")
    if family not in _FAMILIES:
        raise PlanError(
            f"{path}: a model of type {family!r} is not known; "
            f"known are {', '.join(sorted(_FAMILIES))}; give others as MODULE:FUNCTION"
        )
    fields = dict(_FAMILIES[family])
    if family == "gpt2":
        fields["ffn_size"] = 4 * (said.get("n_embd") or 0)  # where n_inner is null
    stated = {
        field: [said[key] for key in keys if said.get(key) is not None]
        for field, keys in _KEYS.items()
    }
    fields |= {field: values[0] for field, values in stated.items() if values}
    try:
        return Architecture(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = " or ".join(_KEYS.get(str(*first["loc"][:1]), ())) or "the sizes"
        raise PlanError(f"{path}: {where}: {first['msg']}") from error
