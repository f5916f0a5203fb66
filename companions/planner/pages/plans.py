"""The pages of plans: which strategies were simulated for a model, and what each needs.

In: the committed plans of the book, and planner/plan.yml. Out: a row for each model; for each
number of devices what strategies need; and the layouts that a lesson names. What fits which devices
the command answers, by closed forms.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from math import prod
from operator import itemgetter

from markupsafe import Markup

from proofbook.companions.planner.answers.plan_grid import Grid, GridRow, experiment_of, named_rows
from proofbook.companions.planner.answers.published import PEAKS
from proofbook.companions.planner.layouts_named import planned as planned_in
from proofbook.companions.planner.pages import fits, published
from proofbook.companions.planner.words import OrderPart, PlanFile
from proofbook.generator.content.book import Book
from proofbook.generator.content.exhibit import Figure, Mesh, MeshAxis
from proofbook.generator.kinds.figures import figures
from proofbook.generator.kinds.lessons.words import WhyFile
from proofbook.generator.pages.draft import Draft
from proofbook.generator.pages.elements.element import Aside, Block, Element, Fold, Made
from proofbook.generator.pages.elements.programs import Command
from proofbook.generator.pages.elements.tables import Row, Table
from proofbook.generator.pages.environment import counted, label
from proofbook.generator.pages.sheets import Sheet
from proofbook.generator.pages.views.claims import proofs
from proofbook.generator.printing.folio import Folio, breakable
from proofbook.generator.printing.markdown import plain
from proofbook.generator.values import units
from proofbook.generator.values.filters import each, largest
from proofbook.generator.values.units import Unit
from proofbook.generator.values.value import Value, computed, numeric

ID = "plan"
BY_LAW = {
    "A device sends within its node": units.BYTES, "A node sends to others": units.BYTES,
    "A step, at least": units.SECONDS,
}  # fmt: skip
PLANNED = Markup(
    "<p>We simulated these layouts for real models, on H100s in nodes of eight. No other simulated "
    "layout of the same training needs less memory and sends less over each kind of link. Memory "
    "counts only where it is short. Where computing decides how long both take at least, the other "
    'one must also come earlier by the <a href="../../plan.html#how-to-read-a-plan">rule</a>. The '
    "last column counts the layouts that were compared. The pages of the layouts say what is "
    "assumed.</p>"
)
LAYOUTS = "Layout", "#A rank needs", *(f"#{measure}" for measure in BY_LAW), "#Other layouts"
Parts = Iterator[Element | Markup]


def _grid(experiment: str, folio: Folio) -> Grid:
    grid = folio.book.traces[experiment].held
    assert isinstance(grid, Grid)
    return grid


def _layout(row: GridRow, grid: Grid, folio: Folio) -> str:
    """A row's layout in words: what each axis does, over how many ranks if several."""
    words, parts, axes = _written(folio).words, row.strategy.split("+"), []
    for part in parts:
        axis, *sizes = part.split(".")
        word = words.strategies.get(axis, axis)
        has_sizes = sizes and len(parts) + len(sizes) > 2
        axes.append(f"{word}\u00a0({' × '.join(sizes)})" if has_sizes else word)
    own = [words.checkpointed] if row.state.checkpointing != "none" else []
    if row.state.microbatch != grid.microbatch:
        own.append(f"microbatch\u00a0{row.state.microbatch}")
    return ", ".join([" × ".join(axes), *own])


def _shared(grid: Grid, setting: str, folio: Folio) -> Markup:
    """A setting that all runs of a model have."""
    usual = f"{experiment_of(grid.preset)}.{next(iter(named_rows(grid)))}"
    return folio.printed(folio.reading(usual, "settings", setting))


def _largest(path: str, measure: str, folio: Folio) -> Value:
    measures = f"measures.{measure}"
    value = folio.reading(path, "ranks", by=lambda ranks: largest(each(ranks, measures)))
    assert value is not None
    return value


def _computed(number: float, unit: Unit, formula: str, path: str, folio: Folio) -> Markup:
    """What a formula makes of a simulated layout, with what it was made from."""
    inputs = tuple(_largest(path, measure, folio) for measure in ("flops", "sent_bytes"))
    return folio.show(computed(number, unit, formula, inputs))


def named(run: str, folio: Folio) -> str:
    """A plan by its layout, its model and its devices."""
    name, _, own = run.partition(".")
    grid = _grid(name, folio)
    row = named_rows(grid)[own]
    return f"{_layout(row, grid, folio)}, {grid.title}, {row.state.devices} devices"


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
            *(_computed(num, unit, what, run, folio) for num, (what, unit) in numbers),
            counted(len(planned.others)),
        ]
    return list(rows.values()), folio.caption


def of_decisions(draft: Draft, lesson: WhyFile) -> Parts:
    """The layouts that the decisions of a lesson name, for real models."""
    layouts, caption = planned_rows(lesson, draft.folio)
    if layouts:
        yield draft.heading(3, "The same at the size of real models")
        yield Block([PLANNED])
        yield Table(LAYOUTS, layouts, caption)


def _models(folio: Folio) -> Iterator[Row]:
    model = Markup('<a class="pb-label" href="{}">{}</a>')
    for name in _written(folio).models:
        grid, page = _grid(name, folio), folio.book.traces[name].page
        devices = " · ".join(map(str, sorted({row.state.devices for row in grid.rows})))
        number = _shared(grid, "num_parameters", folio)
        yield [model.format(page, grid.title), number, label(devices), counted(len(grid.rows))]


PLAN = "plan.md"


def former(book: Book, path: str) -> Sequence[str]:
    """Anchors that a page had."""
    written = book.file(PlanFile)
    return written.former.get(path, ()) if written else ()


def sheets(book: Book) -> Iterator[Sheet]:
    """The page that leads to the models, and that of each model."""
    plan, written = book.file(PlanFile), "content/planner/plan.yml"
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
        assert on_page.held is not None
        title = plan.model_title.replace("{model}", on_page.held.title)
        path = on_page.page.replace(".html", ".md")
        yield Sheet(path, "planned", title, plan.about, of=name, under=PLAN, is_recorded=True)


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
    yield Table(["Model", "#Parameters", "#Devices", "#Layouts"], [*_models(folio)])
    yield draft.heading(2, "How to read a plan")
    yield from _folds(own.reading, draft)
    if order := _order_in(folio):
        yield from _order(order, draft)
    yield from draft.passage("How a plan is made", own.simulated)
    if "plan_published" in folio.book.traces:
        yield Markup(
            '<p>How far such plans are off: <a href="plan/published.html">Published measurements, '
            "and their simulations</a></p>"
        )
    yield draft.heading(3, "Plan your own model")
    yield Block([draft.prose(own.own)], "pb-command")
    yield Fold(draft.line(own.program.title), [draft.program(own.program)], is_found=True)


def _folds(texts: Mapping[str, str], draft: Draft) -> Iterator[Fold]:
    """Texts that a reader opens by their titles."""
    for title, text in texts.items():
        yield Fold(draft.line(title), [Block([draft.prose(text)])], is_found=True)


def _written(folio: Folio) -> PlanFile:
    written = folio.book.file(PlanFile)
    assert written is not None
    return written


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
    yield from _folds(order.further, draft)
    steps = folio.book.traces["plan_order"].trace.runs.items()
    names = [name for name, run in steps if "num_rows" in run.ranks[0].measures]
    measures = "num_rows", "num_possible"
    rows = [
        [name.upper(), *(
            folio.printed(folio.reading(f"plan_order.{name}", "ranks", 0, "measures", measure))
            for measure in measures
        )]
        for name in names
    ]  # fmt: skip
    titles = ["Device", "#Published steps", "#Not shorter than the bound"]
    yield Table(titles, rows, anchors=names, head_css="pb-label")
    yield from proofs([*groups.get("plan_order", ())], draft.gathered.claim_lessons, folio)


def planned(draft: Draft) -> Parts:
    """The page of a model's plans."""
    folio, own, name = draft.folio, _written(draft.folio), draft.sheet.of
    folio.unmarked = "simulated"  # the page says it once, of all its numbers
    grid, order = _grid(name, folio), _order_in(folio)
    facts = {name: _shared(grid, name, folio) for name in ("num_parameters", "microbatch")}
    precision = own.words.precision[grid.rows[0].state.precision]
    yield Made(
        "PlanOpening", models=[folio.book.traces[other] for other in own.models], here=name,
        root=folio.root, lede=draft.texts(own.opening, order.short if order else None),
        facts={**facts, "precision": folio.line(precision)},  # that all plans share
        order=folio.line(order.table) if order else Markup(),
    )  # fmt: skip
    yield draft.heading(2, "What each layout needs")
    yield Block([draft.prose(own.compared)])
    yield from (figures.figure(figures.draw(mesh, folio)) for mesh in _mesh(grid, folio))
    memory = folio.value(own.device.memory)
    assert memory
    fits = Markup("Fits {}").format(folio.printed(memory))
    for at, (setting, rows) in enumerate(groupby(_named(grid, memory, folio), itemgetter(0))):
        _, names, *columns = zip(*rows, strict=True)
        cells = [*zip(*columns, strict=True)]
        table = Table(["Layout, and its run", "#Needs", fits], cells, anchors=[*names])
        yield Fold(setting, [table], is_found=True, is_open=at == 0)
    if int(grid.architecture["num_experts"]) > 1:
        yield from draft.passage("Experts", own.experts)
    again = Markup(
        "To repeat these simulations: <code>.venv/bin/python -m runners plan check {}</code>"
    )
    yield Aside(again.format(grid.preset))
    if claims := draft.gathered.claim_groups.get(name):
        yield draft.heading(2, "Claims about these plans")
        yield from proofs(claims, draft.gathered.claim_lessons, folio)


def _mesh(grid: Grid, folio: Folio) -> Iterator[Figure]:
    """The mesh of the layout with several axes that needs least, on two nodes at the most."""
    own, experiment = _written(folio), experiment_of(grid.preset)
    known = folio.book.traces[experiment].trace.runs
    several = [
        (row.state.devices, -numeric(_largest(f"{experiment}.{name}", "needed_bytes", folio)), name)
        for name, row in named_rows(grid).items()
        if len(_axes(row, own)) > 1 and row.state.devices <= 2 * own.per_node
    ]
    for devices, _, name in sorted(several)[-1:]:
        row, node = named_rows(grid)[name], min(devices, own.per_node)
        play = own.mesh.model_copy(update={"meshes": [Mesh(node=node, axes=_axes(row, own))]})
        title, runs = folio.strategy(known[name]), [f"{experiment}.{name}"]
        yield Figure(
            id="mesh", kind="play", title=title, caption=own.mesh_says, runs=runs, play=play
        )


def _axes(row: GridRow, own: PlanFile) -> list[MeshAxis]:
    """The axes of a layout's mesh, with their sizes; none if one borrows ranks, as experts do."""
    sizes = {call.axis: call.num_ranks for call in row.ranks[0].calls}
    known = [axis for mesh in own.mesh.meshes for axis in mesh.axes if axis.name in sizes]
    is_whole = len(known) == len(sizes) and prod(sizes.values()) == row.state.devices
    return [axis.model_copy(update={"size": sizes[axis.name]}) for axis in known if is_whole]


def _named(
    grid: Grid, memory: Value, folio: Folio
) -> Iterator[tuple[Markup, str, Markup, Markup, str]]:
    """Every row of the grid after its setting, the smallest first: where links to its run lead."""
    both = Markup('<span class="pb-label">{}</span><br><small><code>{}</code></small>')
    own, experiment = _written(folio), experiment_of(grid.preset)
    rows = [
        (row.state, _largest(f"{experiment}.{name}", "needed_bytes", folio), name, row)
        for name, row in named_rows(grid).items()
    ]
    rows.sort(key=lambda row: (row[0].devices, row[0].sequence, row[0].optimizer, numeric(row[1])))
    for state, needs, name, row in rows:
        per_node = min(state.devices, own.per_node)
        mesh = f"{state.devices // per_node} × {per_node}"
        optimizer = plain(folio.line(own.words.optimizer.get(state.optimizer, state.optimizer)))
        setting = label(" · ".join([f"{mesh} devices", f"{state.sequence:,} tokens", optimizer]))
        words = both.format(_layout(row, grid, folio), breakable(f"{experiment}.{name}"))
        fits = "yes" if numeric(needs) <= numeric(memory) else "no"
        yield setting, name, words, folio.printed(needs), fits
