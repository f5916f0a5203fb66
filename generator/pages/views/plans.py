"""The pages of plans: which layout to take for a model on some devices, and what speaks for it.

In: the committed plans of the book, what planner/plan.yml says, and the recommendation that the
command `plan` makes of the same answers. Out: a row for each model; and for each choice of devices,
memory, tokens and optimizer the recommendation, bars, and a table of what fits.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from markupsafe import Markup, escape

from generator.content.plan_page import Device, PlanFile
from generator.content.typesetting import plain
from generator.evidence import units
from generator.evidence.folio import Folio, breakable
from generator.evidence.play_states import Control
from generator.evidence.value import Value, computed, numeric
from generator.figures.play.frame import packed
from generator.figures.play.plan_view import MOST as AXIS
from generator.figures.play.plan_view import Bar, bars, fullest
from generator.pages.shown import Shown
from generator.pages.table import Column, Row, counted, label, table
from runners.planning.answer import Answer
from runners.planning.committed import answers_of
from runners.planning.law_of_time import Bounds, Cluster
from runners.planning.question import PlanError
from runners.planning.recommendation import Choice, Turn, choice, longer_by
from runners.planning.table import GIB, Layout, needs, verdict
from runners.traces.plan_grid import named_rows

ID = "plan"
MOST = 8  # layouts that fit, of which bars and the table show the best


class Setting(NamedTuple):
    """What readers choose beside the memory of a device."""

    devices: int
    sequence: int
    optimizer: str


class Asked(NamedTuple):
    """A choice of all controls, and the answers that compete in it."""

    setting: Setting
    cluster: Cluster
    device: Device
    memory: Value
    answers: list[Answer]

    @property
    def choice(self) -> Choice | None:
        """The recommendation, as the command makes it; None where nothing fits."""
        try:
            return choice(self.answers, self.cluster, numeric(self.memory))
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
        self.name, self.grid, self.runs = name, shown.grid, shown.trace.runs
        self.folio, self.words = folio, folio.ui["plan"]
        self.answers = answers_of(self.grid)
        self.settings = {
            name: Setting(row.state.devices, row.state.sequence, row.state.optimizer)
            for name, row in named_rows(self.grid).items()
        }

    @property
    def plan(self) -> PlanFile:
        """What the author says."""
        assert self.folio.book.plan is not None
        return self.folio.book.plan

    @cached_property
    def asked(self) -> list[Asked]:
        """Every choice among several layouts; the page begins with the first one."""
        found: dict[Setting, list[Answer]] = {}
        for name, answer in self.answers.items():
            found.setdefault(self.settings[name], []).append(answer)
        return [
            Asked(
                setting, self.cluster(setting, device), device, self.known(device.memory), answers
            )
            for setting, answers in found.items()
            if len(answers) > 1
            for device in self.plan.devices
        ]  # fmt: skip

    def cluster(self, setting: Setting, device: Device) -> Cluster:
        """The nodes that so many of these devices fill, at their rates."""
        rates = (device.compute, device.link, device.between)
        node = Cluster(1, self.plan.per_node, *(numeric(self.known(one)) for one in rates))
        return node.of(setting.devices)

    def words_of(self, setting: Setting) -> dict[str, str]:
        """A setting as readers see it, by control."""
        path = next(name for name, one in self.settings.items() if one == setting)
        optimizer = self.plan.words.optimizer.get(setting.optimizer, setting.optimizer)
        return {
            "mesh": _mesh(self.cluster(setting, self.plan.devices[0])),
            "sequence": str(self.known(f"{self.name}.{path}.settings.sequence")),
            "optimizer": plain(self.folio.line(optimizer)),
        }

    def known(self, expression: str) -> Value:
        """A value that every book with plans has."""
        value = self.folio.value(expression)
        assert value is not None, expression
        return value

    def run_of(self, answer: Answer) -> str:
        """The name of an answer's run."""
        return next(name for name, one in self.answers.items() if one is answer)

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
        name = self.run_of(answer)
        at = self.runs[name].ranks.index(fullest(self.runs[name]))
        return self.folio.cell(f"{self.name}.{name}.ranks[{at}].measures.needed_bytes")

    def seconds(self, layout: Layout, bound: str, asked: Asked) -> Markup:
        """A bound of a layout's step, and what the law of time makes it of."""
        name, ranks = self.run_of(layout.answer), layout.answer.ranks
        computing = max(range(len(ranks)), key=lambda at: ranks[at].flops)
        sending = max(range(len(ranks)), key=lambda at: ranks[at].sent_bytes)
        path = f"{self.name}.{name}"
        read = [
            f"{path}.ranks[{computing}].measures.flops",
            *(
                f"{path}.ranks[{sending}].collectives['{one.operation}'].bytes"
                for one in self.runs[name].ranks[sending].collectives
            ),
            asked.device.compute,
            asked.device.link,
            *([asked.device.between] if asked.cluster.nodes > 1 else []),
        ]
        of = f"law_of_time({path}, {_mesh(asked.cluster)}).{bound}"
        inputs = tuple(map(self.known, read))
        return self.folio.show(computed(getattr(layout.bounds, bound), units.SECONDS, of, inputs))


def models(folio: Folio) -> Markup:
    """Each model whose plans the book has, with the layout that its page recommends first."""
    words = folio.ui["plan"]
    columns = [
        Column(words["model"], False), Column(words["parameters"]),
        Column(words["first"], False), Column(words["recommended"], False),
    ]  # fmt: skip
    assert folio.book.plan is not None
    names = (name for name in folio.book.plan.models if name in folio.book.traces)
    return table(columns, (_model(Plans(name, folio)) for name in names))


def _model(plans: Plans) -> Row:
    first, folio = plans.asked[0], plans.folio
    made = first.choice
    options = _options(plans, first) | {"memory": first.device.name}
    options["sequence"] += f" {folio.ui['steps']['tokens']}"
    best = plans.label(made.best.answer) if made else plans.words["nothing_fits"]
    page = folio.book.traces[plans.name].page
    return [
        Markup('<a class="pb-label" href="{}">{}</a>').format(page, plans.grid.title),
        folio.cell(f"{plans.name}.{next(iter(plans.runs))}.settings.num_parameters"),
        label(" · ".join(options.values())),
        label(best),
    ]


def title(name: str | None, folio: Folio) -> Markup:
    """The title of a model's page, in which its name may hold a number."""
    plans = Plans(name or "", folio)
    return Markup(escape(plans.plan.model_title)).replace("{model}", label(plans.grid.title))


def planned(name: str, folio: Folio) -> Shown:
    """All that the page of a model shows: what readers choose, and what each choice leads to.

    Args:
        name: of its plans, as expressions call them.
        folio: the page.
    """
    folio.text.unmarked = "simulated"  # the page says it once, of all its numbers
    plans = Plans(name, folio)
    options = [_options(plans, one) for one in plans.asked]
    by_size = sorted(plans.asked, key=lambda one: (one.setting[:2], numeric(one.memory)))
    ordered = [_options(plans, one) for one in by_size]
    found = {key: list(dict.fromkeys(one[key] for one in ordered)) for key in options[0]}
    found["optimizer"].sort()  # Adam first
    varied = {key: known for key, known in found.items() if len(known) > 1}
    places = [tuple(known.index(one[key]) for key, known in varied.items()) for one in options]
    drawn = [_answer(plans, one) for one in plans.asked]
    path = f"{name}.{next(iter(plans.runs))}.settings"
    words = folio.ui["plan"]["controls"]
    fixed = [(words[key], folio.cell(f"{path}.{key}")) for key in ("num_parameters", "microbatch")]
    precision = plans.plan.words.precision[plans.grid.rows[0].state.precision]
    fixed.append((words["precision"], folio.line(precision)))
    fixed += [(words[key], label(said)) for key, said in options[0].items() if key not in varied]
    return Shown(
        fixed=fixed,
        controls=[Control(words[key], tuple(known)) for key, known in varied.items()],
        has_gaps=len(places) < math.prod(map(len, varied.values())),
        first=Shown(at=places[0]),
        drawn=drawn[0],
        script=packed(ID, places, drawn, folio),
        named=list(_named(plans)),
    )


def _options(plans: Plans, asked: Asked) -> dict[str, str]:
    """What a choice is of each control, as readers see it."""
    mesh, *others = plans.words_of(asked.setting).items()
    return dict([mesh, ("memory", f"{asked.device.name} {asked.memory}"), *others])


def _named(plans: Plans) -> Iterator[Shown]:
    """Every row of the grid by its setting, the smallest first: where links to its run lead."""
    by_setting = sorted(
        plans.answers.items(), key=lambda one: (plans.settings[one[0]], needs(one[1]))
    )
    for name, answer in by_setting:
        samples = answer.question.training.microbatch
        said = plans.label(answer) + (f", microbatches of {samples}" if samples > 1 else "")
        yield Shown(
            run=name,
            path=breakable(f"{plans.name}.{name}"),
            says=" · ".join([said, *plans.words_of(plans.settings[name]).values()]),
            needs=plans.needs(answer),
        )


# --- what a choice leads to


def _answer(plans: Plans, asked: Asked) -> Markup:
    """The recommendation first, then bars, then the table."""
    made = asked.choice
    best = _of_each_strategy(made.fitting)[:MOST] if made else []
    said = _recommended(plans, asked, made) if made else _refused(plans, asked)
    listed = _compared(plans, asked, best) if best else ""
    return Markup("{}\n{}\n{}\n{}").format(
        said, _drawn(plans, asked, best), listed, _counts(plans, asked, made)
    )


def _of_each_strategy(found: Sequence[Layout]) -> list[Layout]:
    """The best layout of each strategy, in their order."""
    best: dict[str, Layout] = {}
    for one in found:
        best.setdefault(one.strategy, one)
    return list(best.values())


def _recommended(plans: Plans, asked: Asked, made: Choice) -> Markup:
    """The layout, its reason, the runner-up, and what would turn the choice."""
    words = plans.words

    def numbers(layout: Layout) -> dict[str, object]:
        return {
            "layout": label(plans.label(layout.answer)),
            "needs": plans.needs(layout.answer),
            "memory": plans.folio.show(asked.memory),
            "at_least": plans.seconds(layout, "at_least", asked),
            "at_most": plans.seconds(layout, "at_most", asked),
            "part": words["parts"][decided_by(layout.bounds)],
        }

    reason = words["reason"]
    if made.runner_up and made.best.is_tight(numeric(asked.memory)):
        reason += words["tight"]
    lines = [(words["recommended"], reason, numbers(made.best))]
    if made.runner_up is not None:
        why = words["later"][longer_by(made.runner_up, made.best)]
        lines.append((words["runner_up"], why, numbers(made.runner_up)))
    if made.turns:
        turns = "; ".join(_turned(plans, one) for one in made.turns)
        lines.append((words["turns"], "{turns}.", {"turns": label(turns)}))
    return Markup('<dl class="pb-advice">{}</dl>').format(
        Markup("").join(
            Markup("<div><dt>{}</dt><dd>{}</dd></div>").format(head, Markup(text).format(**values))
            for head, text, values in lines
        )
    )


def decided_by(bounds: Bounds) -> str:
    """The part of a step that its lower bound is, as `ui.yml` calls it."""
    has_to_wait = bounds.waiting and bounds.at_least == bounds.computing + bounds.waiting
    return "computing and waiting" if has_to_wait else bounds.decides


def _turned(plans: Plans, one: Turn) -> str:
    words = plans.words
    what = words["turn_links"] if one.between else words["turn_memory"]
    layout = plans.label(one.best.answer) if one.best else words["nothing_fits"]
    size = f"{one.between / 1e9:.3g}" if one.between else f"{one.memory_bytes / GIB:.4g}"
    return str(what.format(size=size, layout=layout))


def _refused(plans: Plans, asked: Asked) -> Markup:
    """That nothing fits, and the least that would."""
    least = plans.needs(min(asked.answers, key=needs))
    return Markup('<dl class="pb-advice"><div><dt>{}</dt><dd>{}</dd></div></dl>').format(
        plans.words["nothing_fits"], Markup(plans.words["least"]).format(needs=least)
    )


def _drawn(plans: Plans, asked: Asked, best: Sequence[Layout]) -> Markup:
    """Bars of the best layouts, and of strategies of one axis that do not fit."""
    memory = numeric(asked.memory)
    fitting = {one.strategy for one in best}
    others: dict[str, Answer] = {}
    for one in sorted(asked.answers, key=needs):
        name, is_over = one.question.strategy.name, verdict(one, memory) != "fits"
        if is_over and "+" not in name and name not in fitting:
            others.setdefault(name, one)
    shown = [*(one.answer for one in best), *others.values()]
    found = bars(
        [Bar(plans.label(a), plans.runs[plans.run_of(a)], verdict(a, memory)) for a in shown],
        memory,
        plans.folio,
    )
    title, caption = plans.words["bars"], plans.folio.line(plans.plan.caption)
    if needs(max(shown, key=needs)) > memory * AXIS:
        caption += " " + plans.words["cut"]
    return Markup('<p class="pb-view">{}</p>{}<p class="pb-caption">{}</p>').format(
        title, found.svg(ID, title), caption
    )


def _compared(plans: Plans, asked: Asked, best: Sequence[Layout]) -> Markup:
    """The table of what one compares, in the order of the command's."""
    words = plans.words
    columns = [
        Column(words["layout"], False), Column(words["needs"]), Column(words["at_least"]),
        Column(words["at_most"]), Column(words["decided_by"], False),
    ]  # fmt: skip
    rows = (
        (
            label(plans.label(one.answer)),
            plans.needs(one.answer),
            plans.seconds(one, "at_least", asked),
            plans.seconds(one, "at_most", asked),
            words["parts"][decided_by(one.bounds)],
        )
        for one in best
    )
    return table(columns, rows, is_found=False)


def _counts(plans: Plans, asked: Asked, made: Choice | None) -> Markup:
    """How many layouts competed, and the command that searches more of them."""
    grid, setting = plans.grid, asked.setting
    command = (
        f".venv/bin/python -m runners plan {grid.preset} --devices {_mesh(asked.cluster, 'x')}"
        f" --memory {numeric(asked.memory) / GIB:.4g} --sequence {setting.sequence}"
        f" --microbatch {grid.microbatch} --optimizer {setting.optimizer}"
    )
    if asked.device is not plans.plan.devices[0]:  # whose rates are the command's own
        command += (
            f" --flops {asked.cluster.flops:.4g}"
            f" --links {asked.cluster.within / 1e9:g},{asked.cluster.between / 1e9:g}"
        )
    return Markup('<p class="pb-aside">{} {} <code>{}</code></p>').format(
        _rates(plans, asked),
        Markup(plans.words["counts"]).format(
            n=counted(len(asked.answers)), m=counted(len(made.fitting) if made else 0)
        ),
        command,
    )


def _rates(plans: Plans, asked: Asked) -> Markup:
    """At which rates the bounds are computed."""
    device, show = asked.device, plans.folio.cell
    return Markup(plans.words["rates"]).format(
        compute=show(f"({device.compute}) / 1000000000000"),
        link=show(f"({device.link}) / 1000000000"),
        between=show(f"({device.between}) / 1000000000"),
    )


def _mesh(cluster: Cluster, sign: str = " × ") -> str:
    return f"{cluster.nodes}{sign}{cluster.per_node}"
