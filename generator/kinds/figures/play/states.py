"""The states of a figure that readers operate: controls and runs → which runs a state shows.

Where a run belongs follows from what each control reads of it, so no author can put it elsewhere.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import inf, prod

from proofbook.generator.content.errors import nearest
from proofbook.generator.content.exhibit import Figure, Play, PlayControl, View
from proofbook.generator.content.yaml_source import Mistake, Path
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.values.value import Value
from proofbook.runners.core.trace.records import Run
from proofbook.runners.core.trace.schema import Setting

# The strategies whose step the rule of a view computes.
RULES: dict[View, tuple[str, ...]] = {
    "schedule": ("gpipe", "one_f_one_b"),
    "overlap": ("ddp", "after_backward"),
    "units": ("fsdp", "fsdp_kept"),
    "arrivals": ("gather_first", "multiply_as_it_arrives"),
    "turns": ("in_turn", "overlapped"),
}
# What a view is drawn from and not every run has, as an expression over the run.
NEEDED: dict[View, str] = {
    "loss": "run.step_losses[0]",
    "schedule": "run.settings.backward_ratio",
    "overlap": "run.settings.reducing_seconds",
    "units": "run.ranks[0].memory.peak_bytes",
    "block": "run.settings.hidden_state_bytes",
    "scores": "run.ranks[0].measures.turn_scores[0]",
}


@dataclass(frozen=True)
class Control:
    """A choice: its name, and its options as readers see them."""

    label: str
    options: tuple[str, ...]


@dataclass(frozen=True)
class LabelledRun:
    """A run of a state; `label` tells it apart from the runs that are drawn beside it."""

    path: str
    run: Run
    label: str


@dataclass(frozen=True)
class PlayState:
    """One option of each control, and the runs that it shows."""

    at: tuple[int, ...]
    runs: tuple[LabelledRun, ...]


def states(figure: Figure, folio: Folio) -> tuple[list[Control], list[PlayState]]:
    """Pair: a figure's `Control`s; a `PlayState` for each combination of options that completed."""
    assert figure.play is not None
    play, evidence = figure.play, folio.evidence
    runs = {path: run for path in figure.runs if (run := folio.run(path))}
    measured = {path: run for path, run in runs.items() if run.status == "completed"}
    options = [_options(control, [*measured], evidence) for control in play.controls]
    by_options: dict[tuple[int, ...], list[LabelledRun]] = {}
    for path, run in measured.items():
        words = [option_of(control, path, evidence) for control in play.controls]
        at = tuple(known.index(word) for known, word in zip(options, words, strict=True))
        label = option_of(play.beside, path, evidence) if play.beside else ""
        by_options.setdefault(at, []).append(LabelledRun(path, run, label))
    all_states = [PlayState(at, tuple(runs)) for at, runs in by_options.items()]
    controls = [
        Control(evidence.plain(control.label), tuple(known))
        for control, known in zip(play.controls, options, strict=True)
    ]
    return controls, all_states


def first_alone(figure: Figure, folio: Folio) -> Figure:
    """A play's `Figure` with the runs of its first state only; any other figure as it is.

    A page without choices uses no run of the other states, so nothing is noted about these. A run
    of the first state that did not complete stays in it.
    """
    play, evidence = figure.play, folio.evidence
    runs = {path: run for path in figure.runs if (run := evidence.book.run(path)) is not None}
    first = next((path for path, run in runs.items() if run.status == "completed"), None)
    if play is None or first is None:
        return figure
    at = {path: [option_of(control, path, evidence) for control in play.controls] for path in runs}
    alone = [path for path in runs if at[path] == at[first]]
    return figure.model_copy(update={"runs": alone})


def reported(run: Run) -> list[dict[str, Setting]]:
    """A `list` of what the program of a run reported of each rank, by name; of nothing if none."""
    facts = next((step.facts for step in run.prediction if step.name == "report"), {})
    starts = [f"rank_{rank}_" for rank in range(run.world_size)]
    return [
        {name.removeprefix(start): fact for name, fact in facts.items() if name.startswith(start)}
        for start in starts
    ]


def option_of(control: PlayControl, path: str, evidence: Evidence) -> str:
    """The option of a control, in words, that the run at `path` stands for; empty for none."""
    if control.reads is None:
        return evidence.plain(control.words.get(path, ""))
    value = evidence.value(control.reads, path)
    word = str(value) if value else ""
    return evidence.plain(control.words[word]) if word in control.words else word


def faults(figure: Figure, evidence: Evidence) -> Iterator[Mistake]:
    """Yield a play's mistakes as field path and message: unprintable expressions, equal states."""
    play = figure.play
    if play is None:
        return
    paths_by_state: dict[tuple[str, ...], str] = {}
    controls = list(play.named_controls.values())
    for path in figure.runs:
        if evidence.book.run(path) is None:
            continue  # reported where it is named
        failed = list(_faults_of_run(play, path, evidence))
        yield from failed
        if failed:
            return
        at = tuple(option_of(control, path, evidence) for control in controls)
        if "" in at:
            yield ("play",), f"{path} has no option of {controls[at.index('')].label!r}"
        elif at in paths_by_state:
            options = ", ".join(at) or "no control"
            yield ("play",), f"{path} is the same state as {paths_by_state[at]}: {options}"
        paths_by_state.setdefault(at, path)
    yield from _unread_words(figure, play, evidence)
    yield from _faults_of_meshes(figure, play, evidence)


def _unread_words(figure: Figure, play: Play, evidence: Evidence) -> Iterator[Mistake]:
    """Words of a control for values or runs that the figure does not have."""
    for at, control in play.named_controls.items():
        runs = [path for path in figure.runs if evidence.book.run(path)]  # others are reported
        read = (evidence.value(control.reads, path) if control.reads else path for path in runs)
        known = [str(value) for value in read if value is not None]
        for word in control.words if len(known) == len(figure.runs) else ():
            if word not in known:
                message = (
                    f"{control.label!r} has no {word!r}{nearest(word, known) or '; delete it'}"
                )
                yield (*at, "words", word), message


def _faults_of_run(play: Play, path: str, evidence: Evidence) -> Iterator[Mistake]:
    """Expressions of a play that cannot be printed for a run; views without a rule for it."""
    read: dict[Path, str | None] = {
        ("play", "facts", position, "value"): fact.value for position, fact in enumerate(play.facts)
    }
    read |= {(*at, "reads"): control.reads for at, control in play.named_controls.items()}
    run = evidence.book.run(path)
    for position, view in enumerate(play.shows):
        read["play", "shows", position] = NEEDED.get(view)
        if run and view in RULES and run.strategy not in RULES[view]:
            message = f"{view} has no rule for {path}, a run of {run.strategy!r}; it has one for "
            yield ("play", "shows", position), message + " and ".join(RULES[view])
    of_ranks = reported(run) if run and run.status == "completed" else []
    for at, name in _named_facts(play):
        if any(name not in facts for facts in of_ranks):
            yield at, f"{path} reports no {name!r}{nearest(name, of_ranks[0])}"
    read |= dict(_read_of_meshes(play, path, evidence))
    for at, expression in read.items():
        evaluated = evidence.evaluate(expression, path) if expression else None
        if evaluated and (problem := evidence.why_unprintable(evaluated)):
            yield at, f"for {path}: {expression}: {problem}"


def _named_facts(play: Play) -> Iterator[tuple[Path, str]]:
    """Names in the report of a run, by where they stand in a figure."""
    for position, cell in enumerate(play.cells):
        yield ("play", "cells", position, "fact"), cell.fact
    if play.line:
        yield ("play", "line", "wanted"), play.line.wanted
        for position, row in enumerate(play.line.rows):
            at = "play", "line", "rows", position
            yield from (((*at, "numbers"), row.numbers), ((*at, "held"), row.held))


def num_ranks(size: int | str, path: str, evidence: Evidence) -> int:
    """A size of a mesh, of an axis or of a node, in the run at `path`; 0 if it is no count."""
    value = evidence.evaluate(size, path).result if isinstance(size, str) else size
    number = value.number if isinstance(value, Value) else value
    return number if isinstance(number, int) else 0


def _read_of_meshes(play: Play, path: str, evidence: Evidence) -> Iterator[tuple[Path, str | None]]:
    """What axes pass and take; an axis of one rank does neither."""
    for place, mesh in enumerate(play.meshes):
        for position, axis in enumerate(mesh.axes):
            if num_ranks(axis.size, path, evidence) > 1:
                at = "play", "meshes", place, "axes", position
                yield (*at, "passes"), axis.passes
                yield (*at, "term", "value"), axis.term.value if axis.term else None


def _faults_of_meshes(figure: Figure, play: Play, evidence: Evidence) -> Iterator[Mistake]:
    """Meshes that have other ranks than a run, leave a part of a node, or exchange nothing."""
    runs = {path: run for path in figure.runs if (run := evidence.book.run(path))}
    for place, mesh in enumerate(play.meshes):
        at = "play", "meshes", place
        if mesh.exchanged and mesh.exchanged not in {run.strategy for run in runs.values()}:
            yield (*at, "exchanged"), "no run of the figure has this strategy"
        for path, run in runs.items():
            sizes = [num_ranks(axis.size, path, evidence) for axis in mesh.axes]
            node = num_ranks(mesh.node, path, evidence)
            if prod(sizes) != run.world_size or run.world_size % (node or inf):
                shape = " × ".join(str(axis.size) for axis in mesh.axes)
                yield at, f"{path} has {run.world_size} ranks: not {shape} on nodes of {mesh.node}"


def _options(control: PlayControl, paths: Sequence[str], evidence: Evidence) -> list[str]:
    """The options of a control: numbers by size, others in the order of its words or runs."""
    paths = sorted(paths, key=[*control.words, *paths].index)
    read = {
        option_of(control, path, evidence): control.reads and evidence.value(control.reads, path)
        for path in paths
    }
    numbers = {word: value.number for word, value in read.items() if isinstance(value, Value)}
    sizes = {word: size for word, size in numbers.items() if not isinstance(size, str)}
    return sorted(sizes, key=sizes.__getitem__) if len(sizes) == len(read) else list(read)
