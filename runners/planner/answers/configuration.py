"""A model from the configuration file that its weights come with, `config.json` of transformers.

In: the path of a file; nothing is downloaded. Out: an `Architecture`. What keys mean, and what each
family leaves out, is in `content/planner/model_families.yml`. Other families are refused in one
line, and so is a key that changes the model and that no plan has. No torch.
"""

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from runners.planner.answers.architecture import PRESETS, Architecture
from runners.planner.answers.question import PlanError

_ACTIVATIONS = ("hidden_activation", "hidden_act", "activation_function")
_OF_ROTATION = ("rope_theta", "rope_type", "partial_rotary_factor")  # also in `rope_parameters`
_WHOLE = "full_attention"


@cache
def _read() -> dict[str, Any]:
    path = PRESETS.with_name("model_families.yml")
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


def architecture_of(path: Path) -> Architecture:
    """The architecture that a configuration file describes.

    Raises:
        PlanError: it cannot be read, or describes a model that no plan simulates.
    """
    try:
        stated = dict(json.loads(path.read_text()))
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}; name a model's config.json") from error
    except (TypeError, ValueError) as error:
        raise PlanError(f"{path} is no configuration file in JSON: {error}") from error
    family, known = stated.get("model_type"), _read()["families"]
    if family not in known:
        raise PlanError(
            f"{path}: a model of type {family!r} is not known; "
            f"known are {', '.join(sorted(known))}; give others as MODULE:FUNCTION"
        )
    try:
        return _architecture(stated, **known[family])
    except ValidationError as error:
        first = error.errors()[0]
        field = str(*first["loc"][:1])
        keys = [*_read()["own_keys"].get(field, ()), *_read()["keys"].get(field, ())]
        where = " or ".join([key for key in keys if key in stated] or keys) or "the sizes"
        raise PlanError(f"{path}: {where}: {first['msg']}") from error
    except (PlanError, TypeError) as error:
        raise PlanError(f"{path}: {error}") from error


def _architecture(
    stated: dict[str, Any],
    facts: dict[str, Any],
    defaults: dict[str, Any],
    refused: dict[str, Any] | None = None,
) -> Architecture:
    """What a file states, and where it states nothing, what its family takes."""
    said = defaults | (refused or {}) | stated
    rotation = stated.get("rope_parameters") or {}
    said |= {key: rotation[key] for key in _OF_ROTATION if key in rotation}
    owned = {
        field: [key for key in keys if key in defaults]
        for field, keys in _read()["own_keys"].items()
    }
    keys = _read()["keys"] | {field: own for field, own in owned.items() if own}
    fields = facts | {
        field: said[key]
        for field, several in keys.items()
        for key in reversed(several)
        if said.get(key) is not None
    }
    fields.setdefault("num_kv_heads", fields.get("num_heads"))
    if "n_inner" in defaults:
        fields.setdefault("ffn_size", 4 * (said.get("n_embd") or 0))
    base = fields.get("rotary_base")
    if isinstance(base, float) and base.is_integer():  # as most files write it
        fields["rotary_base"] = int(base)
    dense = said.get("mlp_only_layers") or []
    fields["num_dense_layers"] = fields.get("num_dense_layers", len(dense))
    if fields["num_dense_layers"] or fields.get("expert_step", 1) > 1:
        fields["dense_size"] = said["intermediate_size"]
    if fields.get("kv_rank"):
        fields["num_kv_heads"] = fields.get("num_heads")
        fields["head_dim"] = said["qk_nope_head_dim"] + fields["rotary_size"]
        fields["shared_size"] = said["n_shared_experts"] * fields["ffn_size"]
    others = _read()["other_values"].items()
    fields["other_values"] = ", ".join(
        key for key, value in others if said.get(key, value) != value
    )
    found = Architecture(**fields)
    if (part := said.get("partial_rotary_factor") or 1) != 1:
        found = found.model_copy(update={"rotary_size": int(found.head_size * part)})
    if dense != [*range(len(dense))]:
        raise PlanError(f"mlp_only_layers: no plan has {dense}; the first layers are planned")
    if fields.get("num_experts") == 1:
        raise PlanError(f"{owned['num_experts'][0]}: no plan has 1; several experts are planned")
    _check(said, {*defaults, *(key for several in keys.values() for key in several)})
    activation = _activation(said, facts["activation"])
    return found.model_copy(update={"activation": activation, **_windows(said, fields)})


def _check(said: dict[str, Any], known: set[str]) -> None:
    """Refuse the first key by which a model may differ from what plans simulate."""
    known |= {*_read()["any_value"].split(), *_read()["other_values"]}
    words, one_value = _read()["words"].split(), _read()["one_value"]
    for key, value in said.items():
        is_known = key in known or not value or value == one_value.get(key)
        if not is_known and any(word in key for word in words):
            right = json.dumps(one_value.get(key, type(value)()))
            raise PlanError(f"{key}: no plan has {json.dumps(value)}; {right} is planned")
    for one in said.get("architectures") or []:
        if not one.endswith(("LMHeadModel", "ForCausalLM")):
            raise PlanError(
                f"architectures: {one} has another head; a model for causal language is planned"
            )


def _activation(said: dict[str, Any], of_family: str) -> str:
    """That of the family, or the approximation of it that a file names."""
    key = next((one for one in _ACTIVATIONS if said.get(one)), None)
    if key is None:
        return of_family
    for name, words in _read()["activations"].items():
        if name.startswith(of_family) and said[key] in words:
            return str(name)
    right = _read()["activations"][of_family][0]
    raise PlanError(f"{key}: no plan has {json.dumps(said[key])}; {json.dumps(right)} is planned")


def _windows(said: dict[str, Any], fields: dict[str, Any]) -> dict[str, int]:
    """The window of attention, and every so manieth layer without it."""
    kinds, steps = said.get("layer_types") or [], [fields.get("whole_step", 0)]
    if said.get("use_sliding_window") is False or ({*kinds} == {_WHOLE} and "whole_step" in fields):
        return {"window": 0, "whole_step": 0}
    if {*kinds} - {_WHOLE}:
        steps = [step for step in range(len(kinds)) if kinds == _kinds(len(kinds), step)]
        if "whole_step" not in fields or not steps:
            raise PlanError(
                f"layer_types: no plan has these; {_WHOLE} in each n-th layer is planned"
            )
    return {"whole_step": steps[0]}


def _kinds(num_layers: int, step: int) -> list[str]:
    is_whole = [step > 0 and layer % step == 0 for layer in range(1, num_layers + 1)]
    return [_WHOLE if one else "sliding_attention" for one in is_whole]
