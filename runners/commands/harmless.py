"""`python -m runners harmless`: declare that a change of code altered no result.

In: experiments, measured on this machine by the former code, and a reason. Each is measured again
by the code as it stands, without its heavier runs. Out: an entry of `harmless.yml`, where every
outcome and every field that a rerun must reproduce came out equal; else the differences, and
nothing is written.

A field that differs is measured once more. Where the two new measurements differ from each other
too, no rerun decides it: the bytes of headers on a link, or steps that a pace counts. The kernel's
high-water mark is never compared, because modules that are loaded before the mark change it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import yaml

from runners.measuring import measure
from runners.measuring.launch import Launcher
from runners.measuring.progress import Progress
from runners.plans.experiment import check_name, find, names, on_device
from runners.traces import digest, machine
from runners.traces.compare import Difference, compare, largest_first
from runners.traces.digest import Digests, Harmless, Rerun, brought_up, harmless, source_digest
from runners.traces.files import machine_folders, read
from runners.traces.records import Trace


class HarmlessError(ValueError):
    """A change that cannot be declared; the message says what to do first."""


def declare(
    chosen: Sequence[str], reason: str, progress: Progress, say: Callable[[str], None]
) -> bool:
    """Measure experiments again, and declare the change when nothing differs.

    Args:
        chosen: experiments that this machine measured with the former code.
        reason: why the change cannot alter a result, one sentence.
        progress: shows the runs.
        say: takes a line.

    Returns:
        Whether the change is declared.

    Raises:
        HarmlessError: there is no change, or nothing to compare with.
        UnknownExperimentError, LaunchError, NotMeasuredError, TraceError, OSError.
    """
    digests = _changed()
    if not digests:
        raise HarmlessError("no trace is stale, so there is no change to declare")
    former = {name: _former(name) for name in chosen}
    reruns, differs = [], False
    with measure.alone(), Launcher(machine.device_kind()) as launcher:
        for name, trace in former.items():
            again = _again(trace, launcher, progress)
            found = compare({name: trace}, {name: again})
            lines = _apart(found)
            if lines:
                once_more = compare({name: again}, {name: _again(trace, launcher, progress)})
                unsteady = {_field(line) for line in _apart(once_more)}
                lines = [line for line in lines if _field(line) not in unsteady]
            for line in lines:
                say(line)
            differs = differs or bool(lines)
            today = datetime.now(UTC).date().isoformat()
            rerun = Rerun(
                experiment=name, machine=trace.machine, date=today, num_equal=found.num_equal
            )
            reruns.append(rerun)
            say(f"{name}: {found.num_equal} outcomes and fields are equal")
    if not differs:
        _write([*harmless(), Harmless(reason=reason, reruns=reruns, digests=digests)])
    return not differs


def _changed() -> dict[str, Digests]:
    """Each experiment whose traces are of former code, with the digests of then and now."""
    found = {}
    for folder in (machine.TRACES / name for name in machine_folders(machine.TRACES)):
        for path in (folder / f"{name}.json" for name in names()):
            if path.exists():
                name = path.stem
                was = brought_up(name, read(path).code.digest)
                if was != source_digest(name):
                    found[name] = Digests(was=was, now=source_digest(name))
    return found


def _former(name: str) -> Trace:
    """This machine's trace of an experiment, by the code before the change."""
    check_name(name)
    path = measure.folder() / f"{name}.json"
    if not path.exists():
        raise HarmlessError(
            f"{name} is not measured on this machine; take the former code (`git stash`), run "
            f"`python -m runners run {name}`, and come back"
        )
    return read(path)


def _again(former: Trace, launcher: Launcher, progress: Progress) -> Trace:
    """What the code as it stands measures of the runs that the former code measured.

    It bears the digest of the former code, so that `compare` compares the two.
    """
    experiment = on_device(find(former.experiment), launcher.device)
    wanted = replace(
        experiment,
        runs={
            name: experiment.runs[name]
            for name, run in former.runs.items()
            if run.status != "skipped"
            and name in experiment.runs
            and not experiment.runs[name].full
        },
    )
    progress.begin(wanted)
    runs = {name: measure.measure_run(launcher, wanted, name, progress) for name in wanted.runs}
    progress.clear()
    return former.model_copy(update={"runs": runs})


def _apart(found: Difference) -> list[str]:
    """What may not differ, as lines; times may, and what depends on the process's past."""
    fields = largest_first([*found.from_texts, *found.unequal, *found.rounded])
    return [*found.outcomes, *(one.line() for one in fields), *found.left_out]


def _field(line: str) -> str:
    return line.partition(": ")[0]


def _write(entries: Sequence[Harmless]) -> None:
    text = yaml.safe_dump(
        [entry.model_dump(mode="json") for entry in entries], sort_keys=False, width=100
    )
    head = digest.HARMLESS.read_text(encoding="utf-8").partition("\n- ")[0].removesuffix("[]\n")
    later = digest.HARMLESS.with_suffix(".new")
    later.write_text(f"{head.rstrip()}\n{text}", encoding="utf-8")
    later.replace(digest.HARMLESS)
    digest.forget_code()
