"""A model from the configuration file that its weights come with, `config.json` of transformers.

In: the path of a file; nothing is downloaded. Out: an `Architecture`. Decoder-only models of the
Llama, Mistral, Qwen, Mixtral and GPT-2 families are read; others are refused in one line, and so is
a field that changes the model and that no plan has. No torch.
"""

import json
from collections.abc import Mapping
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
    "num_kv_heads": ("num_key_value_heads",),
    "head_dim": ("head_dim",),
    "ffn_size": ("moe_intermediate_size", "intermediate_size", "n_inner"),
    "vocabulary": ("vocab_size",),
    "context_length": ("max_position_embeddings", "n_positions"),
    "has_tied_embeddings": ("tie_word_embeddings",),
    "rotary_base": ("rope_theta",),
    "num_experts": ("num_local_experts", "num_experts"),
    "num_active_experts": ("num_experts_per_tok",),
}
# Families by `model_type`: what their code does, and the values of keys that a file may leave out.
# `num_kv_heads: None` is as many as there are heads.
_GATED: dict[str, Any] = {
    "positions": "rotary", "activation": "swiglu", "norm": "rmsnorm", "has_bias": False,
    "has_tied_embeddings": False, "num_kv_heads": None,
}  # fmt: skip
_QWEN3 = _GATED | {"has_query_key_norm": True, "num_kv_heads": 32, "head_dim": 128}
_FAMILIES = {
    "gpt2": {
        "positions": "learned", "activation": "gelu", "norm": "layernorm", "has_bias": True,
        "has_tied_embeddings": True, "num_kv_heads": None,
    },
    "llama": _GATED,
    "mistral": _GATED | {"num_kv_heads": 8},
    "mixtral": _GATED | {"num_kv_heads": 8, "num_experts": 8, "num_active_experts": 2},
    "qwen2": _GATED | {"has_qkv_bias": True, "num_kv_heads": 32},
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3
    | {"num_kv_heads": 4, "head_dim": 0, "num_experts": 128, "num_active_experts": 8},
}  # fmt: skip
_NO_WINDOW = ("qwen2", "qwen3", "qwen3_moe")  # unless `use_sliding_window` says so
# Values of a key that is left out, in families where it changes what is computed.
_LEFT_OUT: dict[str, dict[str, Any]] = {
    "gpt2": dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.1),
    "mistral": {"sliding_window": 4096},
}
# Keys that change shapes or what is computed, with the values under which plans are right.
_UNDERSTOOD: dict[str, tuple[object, ...]] = {
    **dict.fromkeys(
        (
            "attention_bias", "mlp_bias", "use_bias", "bias", "qkv_bias", "add_cross_attention",
            "is_encoder_decoder", "use_sliding_window", "use_parallel_residual",
        ),
        (False, None),
    ),
    **dict.fromkeys(
        (
            "attention_dropout", "hidden_dropout", "resid_pdrop", "embd_pdrop", "attn_pdrop",
            "dropout", "n_shared_experts", "num_shared_experts", "first_k_dense_replace",
            "shared_expert_intermediate_size",
        ),
        (0, None),
    ),
    **dict.fromkeys(("pretraining_tp", "decoder_sparse_step", "moe_layer_freq"), (1, None)),
    **dict.fromkeys(
        (
            "quantization_config", "q_lora_rank", "kv_lora_rank", "mlp_only_layers",
            "attn_logit_softcapping", "final_logit_softcapping", "no_rope_layers",
        ),
        (None, []),
    ),
    "partial_rotary_factor": (1, None),
    "hidden_act": ("silu", None),
    "activation_function": ("gelu", "gelu_new", "gelu_pytorch_tanh", None),
}  # fmt: skip


def architecture_of(path: Path) -> Architecture:
    """The architecture that a configuration file describes.

    Raises:
        PlanError: it cannot be read, or describes a model that no plan simulates.
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
    base = fields.get("rotary_base")
    if isinstance(base, float) and base.is_integer():  # as most files write it
        fields["rotary_base"] = int(base)
    fields["num_kv_heads"] = fields["num_kv_heads"] or fields.get("num_heads")
    try:
        found = Architecture(**fields)
    except ValidationError as error:
        first = error.errors()[0]
        where = " or ".join(_KEYS.get(str(*first["loc"][:1]), ())) or "the sizes"
        raise PlanError(f"{path}: {where}: {first['msg']}") from error
    if why := _not_understood(_LEFT_OUT.get(family, {}) | said):
        raise PlanError(f"{path}: {why}")
    return found


def _not_understood(said: Mapping[str, object]) -> str | None:
    """The first field by which a model differs from what plans simulate, and what to do."""
    for key, values in _UNDERSTOOD.items():
        if key in said and said[key] not in values:
            right = json.dumps(values[0])
            return f"{key}: no plan has {json.dumps(said[key])}; {right} is planned"
    window, longest = said.get("sliding_window"), said.get("max_position_embeddings")
    uses_window = said.get("use_sliding_window", said.get("model_type") not in _NO_WINDOW)
    if uses_window and isinstance(window, int) and isinstance(longest, int) and window < longest:
        return f"sliding_window: attention within {window} tokens is not planned; null is"
    if kinds := {*_list(said.get("layer_types"))} - {"full_attention"}:
        return f"layer_types: {min(kinds)} is not planned; full_attention is"
    if names := [
        one
        for one in _list(said.get("architectures"))
        if not one.endswith("LMHeadModel") and not one.endswith("ForCausalLM")
    ]:
        return f"architectures: {names[0]} has another head; a model for causal language is planned"
    return None


def _list(value: object) -> list[str]:
    return [str(one) for one in value] if isinstance(value, list) else []
