"""Files of traces: what one experiment measured on one machine, as versioned JSON.

Flow: `runners/measuring` puts a `Trace` together; `write` puts it on disk whole; `read` gives it
back to the generator, refusing whatever it does not know. What a trace holds is in
`records.py` and `measured.py`. No torch here: pages are built from committed traces on machines
that never install it.
"""

from __future__ import annotations

import json
import math
import os
import re
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from pydantic import ValidationError

from runners.system.errors import FixableError
from runners.traces.digest import program_digests, source_digest
from runners.traces.invariants import violations
from runners.traces.lines import line_of
from runners.traces.machine_records import Machine
from runners.traces.plan_grid import Grid, values_digest
from runners.traces.primitives import Primitives
from runners.traces.published_plans import PublishedPlans, rows_digest
from runners.traces.records import Trace
from runners.traces.schema import Record

MAX_TRACE_BYTES = 300_000
VALUES = "values.json"  # the digests of a folder's traces (`values.py`)
# What else a machine's folder holds.
NOT_TRACES = frozenset({"machine", "primitives", "values"})
_TORN = re.compile(r"\..+\.(?:json|part)\.\w{8}")  # as `write_json` calls a file it writes


class TraceError(FixableError):
    """A trace that cannot be used; the message names the file and the field."""


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """A JSON object, in which each key stands once: of two values, one would be lost."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for position, name in enumerate(names) if name in names[:position])
        raise ValueError(f"the key {twice[:100]!r} stands twice in one object")
    return found


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"bare {text} is not JSON")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        said = f"{path}: no such trace; measure it with `python -m runners run`"
        raise TraceError(said) from None
    except (OSError, UnicodeDecodeError) as error:
        raise _torn(path, error) from None


def _torn(path: Path, error: Exception) -> TraceError:
    return TraceError(f"{path}: not a whole JSON file ({error}); delete it and run again")


RecordT = TypeVar("RecordT", bound=Record)


@lru_cache(maxsize=512)
def _parsed(path: Path, text: str, model: type[RecordT]) -> RecordT:
    """The record in a file's text; the same text is read once, and records never change."""
    try:
        document = json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise _torn(path, error) from None
    if not isinstance(document, dict):
        raise TraceError(f"{path}: (whole file): not a JSON object; delete it and run again")
    try:
        return model.model_validate(document)
    except ValidationError as error:
        first = error.errors()[0]
        others = error.error_count() - 1
        raise _of_field(path, text, first["loc"], first["msg"].lower(), others) from None


def _of_field(
    path: Path, text: str, field: tuple[str | int, ...], message: str, others: int
) -> TraceError:
    """An error that names file, line and field, and how many others there are."""
    place = f"{path}:{line_of(text, field)}: {'.'.join(map(str, field))}"
    more = f" (and {others} more)" if others else ""
    return TraceError(f"{place}: {message}{more}" if field else f"{path}: {message}{more}")


@lru_cache(maxsize=512)
def _parsed_trace(path: Path, text: str) -> Trace:
    trace: Trace = _parsed(path, text, Trace)
    broken = list(violations(trace))
    if broken:
        raise _of_field(path, text, broken[0].path, broken[0].message, len(broken) - 1)
    return trace


def read(path: Path) -> Trace:
    """Read one trace.

    Raises:
        TraceError: the file is missing, torn, of an unknown schema, or a field is malformed,
            unknown, not finite, or contradicts another (`invariants.py`); the message names file,
            line and field.
    """
    trace = _parsed_trace(path, _text(path))
    if trace.experiment != path.stem:
        raise TraceError(
            f"{path}: experiment: is {trace.experiment!r}, the file says {path.stem!r}"
        )
    return trace


def read_try(path: Path) -> Trace:
    """Read one of a reader's own runs, `content/tries/<experiment>.<run>-<digest>.json`.

    Raises:
        TraceError: as `read`, and where it holds another number of runs than one.
    """
    trace = _parsed_trace(path, _text(path))
    if len(trace.runs) != 1:
        raise TraceError(f"{path}: runs: a try holds one run, this file {len(trace.runs)}")
    return trace


def read_part(path: Path) -> Trace:
    """Read what an interrupted measurement left of an experiment, `.<experiment>.part`.

    Raises:
        TraceError: as `read`.
    """
    return _parsed_trace(path, _text(path))


def trace_paths(folder: Path) -> list[Path]:
    """The traces of a machine's folder, in order of their experiments."""
    return [path for path in sorted(folder.glob("*.json")) if path.stem not in NOT_TRACES]


def machine_folders(traces: Path) -> list[str]:
    """The names of all machines' folders: `<machine>`, or `<machine>/<share>` for a part of one."""
    described = [*traces.glob("*/machine.json"), *traces.glob("*/*/machine.json")]
    return sorted(path.parent.relative_to(traces).as_posix() for path in described)


def read_machine(folder: Path) -> Machine:
    """Read `machine.json` of a machine's folder.

    Raises:
        TraceError: as `read`.
    """
    path = folder / "machine.json"
    machine: Machine = _parsed(path, _text(path), Machine)
    return machine


def _read_if_there(path: Path, model: type[RecordT]) -> RecordT | None:
    return read_record(path, model) if path.exists() else None


def read_record(path: Path, model: type[RecordT]) -> RecordT:
    """Read a record of any kind.

    Raises:
        TraceError: as `read`.
    """
    record: RecordT = _parsed(path, _text(path), model)
    return record


def read_primitives(folder: Path) -> Primitives | None:
    """Read `primitives.json` of a machine's folder; None where none were measured.

    Raises:
        TraceError: as `read`.
    """
    return _read_if_there(folder / "primitives.json", Primitives)


def read_grid(path: Path) -> Grid:
    """Read the committed plans of one preset, `content/planner/plans/<preset>.json`.

    Raises:
        TraceError: as `read`, and where its rows are not those that were simulated.
    """
    return _parsed_grid(path, _text(path))


@lru_cache(maxsize=64)
def _parsed_grid(path: Path, text: str) -> Grid:
    grid: Grid = _parsed(path, text, Grid)
    if grid.preset != path.stem:
        raise TraceError(f"{path}: preset: is {grid.preset!r}, the file says {path.stem!r}")
    if grid.values != values_digest(grid.rows):
        raise TraceError(
            f"{path}: rows: cut or edited after they were simulated; make them again with "
            f"`python -m runners plan {grid.preset} --grid`, or restore the file from git"
        )
    return grid


def read_published(path: Path) -> PublishedPlans | None:
    """Read the simulations of published measurements; None where there are none.

    Raises:
        TraceError: as `read`, and where its rows are not those that were simulated.
    """
    found = _read_if_there(path, PublishedPlans)
    if found and found.values != rows_digest(found.rows):
        raise TraceError(
            f"{path}: rows: cut or edited after they were simulated; make them again with "
            "`python -m runners plan --published --grid`, or restore the file from git"
        )
    return found


def is_stale(trace: Trace) -> bool:
    """Whether the experiment's code, or a program that it ran, has changed since."""
    is_other_code = trace.code.digest != source_digest(trace.experiment)
    return is_other_code or bool(outdated_programs(trace))


def outdated_programs(trace: Trace) -> list[str]:
    """The runs whose program is another one now, or is gone."""
    now, then = program_digests(trace.experiment), trace.code.programs
    programs = {name: str(run.settings.get("program")) for name, run in trace.runs.items()}
    return [name for name, path in programs.items() if then.get(path) != now.get(path)]


def write_json(path: Path, document: dict[str, Any]) -> None:
    """Write JSON sorted, indented and whole: a reader sees the old file or the new one.

    Raises:
        ValueError: a number is not finite.
        OSError: the disk refused; nothing is left behind.
    """
    _write_text(path, json.dumps(document, indent=1, sort_keys=True, allow_nan=False) + "\n")


def write_rows(path: Path, found: Grid | PublishedPlans) -> None:
    """Write simulated plans whole, each of their rows in one line.

    Raises:
        OSError: the disk refused; nothing is left behind.
    """
    document = found.model_dump(mode="json")
    rows = [json.dumps(row, sort_keys=True, separators=(",", ":")) for row in document.pop("rows")]
    head = json.dumps(document, indent=1, sort_keys=True).removesuffix("\n}")
    _write_text(path, f'{head},\n "rows": [\n' + ",\n".join(rows) + "\n ]\n}\n")


def _write_text(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def sweep_torn(folder: Path) -> None:
    """Remove the files that writers left half-written in a folder and in those below it.

    Only for the process that alone may write there.
    """
    for path in folder.rglob(".*"):
        if _TORN.fullmatch(path.name):
            path.unlink(missing_ok=True)


def write(path: Path, trace: Trace) -> None:
    """Write one trace.

    Raises:
        TraceError: it outgrows `MAX_TRACE_BYTES`.
        ValueError: it holds a number that is not finite.
        OSError: the disk refused; nothing is left behind.
    """
    document = trace.as_json()
    num_bytes = len(json.dumps(document, indent=1, sort_keys=True))
    if num_bytes > MAX_TRACE_BYTES:
        raise TraceError(f"{path.name} would hold {num_bytes} bytes, more than {MAX_TRACE_BYTES}")
    write_json(path, document)


def write_part(path: Path, trace: Trace) -> None:
    """Write the runs that have ended so far; whole, so that an interruption costs one run.

    Raises:
        OSError: the disk refused; nothing is left behind.
    """
    write_json(path, trace.as_json())


def write_machine(folder: Path, machine: Machine) -> None:
    """Write `machine.json` into a machine's folder."""
    write_json(folder / "machine.json", machine.as_json())


def write_primitives(folder: Path, primitives: Primitives) -> None:
    """Write `primitives.json` into a machine's folder."""
    write_json(folder / "primitives.json", primitives.model_dump(mode="json"))


def finite_or_none(value: float) -> float | None:
    """The value, or None where JSON could not carry it."""
    return value if math.isfinite(value) else None
