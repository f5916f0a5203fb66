"""A model from the configuration file that its weights come with, `config.json` of transformers.

In: the path of a file; nothing is downloaded. Out: an `Architecture`. Decoder-only models of the
Llama, Mistral, Qwen, Mixtral and GPT-2 families are read; others are refused in one line. No torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from runners.planning.question import PlanError
from runners.plans.architecture import Architecture

# Families by `model_type`, and what their code does that the file does not say. The biases of
# Qwen2's queries, keys and values, a few thousandths of a per cent of its parameters, are left out.
_GATED: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {},
    "mixtral": {},
    "qwen2": {},
    "qwen3": {"has_query_key_norm": True},
    "qwen3_moe": {"has_query_key_norm": True},
}


def architecture_of(path: Path) -> Architecture:
    """The architecture that a configuration file describes.

    Raises:
        PlanError: it cannot be read, or describes a model of another kind.
    """
    try:
        said = json.loads(path.read_text())
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}; name a model's config.json") from error
    except ValueError as error:
        raise PlanError(f"{path} is no configuration file in JSON: {error}") from error
    family = said.get("model_type")
    try:
        if family == "gpt2":
            return Architecture(**_gpt2(said))
        if family in _GATED:
            return Architecture(**_gated(said), **_GATED[family])
    except KeyError as error:
        raise PlanError(f"{path} lacks {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "the sizes"
        raise PlanError(f"{path}: {where}: {first['msg']}") from error
    raise PlanError(
        f"{path}: a model of type {family!r} is not known; "
        f"known are gpt2, {', '.join(sorted(_GATED))}; give others by --model"
    )


def _gpt2(said: dict[str, Any]) -> dict[str, Any]:
    width = said["n_embd"]
    return {
        "num_layers": said["n_layer"],
        "hidden_size": width,
        "num_heads": said["n_head"],
        "num_kv_heads": said["n_head"],
        "ffn_size": said.get("n_inner") or 4 * width,
        "vocabulary": said["vocab_size"],
        "context_length": said["n_positions"],
        "positions": "learned",
        "activation": "gelu",
        "norm": "layernorm",
        "has_bias": True,
        "has_tied_embeddings": said.get("tie_word_embeddings", True),
    }


def _gated(said: dict[str, Any]) -> dict[str, Any]:
    num_heads = said["num_attention_heads"]
    experts = said.get("num_local_experts", said.get("num_experts", 1))
    return {
        "num_layers": said["num_hidden_layers"],
        "hidden_size": said["hidden_size"],
        "num_heads": num_heads,
        "num_kv_heads": said.get("num_key_value_heads", num_heads),
        "head_dim": said.get("head_dim") or 0,
        "ffn_size": said.get("moe_intermediate_size", said["intermediate_size"]),
        "vocabulary": said["vocab_size"],
        "context_length": said["max_position_embeddings"],
        "positions": "rotary",
        "activation": "swiglu",
        "norm": "rmsnorm",
        "has_bias": False,
        "has_tied_embeddings": said.get("tie_word_embeddings", False),
        "num_experts": experts,
        "num_active_experts": said.get("num_experts_per_tok", 1),
    }
