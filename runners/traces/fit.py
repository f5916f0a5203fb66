"""What `constants.json` holds: the constants of the forecasts' intervals, and what they rest on.

The constants are standard deviations of the logarithm of outcome over forecast, and one of the
relative error of peaks: what the model is wrong by beside the spread of the primitives. They are
fitted on named runs of one machine (`runners/forecast/fit.py`), and for each experiment once more
without its own runs: no forecast is scored with constants that were fitted on the run itself. Pure.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from runners.traces.schema import Record


class Constants(Record):
    """What the model is wrong by, one standard deviation each."""

    computing_error: float = Field(ge=0, description="of the logarithm of a step that computes")
    communication_error: float = Field(ge=0, description="of one that waits for communication")
    peak_error: float = Field(ge=0, description="of a peak, relative")
    weights: dict[str, float] = Field(
        default={},
        description="by feature of a step: how much longer it takes than its primitives say; one "
        "that is not named takes as long",
    )


class LeftOut(Record):
    """The constants fitted without one experiment, and how they do on its runs."""

    constants: Constants
    num_steps: int = Field(description="of the experiment that was left out")
    num_steps_within: int
    num_peaks: int
    num_peaks_within: int


class Fit(Record):
    """The fitted constants of one machine: `constants.json` of its folder."""

    schema_version: Literal[1]
    machine: str
    fitted_at: str = Field(description="UTC, ISO 8601, seconds")
    constants: Constants
    computing_runs: list[str] = Field(description="on which `computing_error` was fitted")
    communication_runs: list[str] = Field(description="on which `communication_error` was fitted")
    peak_runs: list[str] = Field(description="on which `peak_error` was fitted")
    without: dict[str, LeftOut] = Field(description="by the experiment that was left out")

    def constants_for(self, experiment: str) -> Constants:
        """The constants for the forecasts of one experiment: fitted without its runs."""
        left_out = self.without.get(experiment)
        return left_out.constants if left_out else self.constants
