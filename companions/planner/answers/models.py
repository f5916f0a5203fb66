"""The model of a name: a preset, a configuration file, or what to do about any other. No torch.

In: the word of a command. Out: a `PlannedModel`.
"""

import re
from math import log
from pathlib import Path

from proofbook.companions.planner.answers.architecture import model_presets
from proofbook.companions.planner.answers.configuration import architecture_of
from proofbook.companions.planner.answers.question import PlanError, PlannedModel
from proofbook.runners.system.errors import near

_HUB = re.compile(r"[\w.-]+/[\w.-]+")  # an owner, and a model
_BILLIONS = re.compile(r"(\d+(?:\.\d+)?)b\b")


def model_of(name: str, *, freezes: bool = False) -> PlannedModel:
    """The model of a preset or of a file; with `freezes` its weights may be quantized."""
    presets, path = model_presets(), Path(name)
    if preset := presets.get(name.casefold()):
        return PlannedModel(name=preset.id, architecture=preset.architecture)
    if path.is_dir():
        path /= "config.json"
    if path.suffix != ".json":
        if not _HUB.fullmatch(name):
            there_are = f"there are: {', '.join(presets)}; for another, name its config.json"
            raise PlanError(f"no preset {name!r}{_preset_near(name)}; {there_are}")
        raise PlanError(
            f"{name}: nothing is downloaded; get its file by `hf download {name} config.json "
            f"--local-dir .`, and name config.json{_preset_near(name)}"
        )
    name = path.parent.resolve().name if path.name == "config.json" else path.stem
    return PlannedModel(name=name, architecture=architecture_of(path, freezes=freezes))


def _preset_near(name: str) -> str:
    """The preset with a name like that of another model, or of nearly its size; or nothing."""
    own, presets = name.rpartition("/")[2].casefold(), model_presets()
    sizes = {key: preset.architecture.num_parameters for key, preset in presets.items()}
    close = next((key for key in presets if own.startswith(key)), near(own, presets))
    if stated := _BILLIONS.search(own):
        size = float(stated[1]) * 1e9
        by_size = min(sizes, key=lambda key: abs(log(sizes[key] / size)))
        is_alike = close and abs(log(sizes[close] / size)) < log(1.2)
        close = close if is_alike or re.search(r"\dx\d", own) else by_size
    if not close:
        return ""
    return f"; near it is the preset {close}, of {sizes[close] / 1e9:.1f} B parameters"
