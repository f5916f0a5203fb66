"""`python -m runners try`: one run of an experiment with settings of the reader's own.

In: an experiment, the name of a run, and texts such as `batch_size=50`. Out: the run's declaration
with these settings and whatever follows from them, or one line that says why there is none.
"""

import argparse
import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from proofbook.runners.core.declared.experiment import Declaration, Experiment, check_name, find
from proofbook.runners.core.measuring import measure
from proofbook.runners.core.measuring.launch import Launcher
from proofbook.runners.core.system import accelerator
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.records import Run
from proofbook.runners.core.trace.schema import Setting, digest_of
from proofbook.runners.plain import measure as plain
from proofbook.runners.session.progress import Progress
from proofbook.runners.system.book import is_plain, own_book
from proofbook.runners.system.errors import FixableError, unknown
from proofbook.runners.traces.files import read, write
from proofbook.runners.traces.summary import beside, summary_lines

# What a declaration itself says and a reader may set too, beside the run's settings.
OF_THE_DECLARATION = ("world_size", "seed", "budget_bytes")
MOST_RANKS = 8
MOST_CHARACTERS = 150  # of a line of facts
# What readers' runs measured, beside the traces and never part of the book; git ignores it. Under
# `mkdocs serve` the pages read it. The same try again writes over its file.
TRIES = machine.TRACES.parent / "tries"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's options and arguments to its parser."""
    parser.add_argument("run", nargs="?", default="", metavar="EXPERIMENT.RUN")
    parser.add_argument(
        "--set", action="extend", nargs="+", default=[], metavar="KEY=VALUE",
        help="settings of your own",
    )  # fmt: skip


def main(arguments: argparse.Namespace) -> int:
    """Measure a run with the settings of `--set`, print its summary, keep its trace; returns 0."""
    words = [arguments.run, *arguments.set]  # --set takes what follows it, and so may have the run
    named = next((word for word in words if word and "=" not in word), "")
    arguments.set = [word for word in words if word not in ("", named)]
    name, _, run = named.partition(".")
    if not run:
        raise FixableError(f"name a run as EXPERIMENT.RUN, such as ddp.single, not {name!r}")
    check_name(name)
    with measure.alone(), Launcher(accelerator.kind()) as launcher:
        experiment = launcher.fitted(find(name))
        declaration, lines = prepare(experiment, run, arguments.set)
        if not is_plain(name):
            launcher.prepare(declaration.passes)
        print(f"{name}.{run}: {'; '.join(lines or ['as declared'])}", flush=True)
        print(f"asked: {experiment.question}", flush=True)
        changed = replace(experiment, runs={run: declaration})
        if is_plain(name):
            trace = plain.measure_alone(changed, run)
        else:
            trace = measure.measure_alone(changed, run, launcher, Progress())
    measured = trace.runs[run]
    settings = [measured.world_size, measured.seed, measured.budget_bytes, measured.settings]
    path = TRIES / f"{name}.{run}-{digest_of(settings)}.json"
    write(path, trace)
    book = _of_the_book(name, run)
    own = summary_lines(measured)
    others = beside(measured, book)[len(own) :] if book else []
    print("\n".join([*own, *further(measured), *others]))
    serve = f"{'mkdocs' if own_book() else 'make'} serve"
    print(f"kept in {machine.from_home(path)}; `{serve}` shows it on evidence/{name}.html")
    return 0


def _of_the_book(name: str, run: str) -> Run | None:
    """The run as the reference machine measured it."""
    paths = [folder / f"{name}.json" for folder in machine.references()]
    traces = (read(path) for path in paths if path.is_file())
    return next((trace.runs[run] for trace in traces if run in trace.runs), None)


def further(run: Run) -> Iterator[str]:
    """Yield lines on losses, times and facts of a run that its summary leaves out."""
    if losses := run.step_losses:
        sampled = sorted({round(part * (len(losses) - 1) / 4) for part in range(5)})
        words = (f"{losses[at]:.4f}" if losses[at] is not None else "none" for at in sampled)
        yield f"loss in steps {', '.join(str(at + 1) for at in sampled)}: {', '.join(words)}"
    timing = run.timing.model_copy(update={"step": None})
    bare = run.model_copy(update={"printed": [], "epochs": [], "ranks": [], "timing": timing})
    others = (line for line in summary_lines(bare) if line not in summary_lines(run))
    yield from (textwrap.shorten(line, MOST_CHARACTERS, placeholder=" …") for line in others)


def prepare(
    experiment: Experiment, run: str, wanted: Iterable[str]
) -> tuple[Declaration, list[str]]:
    """A run shortened to take seconds, with a reader's `key=value` texts; lines of what differs.

    FixableError where there is no such run or setting, or a value is impossible.
    """
    if run not in experiment.runs:
        raise unknown(f"run of {experiment.name}", run, experiment.runs)
    declared = experiment.runs[run]
    before = values(declared)
    chosen = dict(_chosen(f"{experiment.name}.{run}", before, wanted))
    _check_ranks(experiment, declared, chosen.get("world_size", declared.world_size))
    shortened = experiment.shortened(run)
    declaration = _settled(experiment.name, declared, {**shortened, **chosen})
    after = values(declaration)
    for name, value in chosen.items():
        if after[name] != value:
            raise FixableError(
                f"{name} follows from the other settings and would be {_written(after[name])}; "
                "set those"
            )
    reasons = dict.fromkeys(shortened, ", to take seconds") | dict.fromkeys(chosen, "")
    differing = [name for name, value in after.items() if value != before.get(name)]
    lines = [
        f"{name} {_written(after[name])} instead of {_written(before.get(name))}"
        f"{reasons.get(name, ', which follows')}"
        for name in sorted(differing, key=lambda name: name not in chosen)
    ]
    return declaration, lines


def values(declaration: Declaration) -> dict[str, Setting]:
    """The settings of a run and the fields of its declaration that a reader may set."""
    own = {name: getattr(declaration, name) for name in OF_THE_DECLARATION}
    return {**declaration.settings.as_json(), **{n: v for n, v in own.items() if v is not None}}


def _written(value: Setting) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _chosen(
    run: str, known: Mapping[str, Setting], wanted: Iterable[str]
) -> Iterator[tuple[str, Setting]]:
    """The name and the value of each text, not checked yet."""
    for text in wanted:
        name, _, value = text.partition("=")
        if not value:
            raise FixableError(f"write --set KEY=VALUE, not {text!r}")
        if name not in known:
            raise unknown(f"setting of {run}", name, sorted(known))
        like = known[name]
        try:
            read = json.loads(f"[{value}]" if isinstance(like, list) else value)
        except ValueError:
            read = value
        yield name, value if isinstance(like, str) else read


def _check_ranks(experiment: Experiment, declared: Declaration, wanted: Setting) -> None:
    """Refuse numbers of ranks that a strategy is not written for: one, or several."""
    sizes = {p.world_size for p in experiment.runs.values() if p.strategy == declared.strategy}
    least, most = min(*sizes, 2), 1 if sizes == {1} else MOST_RANKS
    if wanted != declared.world_size and not (isinstance(wanted, int) and least <= wanted <= most):
        raise FixableError(
            f"world_size of {declared.strategy} must be {least} to {most}, not {wanted}"
        )


def _settled(experiment: str, declared: Declaration, changes: Mapping[str, Setting]) -> Declaration:
    of_the_declaration: dict[str, Any] = {
        n: v for n, v in changes.items() if n in OF_THE_DECLARATION
    }
    if not all(type(value) is int and value >= 0 for value in of_the_declaration.values()):
        raise FixableError(f"{', '.join(of_the_declaration)} must be whole numbers, not below 0")
    left_out = {*OF_THE_DECLARATION, *declared.settings.closed_forms()}
    changed = {name: value for name, value in changes.items() if name not in left_out}
    try:
        settings = declared.settings.changed(changed)
        # Nothing that a try prints comes from a timeline.
        declaration = replace(declared, settings=settings, has_timeline=False, **of_the_declaration)
        values(declaration)  # what follows from impossible settings may have no value
    except (ArithmeticError, LookupError, ValueError) as error:
        raise FixableError(f"{experiment}: no run can have these settings: {error}") from None
    return declaration
