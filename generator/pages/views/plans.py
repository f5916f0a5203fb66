"""The pages of plans: which layout to try first for a model on some devices, and what to measure.

In: the committed plans of the book, planner/plan.yml, and the choice that the command `plan` makes
of the same answers. Out: a row for each model; for each choice of devices, memory, tokens and
optimizer the layouts to measure, bars, and what fits; and the layouts that a lesson names.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from markupsafe import Markup

from generator.checks.lesson_checks import planned as planned_in
from generator.content.lesson import WhyFile
from generator.content.plan_page import Device
from generator.figures.play.bar_views import MOST as LONGEST
from generator.figures.play.bar_views import plans as bars
from generator.figures.play.frame import packed
from generator.figures.play.states import Control
from generator.pages.view import Row, View, counted, label
from generator.printing.folio import Folio, breakable
from generator.printing.markdown import plain
from generator.values import units
from generator.values.filters import each, largest
from generator.values.units import Unit
from generator.values.value import Value, computed, numeric
from runners.planner.answers import rates
from runners.planner.answers.answer import Layout, PlanAnswer, answers_of, needs, verdict
from runners.planner.answers.law_of_time import Cluster
from runners.planner.answers.plan_grid import named_rows
from runners.planner.answers.question import PlanError
from runners.planner.answers.search import LayoutChoice, choose
from runners.planner.program import command_of

ID = "plan"
TITLE = "What each layout needs, simulated"  # of the bars
BY_LAW = {
    "A device sends within its node": units.BYTES, "A node sends to others": units.BYTES,
    "A step, at least": units.SECONDS,
}  # fmt: skip
LAYOUTS = "Layout", "#A rank needs", *(f"#{measure}" for measure in BY_LAW), "#Other layouts"
MODEL = Markup('<a class="pb-label" href="{}">{}</a><br><small>{} parameters</small>')
NEARLY_FULL = Markup("<br><b>nearly fills the device</b>")
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
    answers: list[PlanAnswer]

    @property
    def choice(self) -> LayoutChoice | None:
        """`LayoutChoice` by `choose`, of answers that use all devices; None where nothing fits."""
        num, answers = self.setting.devices, self.answers  # of which none may stay idle
        busy = [answer for answer in answers if answer.question.strategy.num_devices == num]
        try:
            return choose(busy, self.cluster, numeric(self.memory))
        except PlanError:
            return None


class Plans:
    """The committed plans of one model on one page."""

    def __init__(self, name: str, folio: Folio) -> None:
        """Keep a model's runs, answers and settings; expressions call its plans by `name`."""
        trace = folio.book.traces[name]
        assert trace.grid is not None
        assert folio.book.plan is not None
        self.name, self.grid, self.runs = name, trace.grid, trace.trace.runs
        self.folio, self.plan = folio, folio.book.plan
        self.usual = f"{name}.{next(iter(self.runs))}"  # has the settings that all runs have
        self.answers = answers_of(self.grid)
        self.settings = {
            name: Setting(row.state.devices, row.state.sequence, row.state.optimizer)
            for name, row in named_rows(self.grid).items()
        }

    @cached_property
    def choices(self) -> list[Choices]:
        """`Choices` for each device in each setting of several layouts; the first is shown."""
        by_setting: dict[Setting, list[PlanAnswer]] = {}
        for name, answer in self.answers.items():
            by_setting.setdefault(self.settings[name], []).append(answer)
        return [
            Choices(setting, self.cluster(setting, each), each, self.known(each.memory), answers)
            for setting, answers in by_setting.items() if len(answers) > 1
            for each in self.plan.devices
        ]  # fmt: skip

    def cluster(self, setting: Setting, device: Device) -> Cluster:
        """The nodes that so many of these devices fill, at their rates."""
        rates = (numeric(self.known(rate)) for rate in device.rates)
        return Cluster(1, self.plan.per_node, *rates).with_devices(setting.devices)

    def options(self, setting: Setting, memory: str = "") -> dict[str, str]:
        """By control, the words of a setting: mesh, `memory` if given, sequence, optimizer."""
        optimizer = self.plan.words.optimizer.get(setting.optimizer, setting.optimizer)
        mesh = _mesh(self.cluster(setting, self.plan.devices[0]))
        return {
            "mesh": mesh,
            **({"memory": memory} if memory else {}),
            "sequence": f"{setting.sequence:,}",
            "optimizer": plain(self.folio.line(optimizer)),
        }

    def known(self, expression: str) -> Value:
        """A value that every book with plans has."""
        value = self.folio.value(expression)
        assert value is not None, expression
        return value

    def setting(self, name: str) -> Markup:
        """A setting that all runs of the model share."""
        return self.folio.printed(self.folio.reading(self.usual, "settings", name))

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
            axes.append(f"{word} ({' × '.join(sizes)})" if has_sizes else word)
        training = answer.question.training
        own = [words.checkpointed] if training.checkpointing != "none" else []
        if training.microbatch != self.grid.microbatch:
            own.append(f"microbatch {training.microbatch}")
        return ", ".join([" × ".join(axes), *own])

    def needs(self, answer: PlanAnswer) -> Markup:
        """What the rank with the highest demand needs of its device."""
        return self.folio.printed(_largest(self.path(answer), "needed_bytes", self.folio))

    def compared(self, layout: Layout, chosen: Choices) -> dict[str, Markup | str]:
        """By column, a layout's cells: words, bytes needed, least seconds, and the bottleneck."""
        is_tight = layout.is_tight(numeric(chosen.memory))
        return {
            "layout": label(self.label(layout.answer)) + (NEARLY_FULL if is_tight else ""),
            "needs": self.needs(layout.answer),
            "at_least": self.seconds(layout.bounds.at_least, "law_of_time", layout, chosen),
            "decided_by": layout.bounds.bottleneck,
        }

    def measured(self, layout: Layout, chosen: Choices) -> View:
        """`View` of a layout to measure: its cells, range of time, and its program's command."""
        reached = rates.range_of(layout.answer, chosen.cluster)
        command = command_of(layout, self.grid.preset)
        return View(
            **self.compared(layout, chosen),
            said=label(self.label(layout.answer)),
            is_tight=layout.is_tight(numeric(chosen.memory)),
            command=command,
            has_program=command.startswith("python "),  # else it says why there is none
            range=reached and [self.seconds(s, "range_of", layout, chosen) for s in reached[:2]],
            num_clusters=reached and label(str(reached[2])),
        )

    def seconds(self, number: float, says: str, layout: Layout, chosen: Choices) -> Markup:
        """What a formula gives for a layout on the devices that are chosen."""
        path = self.path(layout.answer)
        says = f"{says}({path}, {_mesh(chosen.cluster)})"
        return _computed(number, units.SECONDS, says, path, chosen.device.rates, self.folio)


def _largest(path: str, measure: str, folio: Folio) -> Value | None:
    measures = f"measures.{measure}"
    return folio.reading(path, "ranks", by=lambda ranks: largest(each(ranks, measures)))


def _computed(
    number: float, unit: Unit, says: str, path: str, rates: Iterable[str], folio: Folio
) -> Markup:
    """What a formula makes of a simulated layout, with what it was made from."""
    of_plan = [_largest(path, measure, folio) for measure in ("flops", "sent_bytes")]
    inputs = tuple(filter(None, [*of_plan, *map(folio.value, rates)]))
    return folio.show(computed(number, unit, says, inputs))


def _mesh(cluster: Cluster) -> str:
    return f"{cluster.nodes} × {cluster.per_node}"


def named(run: str, folio: Folio) -> str:
    """A plan by its layout, its model and its devices."""
    plans, row = Plans(run.partition(".")[0], folio), run.partition(".")[2]
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
        law, links = planned.layout.bounds, planned.layout.cluster
        by_law = law.within * links.within, law.between * links.between, law.at_least
        training, run = planned.layout.answer.question.training, planned.run
        use = folio.line(uses[run])
        numbers = zip(by_law, BY_LAW.items(), strict=True)
        rows[run] = [
            text.format(use, folio.place_of(run), named(run, folio), training.sequence),
            folio.printed(_largest(run, "needed_bytes", folio)),
            *(_computed(num, unit, says, run, (), folio) for num, (says, unit) in numbers),
            counted(len(planned.others)),
        ]
    return list(rows.values()), folio.caption


def models(folio: Folio) -> Iterator[Row]:
    """Yield a row for each planned model: its link, first choice, and layout to try first there."""
    assert folio.book.plan is not None
    for name in folio.book.plan.models:
        plans = Plans(name, folio)
        first, made = plans.choices[0], plans.choices[0].choice
        options = plans.options(first.setting, first.device.name)
        page, count = folio.book.traces[name].page, plans.setting("num_parameters")
        yield [
            MODEL.format(page, plans.grid.title, count),
            label(f"{options['mesh']} {first.device.name}, {options['sequence']} tokens"),
            plans.compared(made.measured[0], first)["layout"] if made else label(NOTHING_FITS),
        ]


def planned(name: str, folio: Folio, answer_of: Callable[[View], Markup]) -> View:
    """`View` of a model's page: fixed settings, controls, first answer, script with all."""
    folio.unmarked = "simulated"  # the page says it once, of all its numbers
    plans = Plans(name, folio)
    options = [plans.options(c.setting, f"{c.device.name} {c.memory}") for c in plans.choices]
    pairs = zip(plans.choices, options, strict=True)
    sized = sorted(pairs, key=lambda pair: (pair[0].setting[:2], numeric(pair[0].memory)))
    values = {key: list(dict.fromkeys(words[key] for _, words in sized)) for key in options[0]}
    values["optimizer"].sort()  # Adam first
    varied = {key: known for key, known in values.items() if len(known) > 1}
    places = [tuple(known.index(words[key]) for key, known in varied.items()) for words in options]
    drawn = [answer_of(_answer(plans, chosen)) for chosen in plans.choices]
    words = folio.ui["plan"]["controls"]
    precision = plans.plan.words.precision[plans.grid.rows[0].state.precision]
    fixed = {
        "num_parameters": plans.setting("num_parameters"),
        "microbatch": plans.setting("microbatch") + ", one microbatch per device",
        "precision": folio.line(precision),
        **{key: label(known[0]) for key, known in values.items() if key not in varied},
    }
    return View(
        fixed=[(words[key], text) for key, text in fixed.items()],
        controls=[Control(words[key], tuple(known)) for key, known in varied.items()],
        has_gaps=len(places) < math.prod(map(len, varied.values())),
        first=View(at=places[0]),
        drawn=drawn[0],
        script=packed(ID, places, drawn, folio),
        named=list(_named(plans)),
    )


def _named(plans: Plans) -> Iterator[tuple[str, Markup, str, Markup]]:
    """Every row of the grid by its setting, the smallest first: where links to its run lead."""
    pairs = plans.answers.items()
    for name, answer in sorted(pairs, key=lambda pair: (plans.settings[pair[0]], needs(pair[1]))):
        says = " · ".join([plans.label(answer), *plans.options(plans.settings[name]).values()])
        yield name, breakable(f"{plans.name}.{name}"), says, plans.needs(answer)


# --- what a choice leads to


def _answer(plans: Plans, chosen: Choices) -> View:
    """What to measure, the best layout of each strategy, and bars."""
    made, memory = chosen.choice, numeric(chosen.memory)
    fitting = made.fitting if made else []
    first = {layout.strategy: layout for layout in reversed(fitting)}
    best = [layout for layout in fitting if first[layout.strategy] is layout][:MOST]
    drawn = _drawn(chosen, best)
    runs = [plans.runs[plans.path(answer).partition(".")[2]] for answer in drawn]
    named = [(plans.label(a), b, verdict(a, memory)) for a, b in zip(drawn, runs, strict=True)]
    return View(
        device=chosen.device,
        memory=plans.folio.show(chosen.memory) if made else None,
        measured=[plans.measured(layout, chosen) for layout in made.measured] if made else [],
        is_ordered=bool(made and made.is_ordered),
        rows=[list(plans.compared(layout, chosen).values()) for layout in best],
        least=None if made else plans.needs(min(chosen.answers, key=needs)),
        bars=bars(named, memory, plans.folio).svg(ID, TITLE),
        is_cut=needs(max(drawn, key=needs)) > memory * LONGEST,
        num_simulated=len(chosen.answers),
        num_fitting=len(fitting),
    )


def _drawn(chosen: Choices, best: Sequence[Layout]) -> list[PlanAnswer]:
    """The best layouts, and those of strategies of one axis that do not fit, for bars."""
    drawn = {layout.strategy: layout.answer for layout in best}
    for answer in sorted(chosen.answers, key=needs):
        name = answer.question.strategy.name
        if verdict(answer, numeric(chosen.memory)) != "fits" and "+" not in name:
            drawn.setdefault(name, answer)
    return list(drawn.values())
