"""The pages of plans: which layout to try first for a model on some devices, and what to measure.

In: the committed plans of the book, what planner/plan.yml says, and the choice that the command
`plan` makes of the same answers. Out: a row for each model; and for each choice of devices, memory,
tokens and optimizer the layouts to measure, bars, and a table of what fits. Also the table of the
layouts that a lesson names.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from markupsafe import Markup

from generator.checks.layout_checks import planned as planned_in
from generator.content.lesson import WhyFile
from generator.content.plan_page import Device
from generator.content.typesetting import plain
from generator.figures.play.bar_views import MOST as LONGEST
from generator.figures.play.bar_views import plans as bars
from generator.figures.play.frame import packed
from generator.figures.play.states import Control
from generator.pages.view import Row, View, counted, label
from generator.printing.folio import Folio, breakable
from generator.values import units
from generator.values.units import Unit
from generator.values.value import Value, computed, numeric
from runners.planner.answers import rates
from runners.planner.answers.answer import Answer, Layout, answers_of, needs, verdict
from runners.planner.answers.law_of_time import Cluster
from runners.planner.answers.plan_grid import named_rows
from runners.planner.answers.question import PlanError
from runners.planner.answers.search import Choice, choice
from runners.planner.program import command_of

ID = "plan"
TITLE = "What each layout needs, simulated"  # of the bars
WITHIN, BETWEEN = "A device sends within its node", "A node sends to others"
AT_LEAST = "A step, at least"
LAYOUTS = "Layout", "#A rank needs", f"#{WITHIN}", f"#{BETWEEN}", f"#{AT_LEAST}", "#Other layouts"
NEARLY_FULL = Markup('<br><b>nearly fills the device</b>')
NOTHING_FITS = "No simulated layout fits"
MOST = 8  # layouts that fit, of which bars and the table show the best


class Setting(NamedTuple):
    """What readers choose beside the memory of a device."""

    devices: int
    sequence: int
    optimizer: str


class Choices(NamedTuple):
    """A choice of all controls, and the answers that compete in it."""

    setting: Setting
    cluster: Cluster
    device: Device
    memory: Value
    answers: list[Answer]

    @property
    def choice(self) -> Choice | None:
        """What to measure, as the command says it; None where nothing fits."""
        num, answers = self.setting.devices, self.answers  # of which none may stay idle
        busy = [one for one in answers if one.question.strategy.num_devices == num]
        try:
            return choice(busy, self.cluster, numeric(self.memory))
        except PlanError:
            return None


class Plans:
    """The committed plans of one model on one page."""

    def __init__(self, name: str, folio: Folio) -> None:
        """Take up a model.

        Args:
            name: of its plans, as expressions call them.
            folio: the page.
        """
        shown = folio.book.traces[name]
        assert shown.grid is not None
        assert folio.book.plan is not None
        self.name, self.grid, self.runs = name, shown.grid, shown.trace.runs
        self.folio, self.plan = folio, folio.book.plan
        self.answers = answers_of(self.grid)
        self.settings = {
            name: Setting(row.state.devices, row.state.sequence, row.state.optimizer)
            for name, row in named_rows(self.grid).items()
        }

    @cached_property
    def choices(self) -> list[Choices]:
        """Every choice among several layouts; the page begins with the first one."""
        found: dict[Setting, list[Answer]] = {}
        for name, answer in self.answers.items():
            found.setdefault(self.settings[name], []).append(answer)
        return [
            Choices(
                setting, self.cluster(setting, device), device, self.known(device.memory), answers
            )
            for setting, answers in found.items()
            if len(answers) > 1
            for device in self.plan.devices
        ]  # fmt: skip

    def cluster(self, setting: Setting, device: Device) -> Cluster:
        """The nodes that so many of these devices fill, at their rates."""
        rates = (numeric(self.known(one)) for one in _rates(device))
        return Cluster(1, self.plan.per_node, *rates).of(setting.devices)

    def options(self, setting: Setting, memory: str = "") -> dict[str, str]:
        """A choice as readers see it, by control; without a device, where none is given."""
        optimizer = self.plan.words.optimizer.get(setting.optimizer, setting.optimizer)
        said = {
            "mesh": _mesh(self.cluster(setting, self.plan.devices[0])),
            "memory": memory,
            "sequence": f"{setting.sequence:,}",
            "optimizer": plain(self.folio.line(optimizer)),
        }
        return {control: one for control, one in said.items() if one}

    def known(self, expression: str) -> Value:
        """A value that every book with plans has."""
        value = self.folio.value(expression)
        assert value is not None, expression
        return value

    def path(self, answer: Answer) -> str:
        """The path of the run that holds an answer: `plan_llama_8b.fsdp_on_8`."""
        name = next(name for name, one in self.answers.items() if one is answer)
        return f"{self.name}.{name}"

    def label(self, answer: Answer) -> str:
        """A layout in words: what each axis does, over how many ranks where there are several."""
        words, parts, said = self.plan.words, answer.question.strategy.name.split("+"), []
        for part in parts:
            axis, *sizes = part.split(".")
            word = words.strategies.get(axis, axis)
            has_sizes = sizes and len(parts) + len(sizes) > 2
            said.append(f"{word} ({' × '.join(sizes)})" if has_sizes else word)
        is_checkpointed = answer.question.training.checkpointing != "none"
        return " × ".join(said) + (f", {words.checkpointed}" if is_checkpointed else "")

    def needs(self, answer: Answer) -> Markup:
        """What the rank with the highest demand needs of its device."""
        return self.folio.cell(_largest(self.path(answer), "needed_bytes"))

    def compared(self, layout: Layout, chosen: Choices) -> dict[str, Markup | str]:
        """The cells of a layout's row, by column, as the page prints them."""
        path, law = self.path(layout.answer), layout.bounds
        says = f"law_of_time({path}, {_mesh(chosen.cluster)}).at_least"
        read = path, _rates(chosen.device), self.folio
        return {
            "layout": _warned(self.label(layout.answer), layout, numeric(chosen.memory)),
            "needs": self.needs(layout.answer),
            "at_least": _computed(law.at_least, units.SECONDS, says, *read),
            "decided_by": law.decides,
        }

    def measured(self, layout: Layout, chosen: Choices) -> View:
        """A layout to measure: its row, how long steps of published clusters would be, a command.

        The command writes its program; without one, it says why.
        """
        path, found = self.path(layout.answer), rates.range_of(layout.answer, chosen.cluster)
        command = command_of(layout, self.grid.preset)
        says = f"range_of({path}, {_mesh(chosen.cluster)})"
        read = path, _rates(chosen.device), self.folio
        return View(
            **self.compared(layout, chosen),
            said=label(self.label(layout.answer)),
            is_tight=layout.is_tight(numeric(chosen.memory)),
            command=command,
            has_program=command.startswith("python "),
            range=found and [_computed(one, units.SECONDS, says, *read) for one in found[:2]],
            num_clusters=found and counted(found[2]),
        )


def _rates(device: Device) -> tuple[str, str, str]:
    return device.compute, device.link, device.between


def _largest(path: str, measure: str) -> str:
    return f"{path}.ranks | each('measures.{measure}') | largest"


def _computed(
    number: float, unit: Unit, says: str, path: str, rates: Iterable[str], folio: Folio
) -> Markup:
    """What a formula makes of a simulated layout, with what it was made from."""
    read = [_largest(path, "flops"), _largest(path, "sent_bytes"), *rates]
    inputs = tuple(filter(None, map(folio.value, read)))
    return folio.show(computed(number, unit, says, inputs))


def _warned(said: str, layout: Layout, memory_bytes: float) -> Markup:
    """A layout in words; where it leaves little of the device, with a warning."""
    is_tight = layout.verdict == "fits" and layout.is_tight(memory_bytes)
    return label(said) + (NEARLY_FULL if is_tight else "")


def _mesh(cluster: Cluster) -> str:
    return f"{cluster.nodes} × {cluster.per_node}"


def named(run: str, folio: Folio) -> str:
    """A plan by its layout, its model and its devices."""
    name, _, row = run.partition(".")
    plans = Plans(name, folio)
    layout = plans.label(plans.answers[row])
    return f"{layout}, {plans.grid.title}, {plans.settings[row].devices} devices"


def planned_rows(lesson: WhyFile, folio: Folio) -> tuple[list[Row], str]:
    """The layouts that a lesson names, at the size of real models, each once; a caption."""
    rows: dict[str, Row] = {}
    layouts, read = list(planned_in(folio.evidence, lesson)), ("needed_bytes", "flops")
    folio = folio.for_table(folio.value(_largest(one.run, of)) for one in layouts for of in read)
    uses = {one.planned: one.use for one in reversed(lesson.decisions)}
    for one in layouts:
        law, links = one.layout.bounds, one.layout.cluster
        by_law = (
            (WITHIN, law.within * links.within, units.BYTES),
            (BETWEEN, law.between * links.between, units.BYTES),
            (AT_LEAST, law.at_least, units.SECONDS),
        )
        said = Markup('{}<br><a class="pb-label" href="../../{}">{}, {:,} tokens a sample</a>')
        tokens, use = one.layout.answer.question.training.sequence, folio.line(uses[one.run])
        rows[one.run] = [
            said.format(use, folio.place_of(one.run), named(one.run, folio), tokens),
            folio.cell(_largest(one.run, "needed_bytes")),
            *(_computed(num, unit, says, one.run, (), folio) for says, num, unit in by_law),
            counted(len(one.others)),
        ]
    return list(rows.values()), folio.caption


def models(folio: Folio) -> Iterator[Row]:
    """Each model whose plans the book has, with the layout that its page says to try first."""
    assert folio.book.plan is not None
    said = Markup('<a class="pb-label" href="{}">{}</a><br><small class="pb-regime">{} parameters</small>')
    for name in folio.book.plan.models:
        plans = Plans(name, folio)
        first, page = plans.choices[0], folio.book.traces[name].page
        made = first.choice
        options = plans.options(first.setting, first.device.name)
        options["mesh"] += " devices"
        options["sequence"] += " tokens"
        del options["optimizer"]  # the same everywhere
        count = folio.cell(f"{name}.{next(iter(plans.runs))}.settings.num_parameters")
        yield [
            said.format(page, plans.grid.title, count),
            label(" · ".join(options.values())),
            plans.compared(made.measured[0], first)["layout"] if made else label(NOTHING_FITS),
        ]


def planned(name: str, folio: Folio, answer_of: Callable[[View], Markup]) -> View:
    """All that the page of a model shows: what readers choose, and what each choice leads to.

    Args:
        name: of its plans, as expressions call them.
        folio: the page.
        answer_of: prints what a choice leads to.
    """
    folio.unmarked = "simulated"  # the page says it once, of all its numbers
    plans = Plans(name, folio)
    by_size = sorted(plans.choices, key=lambda one: (one.setting[:2], numeric(one.memory)))
    options = {
        id(one): plans.options(one.setting, f"{one.device.name} {one.memory}") for one in by_size
    }
    found = {
        key: list(dict.fromkeys(one[key] for one in options.values()))
        for key in next(iter(options.values()))
    }
    found["optimizer"].sort()  # Adam first
    varied = {key: known for key, known in found.items() if len(known) > 1}
    places = [
        tuple(known.index(options[id(one)][key]) for key, known in varied.items())
        for one in plans.choices
    ]
    drawn = [answer_of(_answer(plans, one)) for one in plans.choices]
    words, path = folio.ui["plan"]["controls"], f"{name}.{next(iter(plans.runs))}.settings"
    precision = plans.plan.words.precision[plans.grid.rows[0].state.precision]
    fixed = {
        "num_parameters": folio.cell(f"{path}.num_parameters"),
        "microbatch": folio.cell(f"{path}.microbatch") + ", one microbatch per device",
        "precision": folio.line(precision),
        **{key: label(known[0]) for key, known in found.items() if key not in varied},
    }
    return View(
        fixed=[(words[key], said) for key, said in fixed.items()],
        controls=[Control(words[key], tuple(known)) for key, known in varied.items()],
        has_gaps=len(places) < math.prod(map(len, varied.values())),
        first=View(at=places[0]),
        drawn=drawn[0],
        script=packed(ID, places, drawn, folio),
        named=list(_named(plans)),
    )


def _named(plans: Plans) -> Iterator[View]:
    """Every row of the grid by its setting, the smallest first: where links to its run lead."""
    by_setting = sorted(
        plans.answers.items(), key=lambda one: (plans.settings[one[0]], needs(one[1]))
    )
    for name, answer in by_setting:
        samples = answer.question.training.microbatch
        said = plans.label(answer) + (f", microbatches of {samples}" if samples > 1 else "")
        yield View(
            run=name,
            path=breakable(f"{plans.name}.{name}"),
            says=" · ".join([said, *plans.options(plans.settings[name]).values()]),
            needs=plans.needs(answer),
        )


# --- what a choice leads to


def _answer(plans: Plans, chosen: Choices) -> View:
    """What to measure, the best layout of each strategy, and bars."""
    made, memory = chosen.choice, numeric(chosen.memory)
    of_each: dict[str, Layout] = {}  # the first layout of each strategy, in their order
    for one in made.fitting if made else ():
        of_each.setdefault(one.strategy, one)
    best = list(of_each.values())[:MOST]
    drawn = _drawn(chosen, best)
    named = [
        (plans.label(one), plans.runs[plans.path(one).partition(".")[2]], verdict(one, memory))
        for one in drawn
    ]
    device = chosen.device
    return View(
        memory=plans.folio.show(chosen.memory) if made else None,
        measured=[plans.measured(one, chosen) for one in made.measured] if made else [],
        is_ordered=bool(made and made.is_ordered),
        rows=[list(plans.compared(one, chosen).values()) for one in best],
        least=None if made else plans.needs(min(chosen.answers, key=needs)),
        bars=bars(named, memory, plans.folio).svg(ID, TITLE),
        is_cut=needs(max(drawn, key=needs)) > memory * LONGEST,
        compute=plans.folio.cell(device.compute),
        link=plans.folio.cell(device.link),
        between=plans.folio.cell(device.between),
        num_simulated=len(chosen.answers),
        num_fitting=len(made.fitting) if made else 0,
    )


def _drawn(chosen: Choices, best: Sequence[Layout]) -> list[Answer]:
    """The best layouts, and those of strategies of one axis that do not fit, for bars."""
    fitting = {one.strategy for one in best}
    others: dict[str, Answer] = {}
    for one in sorted(chosen.answers, key=needs):
        name, is_over = one.question.strategy.name, verdict(one, numeric(chosen.memory)) != "fits"
        if is_over and "+" not in name and name not in fitting:
            others.setdefault(name, one)
    return [*(one.answer for one in best), *others.values()]
