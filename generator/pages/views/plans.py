"""The pages of plans: which strategies were simulated for a model, and what each needs.

In: the committed plans of the book, and planner/plan.yml. Out: a row for each model; for each
number of devices what strategies need; and the layouts that a lesson names. What fits which devices
the command answers, by closed forms.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from markupsafe import Markup

from proofbook.generator.content.book import Book
from proofbook.generator.content.plan_page import OrderPart, PlanFile
from proofbook.generator.content.shelf import TraceOnPage
from proofbook.generator.kinds.lessons.words import WhyFile
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Aside, Block, Element, Fold
from proofbook.generator.pages.elements.programs import Command
from proofbook.generator.pages.elements.tables import Row, Table
from proofbook.generator.pages.environment import counted, label
from proofbook.generator.pages.sheets import PLAN, Sheet
from proofbook.generator.pages.views import fits, published
from proofbook.generator.pages.views.claims import proofs
from proofbook.generator.printing.folio import Folio, breakable
from proofbook.generator.printing.markdown import plain
from proofbook.generator.values import units
from proofbook.generator.values.filters import each, largest
from proofbook.generator.values.units import Unit
from proofbook.generator.values.value import Value, computed
from proofbook.runners.planner.answers.answer import PlanAnswer, answers_of, needs
from proofbook.runners.planner.answers.plan_grid import named_rows
from proofbook.runners.planner.answers.published import PEAKS
from proofbook.runners.planner.layouts_named import planned as planned_in

ID = "plan"
BY_LAW = {
    "A device sends within its node": units.BYTES, "A node sends to others": units.BYTES,
    "A step, at least": units.SECONDS,
}  # fmt: skip
LAYOUTS = "Layout", "#A rank needs", *(f"#{measure}" for measure in BY_LAW), "#Other layouts"
Parts = Iterator[Element | Markup]


class Setting(NamedTuple):
    """What tells the rows of a strategy apart, beside recomputation and microbatch."""

    devices: int
    sequence: int
    optimizer: str


@dataclass(frozen=True)
class PlanOpening(Element):
    """Links to the pages of all models, and what the plans of this one show and share."""

    models: Sequence[TraceOnPage]
    here: str  # the experiment of the page
    root: str
    lede: Sequence[Markup]
    facts: dict[str, Markup]  # by control, what all plans share
    order: Markup  # the title of the table of clusters, if there is one


class Plans:
    """The committed plans of one model on one page."""

    def __init__(self, name: str, folio: Folio) -> None:
        """Keep a model's runs, answers and settings; expressions call its plans by `name`."""
        trace = folio.book.traces[name]
        assert trace.grid is not None
        self.name, self.grid, self.runs = name, trace.grid, trace.trace.runs
        self.folio, self.plan = folio, _written(folio)
        self.answers = answers_of(self.grid)
        states = ((name, row.state) for name, row in named_rows(self.grid).items())
        self.settings = {
            name: Setting(state.devices, state.sequence, state.optimizer) for name, state in states
        }

    def options(self, setting: Setting) -> list[str]:
        """The words of a setting: mesh, sequence, optimizer."""
        optimizer = self.plan.words.optimizer.get(setting.optimizer, setting.optimizer)
        per_node = min(setting.devices, self.plan.per_node)
        mesh = f"{setting.devices // per_node} × {per_node}"
        return [mesh, f"{setting.sequence:,} tokens", plain(self.folio.line(optimizer))]

    def shared(self, setting: str) -> Markup:
        """A setting that all runs of the model have."""
        usual = f"{self.name}.{next(iter(self.runs))}"
        return self.folio.printed(self.folio.reading(usual, "settings", setting))

    def path(self, answer: PlanAnswer) -> str:
        """The path of the run that holds an answer: `plan_llama_8b.fsdp_on_8`."""
        name = next(name for name, other in self.answers.items() if other is answer)
        return f"{self.name}.{name}"

    def label(self, answer: PlanAnswer) -> str:
        """An answer's layout in words: what each axis does, over how many ranks if several."""
        words, parts, axes = self.plan.words, answer.question.strategy.name.split("+"), []
        for part in parts:
            axis, *sizes = part.split(".")
            word = words.strategies.get(axis, axis)
            has_sizes = sizes and len(parts) + len(sizes) > 2
            axes.append(f"{word}\u00a0({' × '.join(sizes)})" if has_sizes else word)
        training = answer.question.training
        own = [words.checkpointed] if training.checkpointing != "none" else []
        if training.microbatch != self.grid.microbatch:
            own.append(f"microbatch\u00a0{training.microbatch}")
        return ", ".join([" × ".join(axes), *own])

    def needs(self, answer: PlanAnswer) -> Markup:
        """What the rank with the highest demand needs of its device."""
        return self.folio.printed(_largest(self.path(answer), "needed_bytes", self.folio))


def _largest(path: str, measure: str, folio: Folio) -> Value | None:
    measures = f"measures.{measure}"
    return folio.reading(path, "ranks", by=lambda ranks: largest(each(ranks, measures)))


def _computed(
    number: float, unit: Unit, formula: str, path: str, rates: Iterable[str], folio: Folio
) -> Markup:
    """What a formula makes of a simulated layout, with what it was made from."""
    of_plan = [_largest(path, measure, folio) for measure in ("flops", "sent_bytes")]
    inputs = tuple(filter(None, [*of_plan, *map(folio.value, rates)]))
    return folio.show(computed(number, unit, formula, inputs))


def named(run: str, folio: Folio) -> str:
    """A plan by its layout, its model and its devices."""
    name, _, row = run.partition(".")
    plans = Plans(name, folio)
    layout = plans.label(plans.answers[row])
    return f"{layout}, {plans.grid.title}, {plans.settings[row].devices} devices"


def planned_rows(lesson: WhyFile, folio: Folio) -> tuple[list[Row], str]:
    """Pair: rows of plans that a lesson names: bytes needed, bytes sent, least time; a caption."""
    rows: dict[str, Row] = {}
    layouts, read = list(planned_in(folio.evidence, lesson)), ("needed_bytes", "flops")
    folio = folio.for_table(_largest(a.run, of, folio) for a in layouts for of in read)
    uses = {decision.planned: decision.use for decision in reversed(lesson.decisions)}
    text = Markup('{}<br><a class="pb-label" href="../../{}">{}, {:,} tokens a sample</a>')
    for planned in layouts:
        law, links, run = planned.layout.bounds, planned.layout.cluster, planned.run
        by_law = law.within * links.within, law.between * links.between, law.at_least
        sequence = planned.layout.answer.question.training.sequence
        numbers = zip(by_law, BY_LAW.items(), strict=True)
        rows[run] = [
            text.format(folio.line(uses[run]), folio.place_of(run), named(run, folio), sequence),
            folio.printed(_largest(run, "needed_bytes", folio)),
            *(_computed(num, unit, what, run, (), folio) for num, (what, unit) in numbers),
            counted(len(planned.others)),
        ]
    return list(rows.values()), folio.caption


def _models(folio: Folio) -> Iterator[Row]:
    model = Markup('<a class="pb-label" href="{}">{}</a>')
    for name in _written(folio).models:
        plans, page = Plans(name, folio), folio.book.traces[name].page
        settings = sorted(set(plans.settings.values()))
        devices = " · ".join(dict.fromkeys(str(own.devices) for own in settings))
        title = model.format(page, plans.grid.title)
        yield [title, plans.shared("num_parameters"), label(devices), counted(len(plans.answers))]


def former(book: Book, path: str) -> Sequence[str]:
    """Anchors that a page had."""
    return book.plan.former.get(path, ()) if book.plan else ()


def sheets(book: Book) -> Iterator[Sheet]:
    """The page that leads to the models, and that of each model."""
    plan, written = book.plan, "content/planner/plan.yml"
    if plan is None:
        return
    yield Sheet(PLAN, "plan", plan.title, plan.about, written, has_toc=True)
    if plan.published and PEAKS.experiment in book.traces:
        yield Sheet(
            "plan/published.md", "published", plan.published.title, plan.published.about,
            written, under=PLAN, has_toc=True, of=PEAKS.experiment,
            is_recorded=True,
        )  # fmt: skip
    for name in plan.models:
        on_page = book.traces[name]
        assert on_page.grid is not None
        title = plan.model_title.replace("{model}", on_page.grid.title)
        path = on_page.page.replace(".html", ".md")
        yield Sheet(
            path,
            "planned",
            title,
            plan.about,
            of=name,
            under=PLAN,
            is_recorded=True,
        )


def plan(draft: Draft) -> Parts:
    """The page that leads to the models."""
    folio, own = draft.folio, _written(draft.folio)
    yield draft.lede(own.lede)
    if own.calculator:
        yield from draft.passage(own.calculator.title, own.calculator.lede)
        yield fits.calculator(own.calculator, folio)
    yield draft.heading(2, "Your model")
    yield Block([draft.prose(own.yours)])
    yield Command(".venv/bin/python -m runners plan for config.json")
    yield draft.heading(2, "Choose a model")
    yield Table(["Model", "#Parameters", "Devices", "#Layouts"], [*_models(folio)])
    yield from draft.passage("How to read a plan", own.reading)
    if order := _order_in(folio):
        yield from _order(order, draft)
    yield from draft.passage("How a plan is made", own.simulated)
    if "plan_published" in folio.book.traces:
        yield Markup(
            '<p>How far such plans are off: <a href="plan/published.html">Published measurements, '
            "and their simulations</a></p>"
        )
    yield draft.heading(3, "Plan your own model")
    yield Block([draft.prose(own.own), draft.program(own.program)], "pb-command")


def _written(folio: Folio) -> PlanFile:
    assert folio.book.plan is not None
    return folio.book.plan


def _order_in(folio: Folio) -> OrderPart | None:
    return _written(folio).order if "plan_order" in folio.book.traces else None


def _order(order: OrderPart, draft: Draft) -> Parts:
    folio, groups = draft.folio, draft.gathered.claim_groups
    yield Markup('<span id="all"></span><span id="few"></span><span id="many"></span>')
    yield from draft.passage(order.title, order.short)
    title = draft.line(order.table)
    near = folio.cell("plan_order.all.settings.near | percent | digits(2)")
    caption = Markup(
        "Where two layouts stand in a row, the upper one was the fastest, and the lower one is the "
        "rule's first. † marks more than {}."
    ).format(near)
    table = Table(published.CLUSTERS, [*published.clusters(folio)])
    yield Fold(title, [Aside(caption, "pb-caption"), table], anchor="clusters", is_found=True)
    yield Block([draft.prose(order.unknown)])
    yield from draft.passage("What was compared, and how", order.selection)
    steps = folio.book.traces["plan_steps"].trace.runs.items()
    names = [name for name, run in steps if "num_rows" in run.ranks[0].measures]
    measures = "num_rows", "num_possible"
    rows = [
        [name.upper(), *(
            folio.printed(folio.reading(f"plan_steps.{name}", "ranks", 0, "measures", measure))
            for measure in measures
        )]
        for name in names
    ]  # fmt: skip
    titles = ["Device", "#Published steps", "#Not shorter than the bound"]
    yield Table(titles, rows, anchors=names, head_css="pb-label")
    claims = [*groups.get("plan_order", ()), *groups.get("plan_steps", ())]
    yield from proofs(claims, draft.gathered.claim_lessons, folio)


def planned(draft: Draft) -> Parts:
    """The page of a model's plans."""
    folio, own, name = draft.folio, _written(draft.folio), draft.sheet.of
    folio.unmarked = "simulated"  # the page says it once, of all its numbers
    plans, order = Plans(name, folio), _order_in(folio)
    facts = {name: plans.shared(name) for name in ("num_parameters", "microbatch")}
    precision = own.words.precision[plans.grid.rows[0].state.precision]
    yield PlanOpening(
        [folio.book.traces[other] for other in own.models], name, folio.root,
        [draft.prose(own.opening), *([draft.prose(order.short)] if order else [])],
        {**facts, "precision": folio.line(precision)},
        folio.line(order.table) if order else Markup(),
    )  # fmt: skip
    names, *columns = zip(*_named(plans), strict=True)
    yield draft.heading(2, "What each layout needs")
    yield Block([draft.prose(own.compared)])
    yield Table(["Layout, and its run", "#Needs"], [*zip(*columns, strict=True)], anchors=[*names])
    if int(plans.grid.architecture["num_experts"]) > 1:
        yield from draft.passage("Experts", own.experts)
    again = Markup(
        "To repeat these simulations: <code>.venv/bin/python -m runners plan check {}</code>"
    )
    yield Aside(again.format(plans.grid.preset))
    if claims := draft.gathered.claim_groups.get(name):
        yield draft.heading(2, "Claims about these plans")
        yield from proofs(claims, draft.gathered.claim_lessons, folio)


def _named(plans: Plans) -> Iterator[tuple[str, Markup, Markup]]:
    """Every row of the grid by its setting, the smallest first: where links to its run lead."""
    both = Markup('<span class="pb-label">{}</span><br><small><code>{}</code></small>')
    pairs = plans.answers.items()
    for name, answer in sorted(pairs, key=lambda pair: (plans.settings[pair[0]], needs(pair[1]))):
        words = " · ".join([plans.label(answer), *plans.options(plans.settings[name])])
        path = breakable(f"{plans.name}.{name}")
        yield name, both.format(words, path), plans.needs(answer)
