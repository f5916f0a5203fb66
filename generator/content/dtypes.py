"""Floating-point formats: the epsilon of each, with which tolerances and bounds of rounding scale.

The epsilon of a format is the distance from 1 to the next larger number. Rounding an exact result
changes it by at most half of that, as a share of the result (IEEE 754).
"""

from __future__ import annotations

from typing import Literal

Dtype = Literal["float64", "float32", "bfloat16", "float16"]
EPSILONS: dict[str, float] = {
    "float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7,
}  # fmt: skip
