"""The pages of plans, as an author writes them: content/planner/plan.yml."""

from typing import Annotated

from pydantic import Field

from proofbook.generator.content.exhibit import Listing, Play
from proofbook.generator.content.words import Expression, GridName, Line, Prose, Written


class Device(Written):
    """A device."""

    memory: Expression
    """bytes."""
    compute: Expression
    """FLOPs per second, at its highest rate."""
    link: Expression
    """bytes per second that it sends to others of its node."""
    between: Expression
    """bytes per second that a node of such devices sends to other nodes."""


class Words(Written):
    """What a setting of the plan, such as `fsdp-keep`, is called; `checkpointed` a layout's own."""

    strategies: dict[str, Line]
    precision: dict[str, Line]
    optimizer: dict[str, Line]
    checkpointed: Line


class PeaksPage(Written):
    """The page that compares published peaks of memory with simulations and closed forms."""

    title: Line
    about: Line
    lede: Prose
    """what is compared."""
    selection: Prose
    """which measurements qualify, and what is assumed or lacks of them."""
    margin: Prose
    """to which rows the margin of closed forms was fitted, and how others lie within it."""
    compiled: Prose | None = None
    """runs under a compiler, which no plan simulates."""
    variants: dict[str, Line] = {}
    """what tells rows of the same model and strategy apart, by the id of a row."""
    notes: dict[str, Line] = {}
    """why rows miss, in words for readers, by the id of a row."""


class OrderPart(Written):
    """What Plan says of the rule that orders layouts, if the book has the table by cluster."""

    title: Line
    short: Prose
    """what the order rests on, in two sentences; the page of each model has them too."""
    table: Line
    """of the fold with the clusters."""
    further: dict[Line, Prose]
    """folds: for which strategies nothing is published, and which clusters were compared how."""


class MemoryExample(Written):
    """A column of the table of presets: a training on some devices."""

    label: Line
    devices: int
    strategy: str
    training: dict[str, int | str] = {}
    """fields of `TrainingSettings` that are not the usual ones."""


class MemoryChoices(Written):
    """The calculator of Plan: does a model train on some devices?"""

    title: Line
    lede: Prose
    model: str
    """the preset at first."""
    device: str
    """the device at first: a name of `devices.yml`."""
    sequence: int
    """tokens of a sample at first, and in the table; a model with fewer positions has as many."""
    strategies: dict[str, Line]
    """strategies, as the command names them, in words."""
    choices: dict[Line, dict[Line, dict[str, int | str]]]
    """what a form calls a setting, and its options: words, and fields of `TrainingSettings`."""
    examples: list[MemoryExample]
    sentence: Line | None = None
    """the calculator on the home page: `{model}`, `{devices}`, `{device}`, `{strategy}`, and what
    the form calls a setting, stand for a choice."""


class PlanFile(Written):
    """content/planner/plan.yml."""

    title: Line
    """of the page that leads to the models."""
    about: Line
    """of the page that leads to the models."""
    lede: Prose
    """what the pages answer."""
    yours: Prose
    """how to plan a model of one's own; below it stands the command, to copy."""
    model_title: Line
    """of the page of one model; `{model}` stands for its name."""
    models: Annotated[list[GridName], Field(min_length=1)]
    """the experiments that hold the plans, in the order of the page."""
    opening: Prose
    """of each model's page: what it shows."""
    compared: Prose
    """what its tables compare."""
    mesh: Play
    """of a layout: all axes that one may have, the outermost first; sizes and nodes are its own."""
    mesh_says: Line
    """the caption of that."""
    device: Device
    """on which layouts that lessons name are compared."""
    words: Words
    """what settings are called; of strategies, what each axis does."""
    per_node: int
    """devices of a node."""
    calculator: MemoryChoices | None = None
    reading: dict[Line, Prose]
    """folds: the rules by which a layout fits and comes first, and what the bounds leave out."""
    experts: Prose
    """what is assumed of a model with experts."""
    simulated: Prose
    """how a plan comes about, and what it leaves out."""
    own: Prose
    """how to plan a model of one's own; `program` is an example that a test executes."""
    program: Listing
    published: PeaksPage | None = None
    """of the page that compares simulations with published measurements, if any."""
    order: OrderPart | None = None
    """of the table of published clusters, likewise."""
    former: dict[str, list[str]] = {}
    """anchors of rows that a page has no more, by its path; links to them still lead there."""
