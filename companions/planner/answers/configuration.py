"""A model from the configuration file that its weights come with, `config.json` of transformers.

In: the path of a file; nothing is downloaded. Out: an `Architecture`. What keys mean, and what each
family leaves out, is in `content/planner/model_families.yml`. Other families are refused in one
line, and so are invented keys and values that change the model and that no plan has. No torch.
"""

import json
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import yaml
from pydantic import ValidationError

from proofbook.companions.planner.answers.architecture import PRESETS, Architecture
from proofbook.companions.planner.answers.question import PlanError
from proofbook.runners.system.errors import nearest

TEXT_MODELS = ("LMHeadModel", "ForCausalLM")  # ends of the names of their classes
_ACTIVATIONS = ("hidden_activation", "hidden_act", "activation_function", "mlp_hidden_act")
_PARTS = {"mamba": "M", "linear_attention": "M", "full_attention": "*", "attention": "*",
          "mlp": "-", "moe": "E"}  # fmt: skip
_OF_ROTATION = ("rope_theta", "rope_type", "partial_rotary_factor")  # also in `rope_parameters`
_WHOLE = "full_attention"


@cache
def _read() -> dict[str, Any]:
    path = PRESETS.with_name("model_families.yml")
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))


@cache
def _known_keys() -> set[str]:
    """Keys of any family whose value may change the sizes of a model."""
    read = _read()
    lists = [*read["keys"].values(), *read["own_keys"].values(), read["one_value"]]
    for family in read["families"].values():
        lists += [family["defaults"], family.get("refused", ())]
    return {key for several in lists for key in several}


def architecture_of(path: Path, *, freezes: bool = False) -> Architecture:
    """The `Architecture` that a `config.json` states; PlanError names the file and the wrong key.

    With `freezes`, LoRA trains beside weights, which may be quantized.
    """
    stated, known = _stated(path), _read()["families"]
    quantized = stated.pop("quantization_config", None)
    if quantized and not freezes:
        raise PlanError(f"{path}: {_quantized(quantized)}")
    if (family := stated["model_type"]) not in known:
        why = (
            f"a model of type {family!r} is not known{nearest(family, known)}; known are "
            f"{', '.join(known)}; for another, name MODULE:FUNCTION, which builds it"
        )
        raise PlanError(f"{path}: {_read()['unplanned'].get(family, why)}")
    try:
        return _architecture(stated, known[family])
    except ValidationError as error:
        first = error.errors()[0]
        field = str(*first["loc"][:1])
        keys = [*_read()["own_keys"].get(field, ()), *_read()["keys"].get(field, ())]
        where = " or ".join([key for key in keys if key in stated] or keys) or "the sizes"
        reason = first["msg"].removeprefix("Value error, ")
        raise PlanError(f"{path}: {where}: {reason}") from error
    except PlanError as error:
        raise PlanError(f"{path}: {error}") from error
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise PlanError(f"{path}: {_culprit(stated, known[family])}") from error


def _stated(path: Path) -> dict[str, Any]:
    """The keys and values of a file; a PlanError where a plan cannot train what it describes."""
    try:
        stated = json.loads(path.read_text())
    except OSError as error:
        raise PlanError(f"{path}: {error.strerror}; name a model's config.json") from error
    except (TypeError, ValueError, RecursionError) as error:
        raise PlanError(f"{path} is no configuration file in JSON: {error}") from error
    if not isinstance(stated, dict):
        raise PlanError(f"{path} holds no object in JSON; name a model's config.json")
    if "peft_type" in stated:
        raise PlanError(f"{path} describes an adapter; name the model's config.json, and --lora")
    if "text_config" in stated:
        inner = "write what text_config holds, with its model_type, into a file, and name that"
        raise PlanError(f"{path} describes more than a language model; {inner}")
    if not isinstance(stated.get("model_type"), str):
        raise PlanError(f"{path} states no model_type; name a model's config.json")
    return stated


def _quantized(config: dict[str, Any]) -> str:
    """Why quantized weights do not train, which layers stay as they were, and what to do."""
    bits = next((n for n in (4, 8) if config.get(f"load_in_{n}bit")), config.get("bits") or 8)
    kept = config.get("modules_to_not_convert") or config.get("llm_int8_skip_modules") or []
    stays = ", ".join(map(str, kept)) or "the embedding, the logits and norms"
    return (
        f"its weights are quantized to {bits} bits, and do not train ({stays} stay in 16); add "
        f"--lora --frozen-bits {bits}, or remove its quantization_config to train all in 16"
    )


def _culprit(stated: dict[str, Any], family: dict[str, Any]) -> str:
    """The key without which the rest of a configuration can be read, in a message."""
    for key, value in stated.items():
        try:
            _architecture({k: v for k, v in stated.items() if k != key}, family)
        except PlanError:
            pass  # a refusal that can be said
        except (TypeError, ValueError, LookupError, AttributeError):
            continue
        return f"{key}: no plan has {json.dumps(value)}"
    return "several keys have values that no plan has"


def _architecture(stated: dict[str, Any], family: dict[str, Any]) -> Architecture:
    """The architecture of the values that a file states, with the defaults of its family."""
    defaults, rotation = family["defaults"], stated.get("rope_parameters") or {}
    values = defaults | family.get("refused", {}) | stated
    values |= {key: rotation[key] for key in _OF_ROTATION if key in rotation}
    own = {
        field: [key for key in keys if key in defaults]
        for field, keys in _read()["own_keys"].items()
    }
    keys = _read()["keys"] | {field: several for field, several in own.items() if several}
    fields = family["facts"] | {
        field: values[key]
        for field, several in keys.items()
        for key in reversed(several)
        if values.get(key) is not None
    }
    fields |= _of_pattern(fields.get("pattern") or "", values)
    fields.setdefault("num_kv_heads", fields.get("num_heads"))
    if "n_inner" in defaults:
        fields.setdefault("ffn_size", 4 * (values.get("n_embd") or 0))
    if isinstance(base := fields.get("rotary_base"), float) and base.is_integer():
        fields["rotary_base"] = int(base)  # which most files write with a point
    dense = values.get("mlp_only_layers") or []
    if fields.setdefault("num_dense_layers", len(dense)) or fields.get("expert_step", 1) > 1:
        fields["dense_size"] = values["intermediate_size"]
    if fields.get("kv_rank"):
        fields["num_kv_heads"] = fields.get("num_heads")
        fields["head_dim"] = values["qk_nope_head_dim"] + fields["rotary_size"]
        fields["shared_size"] = values["n_shared_experts"] * fields["ffn_size"]
    _check(values, {*defaults, *(key for several in keys.values() for key in several)})
    architecture = Architecture(**fields)
    changes: dict[str, Any] = {"activation": _activation(values, architecture.activation)}
    if (part := values.get("partial_rotary_factor") or 1) != 1:
        changes["rotary_size"] = int(architecture.head_size * part)
    if dense != [*range(len(dense))]:
        raise PlanError(f"mlp_only_layers: no plan has {dense}; the first layers are planned")
    if fields.get("num_experts") == 1 and not fields.get("pattern"):
        raise PlanError(f"{own['num_experts'][0]}: no plan has 1; several experts are planned")
    return architecture.model_copy(update=changes | _windows(values, reads="whole_step" in fields))


def _of_pattern(parts: str | list[str], values: dict[str, Any]) -> dict[str, Any]:
    """The fields of a model whose layers have one part each, which a letter or a word names."""
    if not (letters := "".join(_PARTS.get(part, part) for part in parts)):
        return {}
    experts = {} if "E" in letters else {"num_experts": 1, "num_active_experts": 1}
    sizes = {"num_layers": len(letters), "dense_size": values["intermediate_size"]}
    return {"pattern": letters, **sizes, **experts}


def _check(values: dict[str, Any], known: set[str]) -> None:
    """Refuse the first key that is unknown, or whose value no plan simulates."""
    patterns = _read()["any_value"].split()
    for key, value in values.items():
        if key in known or any(fnmatch(key, pattern) for pattern in patterns):
            continue
        if key not in _known_keys():
            name, near = json.dumps(key)[1:-1], nearest(key, _known_keys())
            raise PlanError(f"{name}: no such key is known{near}; correct it, or remove it")
        right = _read()["one_value"].get(key, type(value)())
        if value and value != right:
            _refuse(key, value, right)
    for name in values.get("architectures") or []:
        if not name.endswith(TEXT_MODELS):
            raise PlanError(f"architectures: {json.dumps(name)} has no head for causal language")


def _activation(values: dict[str, Any], of_family: str) -> str:
    """The activation of the family, or the approximation of it that a file names."""
    key = next((key for key in _ACTIVATIONS if values.get(key)), None)
    names = _read()["activations"][of_family]
    if key and values[key] not in names:
        _refuse(key, values[key], next(iter(names)))
    return str(names[values[key]]) if key else of_family


def _windows(values: dict[str, Any], *, reads: bool) -> dict[str, int]:
    """The fields `window` and `whole_step`, where a file lists the kind of each layer."""
    kinds = values.get("layer_types") or []
    if values.get("use_sliding_window") is False or (reads and {*kinds} == {_WHOLE}):
        return {"window": 0, "whole_step": 0}
    if not {*kinds} - {_WHOLE}:
        return {}
    for step in range((len(kinds) + 1) * reads):
        is_whole = [step > 0 and number % step == 0 for number in range(1, len(kinds) + 1)]
        if kinds == [_WHOLE if is_full else "sliding_attention" for is_full in is_whole]:
            return {"whole_step": step}
    raise PlanError(f"layer_types: no plan has these; {_WHOLE} in each n-th layer is planned")


def _refuse(key: str, value: object, right: object) -> NoReturn:
    reason = f"no plan has {json.dumps(value)}; {json.dumps(right)} is planned"
    raise PlanError(f"{json.dumps(key)[1:-1]}: {reason}")
