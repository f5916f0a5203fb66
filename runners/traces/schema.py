"""What every record of a trace obeys, and the words that several records share.

A record refuses unknown fields and values of another type. Fields that are empty in most traces are
left out when a record is written; `without` does that.
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

Status = Literal[
    "completed", "out_of_memory", "diverged", "deadlocked", "died", "failed", "skipped"
]
Nature = Literal["real", "paced", "simulated"]
Activity = Literal["compute", "communication", "waiting"]
Shape = list[int]
Setting = int | float | str | bool | None | list[int] | list[float] | list[str]
Loss = float | None  # null where the loss was not finite; `non_finite` then says where and what


class Record(BaseModel):
    """Any part of a trace: unknown fields, and values of another type, are refused."""

    # JSON has no inf, but Python reads 1e999 as one.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def without(names: tuple[str, ...], dumped: dict[str, object]) -> dict[str, object]:
    """A dumped record without those of these fields that are empty or as always."""
    return {name: kept for name, kept in dumped.items() if name not in names or kept}
