"""What every record of a trace obeys, and the words that several records share.

A record refuses unknown fields and values of another type. A field that has a default is not
written where it is at its default: most traces need not say it.
"""

import hashlib
import json
from datetime import UTC, datetime
from typing import Any, Literal

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

    def as_json(self) -> dict[str, Any]:
        """The record as it is written: what JSON can hold, without fields at their default."""
        return self.model_dump(mode="json", exclude_defaults=True)


def digest_of(document: object) -> str:
    """The digest of what JSON can hold, in whatever order its keys are: 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


def now() -> str:
    """The time, UTC, as records keep it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
