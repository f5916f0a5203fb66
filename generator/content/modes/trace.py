"""Trace: one run followed, by its data, its epochs and one real batch."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from generator.content.exhibit import Figure
from generator.content.modes.section import Section, refuse_waiting_for_nothing
from generator.content.words import ClaimId, Id, Line, Naming, Prose, RunPath, Written


class FlowStage(Written):
    """One row of a data-flow table; shapes, operation and values come from the trace's stage."""

    stage: str
    title: Line
    note: Line
    whole_step: bool = False  # a training step as it is: what ranks communicated travels here


class DataFlow(Written):
    """The way of the rows, stage by stage, as a run recorded it."""

    run: RunPath
    introduction: Prose
    commit: Id | None = None  # the stages wait for its answer
    stages: Annotated[list[FlowStage], Field(min_length=1)]


class Training(Written):
    """Training epoch by epoch; observations are computed by detectors, never written."""

    run: RunPath
    introduction: Prose
    figure: Id
    afterword: Prose | None = None


class PredictionRow(Written):
    """One step of a real batch, by the name that the run gave it."""

    step: str
    title: Line
    note: Line


class Prediction(Written):
    """One real batch through the model.

    Attributes:
        title: of the section, where it shows something else than a prediction of the model.
    """

    title: Line | None = None
    run: RunPath
    introduction: Prose
    commit: Id | None = None  # asked before the steps tell
    steps: Annotated[list[PredictionRow], Field(min_length=1)]


Part = Literal["stages", "afterword", "prediction", "insight"]


class TraceFile(Naming):
    """content/topics/<topic>/trace.yml.

    Attributes:
        waits: the parts that answer the page's first question, closed until a reader has answered.
        data_flow, training, prediction: each where the run recorded it.
    """

    title: Line
    introduction: Prose
    commit: Id | None = None
    waits: list[Part] = []
    data_flow: DataFlow | None = None
    training: Training | None = None
    prediction: Prediction | None = None
    more: list[Section] = []  # sections with their own evidence: equality, drift, speed …
    timeline: Section | None = None  # the ranks of one metered step, side by side
    quiz: Annotated[list[Id], Field(min_length=4)]
    key_insight: Prose
    claims: list[ClaimId] = []  # the verdict table at the end
    figures: list[Figure] = []

    @model_validator(mode="after")
    def _what_waits_has_a_question(self) -> Self:
        refuse_waiting_for_nothing(self.commit, self.waits)
        if len(set(self.waits)) < len(self.waits):
            raise ValueError("waits: names a part twice")
        afterword = self.training and self.training.afterword
        there = {"stages": self.data_flow, "afterword": afterword, "prediction": self.prediction}
        for part in self.waits:
            if there.get(part, self.key_insight) is None:
                raise ValueError(f"waits: names {part}, which this page does not have")
        if "prediction" in self.waits and self.prediction and self.prediction.commit is not None:
            raise ValueError("waits: names prediction, which waits for a commit: of its own")
        return self
