"""A model of a family that no plan reads itself, as transformers builds it from a `config.json`.

In: the path of the file; nothing is downloaded, and no code that comes with a model is executed.
Out: the module without data, its batch, and its sizes.
"""

import json
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from proofbook.runners.planner.answers.architecture import MOST_LAYERS, MOST_PARAMETERS, check_bound
from proofbook.runners.planner.answers.configuration import TEXT_MODELS
from proofbook.runners.planner.answers.question import PlanError, PlannedModel


class ModelSizes(NamedTuple):
    """Sizes of a model that transformers builds."""

    num_parameters: int  # of the whole model
    active_parameters: int  # of the parts through which one token passes
    context_length: int  # the most positions that the file states; 0 where it states none
    attention: str  # the implementation that transformers chooses


def model_of(path: Path, name: str) -> PlannedModel:
    """The model of a file; a PlanError where transformers is missing, or builds none from it."""
    attention = sizes(str(path)).attention
    build, batch = (f"{__name__}:{function}" for function in ("built", "batch"))
    name += f", as transformers builds it with {attention} attention"
    return PlannedModel(name=name, module=build, batch=batch, configuration=str(path))


@cache
def sizes(path: str) -> ModelSizes:
    """`ModelSizes` of a file: parameters, all and active, positions, attention; or PlanError."""
    try:
        with torch.device("meta"):
            module = built(path)
        parameters = dict(module.named_parameters())
        total = sum(p.numel() for p in parameters.values())
        check_bound(total, MOST_PARAMETERS, "parameters")
    except ModuleNotFoundError as error:
        raise PlanError(f"{path}: only transformers reads it: pip install {error.name}") from error
    except Exception as error:  # whatever transformers raises of a file
        reason, _, _ = " ".join(str(error).split()).partition(". ")
        raise PlanError(f"{path}: not planned by transformers: {reason}") from error
    config: Any = module.config
    active = getattr(config, "num_experts_per_tok", 0)
    experts = [p for name, p in parameters.items() if ".experts." in name and p.dim() == 3]
    idle = sum((len(stacked) - active) * stacked[0].numel() for stacked in experts if active)
    longest = getattr(config, "max_position_embeddings", 0)
    return ModelSizes(total, total - idle, longest, config._attn_implementation)


def built(path: str) -> nn.Module:
    """The causal language model that transformers builds of a file, in torch's default type.

    A ValueError where it is too large, or no causal language model; whatever transformers raises.
    """
    transformers: Any = import_module("transformers")
    transformers.logging.set_verbosity_error()
    stated = json.loads(Path(path).read_text())
    for key, value in (stated | (stated.get("text_config") or {})).items():
        if "layer" in key and isinstance(value, int):
            check_bound(value, MOST_LAYERS, "layers")  # which the file's class may count at once
    config = transformers.AutoConfig.for_model(**stated)
    config.get_text_config().use_cache = False  # a step needs no keys and values of earlier ones
    build = transformers.AutoModelForCausalLM.from_config
    module: nn.Module = build(config, dtype=torch.get_default_dtype())
    if not type(module).__name__.endswith(TEXT_MODELS):
        raise ValueError(f"{type(module).__name__} has other parts; give its text_config as a file")
    return module


def batch(microbatch: int, sequence: int) -> dict[str, Tensor]:
    """A batch of tokens, which are their own labels."""
    tokens = torch.zeros(microbatch, sequence, dtype=torch.long)
    return {"input_ids": tokens, "labels": tokens}
