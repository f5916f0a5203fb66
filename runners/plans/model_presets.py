"""Presets: models by a short name, with the public configuration that each was read from. No torch.

In: content/planner/model_presets.yml. Out: `ModelPreset` by its id.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, TypeAdapter

from runners.plans.architecture import Architecture
from runners.traces.schema import Record

PRESETS = Path(__file__).resolve().parents[2] / "content" / "planner" / "model_presets.yml"

Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{7,40}$")]
Id = Annotated[str, Field(pattern=r"^[a-z0-9]+([-.][a-z0-9]+)*$")]


class Source(Record):
    """A place in a public repository.

    Attributes:
        repository: owner and name on GitHub.
        field: the function, table or key that states the values.
    """

    repository: str
    commit: Commit
    path: str
    field: str


class ModelPreset(Record):
    """One model that `plan` knows by name."""

    id: Id
    title: str
    architecture: Architecture
    source: Source


@cache
def model_presets(path: Path = PRESETS) -> dict[str, ModelPreset]:
    """All presets by their id, in the order of the file.

    Raises:
        ValueError: the file is not what it should be.
    """
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    presets = TypeAdapter(list[ModelPreset]).validate_python(document["presets"])
    return {one.id: one for one in presets}
