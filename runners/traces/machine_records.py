"""What is recorded of a machine: the models of `machine.json` and `primitives.json`. No torch."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict

from runners.traces.measured import SampledSeconds
from runners.traces.schema import Record


class Accelerator(Record):
    """One accelerator of a machine."""

    name: str
    memory_bytes: int


class Machine(Record):
    """What a machine is; its folder's name is `name`."""

    model_config = ConfigDict(extra="ignore")  # what former versions recorded too
    schema_version: Literal[1]
    name: str
    is_reference: bool
    cpu: str
    num_cores: int  # that ranks may use
    memory_bytes: int
    system: str
    python: str
    torch: str
    accelerators: list[Accelerator]
    caches: str = ""  # of a core, as the kernel shows them; empty: not known


class Primitives(Record):
    """What a machine computes and communicates in how long."""

    schema_version: Literal[1]
    machine: str
    recorded_at: str  # UTC, ISO 8601, seconds
    # By name with its unit: `matrix_flops_per_second`, `all_reduce_2_alpha_seconds`.
    primitives: dict[str, SampledSeconds | float]
