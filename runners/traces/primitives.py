"""What `primitives.json` holds: what a machine computes and communicates in how long."""

from __future__ import annotations

from typing import Literal

from runners.traces.measured import SampledSeconds
from runners.traces.schema import Record


class Primitives(Record):
    """`primitives.json` of a machine's folder."""

    schema_version: Literal[1]
    machine: str
    recorded_at: str  # UTC, ISO 8601, seconds
    # By name with its unit: `matrix_flops_per_second`, `all_reduce_2_alpha_seconds`.
    primitives: dict[str, SampledSeconds | float]
