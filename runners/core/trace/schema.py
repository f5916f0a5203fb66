"""The base of all records of a trace, and the types that several records share.

A record refuses unknown fields and values of another type. A field that has a default is not
written where it is at its default: most traces need not say it.
"""

import hashlib
import json
import math
import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict

Status = Literal[
    "completed", "out_of_memory", "diverged", "deadlocked", "died", "failed", "skipped"
]
Nature = Literal["real", "paced", "simulated"]
Activity = Literal["compute", "communication", "waiting"]
# How closely another measurement repeats a value. `rounded`: it is equal, and a float is equal on a
# like processor, elsewhere but for rounding. `bits`: the digest of floats, which is equal on a like
# processor and says nothing elsewhere. `kernel`: as the kernel counts pages and frames. `clock`: a
# time, or worked out from times.
Repeats = Literal["rounded", "bits", "kernel", "clock"]
Shape = list[int]
Setting = int | float | str | bool | None | list[int] | list[float] | list[str]
_MOMENT = "%Y-%m-%dT%H:%M:%SZ"
Loss = float | None  # null where the loss was not finite; `non_finite` then says where and what


class Record(BaseModel):
    """Any part of a trace: unknown fields, and values of another type, are refused."""

    # JSON has no inf, but Python reads 1e999 as one.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    def as_json(self) -> dict[str, Any]:
        """The record as it is written: what JSON can hold, without fields at their default."""
        return self.model_dump(mode="json", exclude_defaults=True)


class Quantity(Record):
    """The unit of a value, and how closely another measurement repeats it."""

    unit: str = ""  # bytes, seconds, share, loss, position; or what it counts, such as `updates`
    repeats: Repeats = "rounded"


class Guarded(Record):
    """The record of a file, with the digest of all else in it, by which an edit is noticed."""

    values: str = ""  # `files.write` sets it


def _moment(text: str) -> str:
    with suppress(ValueError):
        if datetime.fromisoformat(text).strftime(_MOMENT) == text:
            return text
    raise ValueError(f"{text!r} is no time such as '2026-11-26T17:37:38Z'")


def _version(text: str) -> str:
    if re.fullmatch(r"\d+(\.\d+)+\S*", text):
        return text
    raise ValueError(f"{text!r} is no version such as '2.13.0'")


Moment = Annotated[str, AfterValidator(_moment)]  # UTC, ISO 8601, seconds
Version = Annotated[str, AfterValidator(_version)]


def digest_of(document: object) -> str:
    """16 hexadecimal digits of the hash of a JSON document, in whatever order its keys are."""
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


def now() -> str:
    """The time, UTC, as records keep it."""
    return datetime.now(UTC).strftime(_MOMENT)


def finite_or_none(value: float) -> float | None:
    """The value, or None where JSON could not carry it."""
    return value if math.isfinite(value) else None
