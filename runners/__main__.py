"""The runners' command.

    python -m runners list [NAME …]            experiments, their runs, and what is measured here
    python -m runners run [NAME …]             measure what is missing or stale (--force: all);
                                               an interrupted one continues where it was
    python -m runners run [NAME …] --full      the heavier runs and experiments too
    python -m runners run [NAME …] --dry       what would run, how long, how much memory
    python -m runners run NAME --repeat N      run N times and count outcomes; writes no trace
    python -m runners try EXPERIMENT.RUN --set key=value [--set …]
                                               one run with settings of your own, in seconds
    python -m runners try --forget             delete what you have tried
    python -m runners reproduce EXPERIMENT.RUN.FIELD […]
                                               measure values of a page again: the page's, the new
                                               one, the tolerance, and "same" or "differs"
    python -m runners show NAME[.RUN]          its runs; of one run each value, and what to paste
    python -m runners show --grep WORD [NAME]  the values whose expression holds a word
    python -m runners compare A B              what two machines measured otherwise, and which
                                               claims changed their verdict
    python -m runners rerun [NAME …]           measure what is measured once more: how far times
                                               repeat; traces stay as they are
    python -m runners simulate [EXPERIMENT[.RUN] …]
                                               every run as one rank of many, without data: its
                                               peak and payload beside the recorded ones
    python -m runners plan PRESET | --model MODULE:FUNCTION
                                               which strategies fit a model on so many devices:
                                               memory by class, payload, FLOPs, by simulation
    python -m runners machine                  what this machine is
    python -m runners schema                   the JSON Schema of a trace

Exit codes: 0 every run ended as declared, or everything is the same; 1 a surprise, a difference,
a simulation that failed, or a run that could not be measured for want of the machine; 2 a wrong
call, a run that this machine cannot do, or a machine that is too busy for a reference set; 130
Ctrl-C; 143 SIGTERM.
"""

from __future__ import annotations

import sys

from runners.system import limits, stopping
from runners.system.scratch import Scratch

if __name__ == "__main__":  # before all else is loaded
    stopping.listen("stopped; what was measured before is kept")
    limits.explain("python -m runners")
    if sys.argv[1:2] == ["show"]:  # it only reads, and needs no torch
        from runners.commands import show

        stopping.leave(show.main(sys.argv[2:]))

import argparse
import importlib.util
import json
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

if importlib.util.find_spec("torch") is None:  # `make pages` sets up without it
    sys.stderr.write(
        "python -m runners: this Python has no torch;"
        " run `make .venv/.run` once, and call .venv/bin/python\n"
    )
    sys.exit(2)

if __name__ == "__main__" and sys.argv[1:2] == ["plan"]:
    from runners.planning import command

    try:
        with Scratch():
            ended = command.main(sys.argv[2:])
    except KeyboardInterrupt as stopped:
        ended = stopping.told(stopped)
    except OSError as error:
        sys.stderr.write(f"python -m runners plan: {error}\n")
        ended = 2
    stopping.leave(ended)

from runners.commands import show
from runners.commands.expectation import expected_lines
from runners.commands.reproduce import ReproduceError, reproduce
from runners.commands.rerun import RerunError, rerun
from runners.commands.run import RunRequest, check_names, dry, run, shown
from runners.commands.try_run import TrialError, named, prepare
from runners.measuring import measure
from runners.measuring.launch import Launcher
from runners.measuring.not_measured import NotMeasuredError
from runners.measuring.pending import left_out_of, pending
from runners.measuring.progress import Progress
from runners.measuring.quiet import NotIdleError
from runners.planning.question import PlanError
from runners.plans.experiment import UnknownExperimentError, check_name, find, on_device
from runners.plans.settings import SettingsError
from runners.simulate import allocator_check
from runners.simulate.command import simulated
from runners.simulate.suite import UnknownRunError
from runners.system import accelerator
from runners.system.errors import AcceleratorError, LaunchError
from runners.traces import machine, tries
from runners.traces.compare import compare, traces_in
from runners.traces.files import (
    TraceError,
    json_schema,
    read,
    read_reruns,
)
from runners.traces.identity import IdentityError
from runners.traces.programs import ProgramError
from runners.traces.quiet_record import quietness
from runners.traces.reruns import NEAR_SHARE, QUANTITIES, errors, floor, pairs
from runners.traces.summary import how_it_ended, summary_lines
from runners.traces.values import faults

# What a person can fix: one line, and exit code 2.
CAN_BE_MENDED = (
    AcceleratorError,
    UnknownExperimentError,
    UnknownRunError,
    SettingsError,
    ProgramError,
    TrialError,
    TraceError,
    measure.BusyError,
    IdentityError,
    machine.PartOfMachineError,
    LaunchError,
    NotIdleError,
    ReproduceError,
    RerunError,
    PlanError,
)


def _add_measuring(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the commands that measure: run, try and reproduce."""
    running = commands.add_parser("run", help="measure what is missing or stale")
    running.add_argument("names", nargs="*", metavar="NAME", help="experiments; all without one")
    running.add_argument("--force", action="store_true", help="measure also what is fresh")
    running.add_argument(
        "--full", action="store_true", help="measure the heavier runs and experiments too"
    )
    running.add_argument(
        "--dry", action="store_true", help="say what would run, how long, how much memory"
    )
    running.add_argument(
        "--repeat", type=_positive, metavar="N", help="run N times, count outcomes"
    )
    running.add_argument(
        "--as-reference",
        action="store_true",
        help="write the committed reference folder, and see that it lacks nothing",
    )
    trial = commands.add_parser("try", help="one run with settings of your own, in seconds")
    trial.add_argument("run", nargs="?", metavar="EXPERIMENT.RUN")
    trial.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of your own"
    )
    trial.add_argument("--forget", action="store_true", help="delete all tries")
    again = commands.add_parser("reproduce", help="measure values of a page again, and compare")
    again.add_argument(
        "paths",
        nargs="+",
        metavar="EXPERIMENT.RUN.FIELD",
        help="as pages and `show` print them; [] is every element; without a field, all of a run",
    )
    again.add_argument(
        "--from",
        dest="on",
        metavar="MACHINE",
        help="whose trace the page shows; by default the reference machine's",
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m runners",
        description="Execute distributed-training experiments and write what they measured.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    listing = commands.add_parser("list", help="experiments, their runs, and what is measured here")
    listing.add_argument("names", nargs="*", metavar="NAME", help="experiments; all without one")
    _add_measuring(commands)
    showing = commands.add_parser("show", help="what an experiment measured, with expressions")
    show.add_arguments(showing)
    comparing = commands.add_parser("compare", help="what two machines measured otherwise")
    comparing.add_argument("first", metavar="A", help="a folder's name")
    comparing.add_argument("second", metavar="B", help="another folder's name")
    rerunning = commands.add_parser("rerun", help="measure once more: how far do times repeat?")
    rerunning.add_argument("names", nargs="*", metavar="NAME", help="experiments; all without one")
    rerunning.add_argument(
        "--as-reference", action="store_true", help="of the committed reference folder"
    )
    simulating = commands.add_parser("simulate", help="runs as one rank of many, without data")
    simulating.add_argument(
        "names", nargs="*", metavar="EXPERIMENT[.RUN]", help="what to simulate; all without one"
    )
    simulating.add_argument("--json", action="store_true", help="every value, as JSON")
    commands.add_parser("plan", help="which strategies fit a model on so many devices")
    commands.add_parser("machine", help="what this machine is")
    commands.add_parser("schema", help="the JSON Schema of a trace")
    return parser


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _list(wanted: Sequence[str]) -> int:
    where = measure.folder()
    for name in check_names(wanted):
        experiment = find(name)
        heavier = ", only with --full" if experiment.full else ""
        print(f"{name:<18} {len(experiment.runs):>3} runs{heavier}  {_state(name, where)}")
        print(f"    {experiment.question}")
        print(f"    {', '.join(experiment.runs)}")
    known = shown(where) if where.exists() else "none yet; `python -m runners run` measures them"
    print(f"traces of this machine: {known}")
    altered = [
        f"{shown(folder / file)}: {why}"
        for folder in sorted(machine.TRACES.glob("reference-*"))
        for file, why in faults(folder)
    ]
    for line in altered:
        print(line, file=sys.stderr)
    return 1 if altered else 0


def _state(name: str, where: Path) -> str:
    one = pending(name, where)
    if one is not None:
        return one.reason
    path = where / f"{name}.json"
    heavier = left_out_of(read(path)) if path.exists() else []
    if heavier:
        return f"measured on this machine but for {len(heavier)} heavier runs"
    return "measured on this machine" if path.exists() else "missing"


def _run(request: RunRequest) -> int:
    ran = run(request)
    lost = f", {len(ran.not_measured)} not measured" if ran.not_measured else ""
    print(
        f"{ran.num_measured} measured, {ran.num_fresh} already fresh, "
        f"{len(ran.surprises)} surprises{lost}; traces in {shown(ran.where)}"
    )
    if ran.heavier:
        print(f"left to --full: {_told(ran.heavier)}")
    for line in ran.surprises:
        print(f"surprise: {line}", file=sys.stderr)
    for line in ran.not_measured:
        print(f"not measured: {line}", file=sys.stderr)
    if ran.not_quiet:
        first, more = ran.not_quiet[0], len(ran.not_quiet) - 1
        others = f" (and {more} more experiments)" if more else ""
        print(f"the machine was not quiet: {first}{others}", file=sys.stderr)
    if ran.not_measured:
        print("traces are as before; the next `run` measures what is missing", file=sys.stderr)
    for line in ran.lacking:
        print(f"the reference set lacks {line}", file=sys.stderr)
    replayed = allocator_check.checked() if accelerator.num_devices() else None
    if replayed is not None:
        print(replayed.line(), file=sys.stdout if replayed.agrees else sys.stderr)
    return ran.exit_code


def _told(heavier: Sequence[str]) -> str:
    """Experiments by name, single runs by their number: there may be many."""
    whole = [name for name in heavier if "." not in name]
    single = len(heavier) - len(whole)
    runs = [f"{single} runs; `run --dry --full` names their experiments"] if single else []
    return ", ".join([*whole, *runs])


def _repeat(wanted: Sequence[str], times: int) -> int:
    chosen = check_names(wanted)
    worst = 0
    with measure.alone(), Launcher(machine.device_kind()) as launcher:
        for name in chosen:
            experiment = on_device(find(name), launcher.device)
            for run_name, plan in experiment.runs.items():
                counts: Counter[str] = Counter()
                for turn in range(times):
                    try:
                        run = measure.measure_run(launcher, experiment, run_name)
                    except NotMeasuredError as error:
                        counts[f"not measured: {error}"] += 1
                        worst = 1
                        continue
                    counts[how_it_ended(run)] += 1
                    worst = max(worst, int(run.is_surprise))
                    if sys.stderr.isatty():
                        sys.stderr.write(f"\r\x1b[K{name}.{run_name} {turn + 1}/{times}")
                if sys.stderr.isatty():
                    sys.stderr.write("\r\x1b[K")
                said = "; ".join(f"{n} of {times} {end}" for end, n in counts.most_common())
                expected = plan.expected.replace("_", " ")
                print(f"{name}.{run_name} (expected {expected}): {said}", flush=True)
    return worst


def _try(wanted: str, settings: Sequence[str]) -> int:
    experiment_name, run = named(wanted)
    check_name(experiment_name)
    with measure.alone(), Launcher() as launcher:
        launcher.prepare(("timed", "metered"))  # torch loads there while it loads here
        experiment = on_device(find(experiment_name), machine.device_kind())
        trial = prepare(experiment, run, settings)
        print(f"{wanted}: {'; '.join(trial.lines())}", flush=True)
        changed = replace(experiment, runs={trial.run: trial.plan})
        expected, has_failed = expected_lines(changed, trial.run)
        print("\n".join(expected), flush=True)
        trace = measure.measure_alone(changed, trial.run, launcher, Progress())
    path = tries.keep(trace)
    for line in summary_lines(trace.runs[run]):
        print(line)
    print(f"kept in {shown(path)}; `make serve` shows it beside the book's")
    return 1 if has_failed else 0


def _forget() -> int:
    print(f"{tries.forget()} tries deleted")
    return 0


def _reproduce(paths: Sequence[str], on: str | None) -> int:
    def say(line: str) -> None:
        print(line, flush=True)

    return 0 if reproduce(paths, on, Progress(), say) else 1


def _compare(first: str, second: str) -> int:
    """What was measured otherwise; then the generator, which judges, says what that changes."""
    found = compare(*(traces_in(machine.TRACES / name, machine.TRACES) for name in (first, second)))
    print(f"{first} | {second}")
    print("\n".join(found.lines()), flush=True)
    for name in (first, second):
        print(f"{name}: {_quiet_line(name)}", flush=True)
    judging = [sys.executable, "-m", "generator", "compare", first, second]
    content = ["--content", str(machine.TRACES.parent)]
    return subprocess.run([*judging, *content], cwd=machine.ROOT, check=False).returncode


def _rerun(wanted: Sequence[str], *, as_reference: bool) -> int:
    done = rerun(wanted, Progress(), as_reference=as_reference)
    path = done.where / "reruns.json"
    print(
        f"{done.num_measured} runs measured again, {done.num_kept} had been before; "
        f"in {shown(path)}"
    )
    found = pairs(read_reruns(done.where), traces_in(done.where, machine.TRACES))
    for quantity in QUANTITIES:
        one = floor(errors(found, quantity).values())
        if one:
            print(
                f"{quantity}: median error of predicting a rerun {one.median_error:.1%}; "
                f"{one.num_near} of {one.num_pairs} are within ±{NEAR_SHARE:.0%}"
            )
    for line in done.stale:
        print(f"left out: {line}", file=sys.stderr)
    for line in done.not_quiet:
        print(f"does not count, the machine was not quiet: {line}", file=sys.stderr)
    for line in done.not_measured:
        print(f"not measured: {line}", file=sys.stderr)
    return 1 if done.not_measured else 0


def _simulate(arguments: argparse.Namespace) -> int:
    found, failed = simulated(arguments.names, as_json=arguments.json)
    print("\n".join(found), flush=True)
    for line in failed:
        print(f"failed: {line}", file=sys.stderr)
    return 1 if failed else 0


def _machine() -> int:
    print(json.dumps(machine.describe().model_dump(mode="json"), indent=1, sort_keys=True))
    name = machine.name()
    if (machine.TRACES / name / "machine.json").is_file():
        print(_quiet_line(name), file=sys.stderr)
    return 0


def _quiet_line(name: str) -> str:
    """Whether a machine measured its experiments while it was quiet."""
    traces = traces_in(machine.TRACES / name, machine.TRACES)
    return quietness({one: trace.quiet for one, trace in traces.items()}).line()


def _request(arguments: argparse.Namespace) -> RunRequest:
    return RunRequest(
        names=tuple(arguments.names),
        force=arguments.force,
        full=arguments.full,
        as_reference=arguments.as_reference,
    )


def _dispatch_run(arguments: argparse.Namespace) -> int:
    if arguments.dry:
        print("\n".join(dry(_request(arguments))))
        return 0
    if arguments.repeat is not None:
        return _repeat(arguments.names, arguments.repeat)
    return _run(_request(arguments))


def _dispatch_try(arguments: argparse.Namespace) -> int:
    if arguments.forget:
        return _forget()
    return _try(arguments.run or "", arguments.set)


def _schema() -> int:
    print(json.dumps(json_schema(), indent=1, sort_keys=True))
    return 0


COMMANDS: dict[str, Callable[[argparse.Namespace], int]] = {
    "list": lambda arguments: _list(arguments.names),
    "run": _dispatch_run,
    "try": _dispatch_try,
    "reproduce": lambda arguments: _reproduce(arguments.paths, arguments.on),
    "show": lambda arguments: show.show(arguments.name, arguments.grep),
    "compare": lambda arguments: _compare(arguments.first, arguments.second),
    "rerun": lambda arguments: _rerun(arguments.names, as_reference=arguments.as_reference),
    "simulate": _simulate,
    "machine": lambda _: _machine(),
    "schema": lambda _: _schema(),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; what a person can fix is one line and exit code 2."""
    parsed = _parser().parse_args(arguments)
    try:
        with Scratch():  # torch's compiler keeps its files there
            return COMMANDS[parsed.command](parsed)
    except KeyboardInterrupt as stopped:
        return stopping.told(stopped)
    except CAN_BE_MENDED as error:
        print(f"python -m runners: {error}", file=sys.stderr)
        return 2
    except NotMeasuredError as error:
        print(f"python -m runners: not measured: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        return 0
    except OSError as error:
        line = limits.blamed(str(error)) or f"{error}; nothing half-written is left"
        print(f"python -m runners: {line}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    stopping.leave(main())
