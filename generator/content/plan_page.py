"""The pages of plans, as an author writes them: content/planner/plan.yml."""

from typing import Annotated

from pydantic import Field

from generator.content.exhibit import Listing
from generator.content.words import Expression, Line, Name, Prose, Written


class Device(Written):
    """A device that readers choose.

    Attributes:
        name: as a button shows it.
        memory: bytes.
        compute: FLOPs per second, at its highest rate.
        link: bytes per second that it sends to others of its node.
        between: bytes per second that a node of such devices sends to other nodes.
    """

    name: Line
    memory: Expression
    compute: Expression
    link: Expression
    between: Expression


class Words(Written):
    """What a setting of the plan, such as `fsdp-keep`, is called; `checkpointed` a layout's own."""

    strategies: dict[str, Line]
    precision: dict[str, Line]
    optimizer: dict[str, Line]
    checkpointed: Line


class ComparedPage(Written):
    """What a page says that compares what is computed with published measurements.

    Attributes:
        lede: what is compared.
        selection: which measurements qualify, and what is assumed or lacks of them.
    """

    title: Line
    about: Line
    lede: Prose
    selection: Prose


class PeaksPage(ComparedPage):
    """The page of memory.

    Attributes:
        compiled: runs under a compiler, which no plan simulates.
        variants: what tells rows of the same model and strategy apart, by the id of a row.
        notes: why rows miss, in words for readers, by the id of a row.
    """

    compiled: Prose | None = None
    variants: dict[str, Line] = {}
    notes: dict[str, Line] = {}


class StepsPage(ComparedPage):
    """The page of rates of training.

    Attributes:
        findings: what the scores show.
        choices: how published searches for a layout are compared with the law.
    """

    findings: Prose
    choices: Prose


class PlanFile(Written):
    """content/planner/plan.yml.

    Attributes:
        title, about: of the page that leads to the models.
        lede: what the pages answer.
        model_title: of the page of one model; `{model}` stands for its name.
        models: the experiments that hold the plans, in the order of the page.
        opening: of each model's page: what it recommends, and at which rates.
        task: what readers change there.
        caption: of the bars.
        devices: among which readers choose; the page begins with the first.
        words: what settings are called; of strategies, what each axis does.
        per_node: devices of a node.
        reading: the rules by which a layout fits and comes first, and what the bounds leave out.
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
    task: Line
    caption: Line
    devices: Annotated[list[Device], Field(min_length=1)]
    words: Words
    per_node: int
    reading: Prose
    experts: Prose
    simulated: Prose
    own: Prose
    program: Listing
    published: PeaksPage | None = None
    steps: StepsPage | None = None
