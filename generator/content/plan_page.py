"""The pages of plans, as an author writes them: content/planner/plan.yml."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from generator.content.exhibit import Listing
from generator.content.words import Expression, Line, Name, Prose, Written


class Device(Written):
    """A device whose memory readers compare plans with, and its name as a button shows it."""

    name: Line
    memory: Expression


class Words(Written):
    """What a setting of the plan, such as `fsdp-keep`, is called."""

    strategies: dict[str, Line]
    precision: dict[str, Line]
    optimizer: dict[str, Line]
    checkpointing: dict[str, Line]


class PublishedPage(Written):
    """What the page of published measurements says.

    Attributes:
        lede: what is compared.
        selection: which measurements qualify, and what a simulation of them lacks.
        variants: what tells rows of the same model and strategy apart, by the id of a row.
        choices: how published searches for a layout are compared with the law of time.
        notes: why rows miss, in words for readers, by the id of a row or of a search.
    """

    title: Line
    about: Line
    lede: Prose
    selection: Prose
    choices: Prose
    variants: dict[str, Line] = {}
    notes: dict[str, Line] = {}


class StepsPage(Written):
    """What the page of published rates says.

    Attributes:
        lede: what is compared.
        findings: what the scores show.
        selection: which rates qualify, and what the prediction assumes.
    """

    title: Line
    about: Line
    lede: Prose
    findings: Prose
    selection: Prose


class PlanFile(Written):
    """content/planner/plan.yml.

    Attributes:
        title, about: of the page that leads to the models.
        lede: what the pages answer.
        model_title: of the page of one model; `{model}` stands for its name.
        models: the experiments that hold the plans, in the order of the page.
        opening: of each model's page: what it shows, and how its numbers are found.
        figure_title, task, caption: of the figure that readers operate on each model's page.
        task_of_one: of the figure of a model that was simulated with one choice of settings.
        combinations: what the caption adds where there are several choices.
        devices: whose memory is a line in the figure; `line` is where it starts.
        words: what settings are called.
        compute, compute_fp32: what a device computes in a second, for the lower bound of the time.
        link: what it sends in a second, for the same bound.
        per_node, between: devices of a node, and what they send to other nodes in a second.
        reading: how the figure and the table are read.
        experts: what is assumed of a model with experts.
        simulated: how a plan comes about, and what it leaves out.
        own: how to plan a model of one's own; `program` is an example that a test executes.
        published: of the page that compares simulations with published measurements, if any.
        steps: of the page that compares the law of time with published rates, likewise.
    """

    title: Line
    about: Line
    lede: Prose
    model_title: Line
    models: Annotated[list[Name], Field(min_length=1)]
    opening: Prose
    figure_title: Line
    task: Line
    task_of_one: Line
    caption: Line
    combinations: Line
    devices: Annotated[list[Device], Field(min_length=1)]
    line: Expression
    words: Words
    compute: Expression
    compute_fp32: Expression
    link: Expression
    per_node: int
    between: Expression
    reading: Prose
    experts: Prose
    simulated: Prose
    own: Prose
    program: Listing
    published: PublishedPage | None = None
    steps: StepsPage | None = None
