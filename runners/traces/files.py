"""Read and write traces: one experiment on one machine, as versioned JSON.

Flow: `runners/core/measuring` puts a `Trace` together; `write` puts it on disk whole; `read` gives
it back to the generator, refusing whatever it does not know. What a trace holds is in
`runners/core/trace`. No torch here: pages are built from committed traces on machines
that never install it.
"""

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from proofbook.runners.core.trace.fields import Steps
from proofbook.runners.core.trace.records import Machine, Trace
from proofbook.runners.core.trace.schema import Guarded, Record, digest_of
from proofbook.runners.system.book import own_book, program
from proofbook.runners.system.errors import FixableError
from proofbook.runners.system.files import write_json
from proofbook.runners.traces.digest import program_digests, source_digest
from proofbook.runners.traces.invariants import violations

PLANNED = ("plans", "planner")  # folders of simulated files
MACHINE = "machine"  # the file of a machine's folder that is no trace
EDITED = "edited or cut since it was written"
RecordT = TypeVar("RecordT", bound=Record)


class TraceError(FixableError):
    """A trace that cannot be used; the message names the file and the field."""


@lru_cache(maxsize=512)
def _parsed(path: Path, text: str, model: type[RecordT]) -> RecordT:
    """The record in a file's text; the same text is read once, and records never change."""
    try:
        document = json.loads(text)
        record = model.model_validate(document)
    except ValidationError as error:
        first, others = error.errors()[0], error.error_count() - 1
        message = first["msg"].removeprefix("Value error, ")
        message = f"{message[0].lower()}{message[1:]}"
        if not first["loc"]:
            message = f"not a JSON object; {remedy(path)}"
        raise _of_field(path, first["loc"], message, others) from None
    except (ValueError, RecursionError) as error:
        raise _torn(path, error) from None
    broken = list(violations(record)) if isinstance(record, Trace) else []
    if broken:
        raise _of_field(path, *broken[0], len(broken) - 1)
    if isinstance(record, Guarded) and record.values != _values(document):
        raise TraceError(f"{path}: {EDITED}; {remedy(path)}")
    return record


def _values(document: dict[str, Any]) -> str:
    """The digest of all other fields of a file."""
    return digest_of({name: held for name, held in document.items() if name != "values"})


def again(path: Path) -> str:
    """The command, in backquotes, that makes a file of traces or plans again."""
    folder, name = path.parent.name, path.stem
    if folder in PLANNED:
        return f"`{program()} plan check {name} --write`"
    asked = f"{'' if own_book() else 'ddp '}--force" if name == MACHINE else name
    is_ours = folder.startswith("reference-") and not own_book()
    return f"`{program()} run {asked}{' --as-reference --full' if is_ours else ''}`"


def remedy(path: Path) -> str:
    """The advice for a file that is missing, cut or edited."""
    return f"restore it from git, or make it again with {again(path)}"


def _torn(path: Path, error: Exception) -> TraceError:
    return TraceError(f"{path}: not a whole JSON file ({error}); {remedy(path)}")


def _of_field(path: Path, field: Steps, message: str, others: int) -> TraceError:
    """An error that names file and field, and how many others there are."""
    more = f" (and {others} more)" if others else ""
    return TraceError(f"{path}: {'.'.join(map(str, field)) or '(whole file)'}: {message}{more}")


def read_record(path: Path, model: type[RecordT]) -> RecordT:
    """The record in a JSON file, validated by `model`; TraceError names the file and the field.

    It is raised where the file is missing, torn, of an unknown schema, or a field is malformed,
    unknown, not finite, or contradicts another (`invariants.py`).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise TraceError(f"{path}: no such file; {remedy(path)}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise _torn(path, error) from None
    record: RecordT = _parsed(path, text, model)
    return record


def read(path: Path) -> Trace:
    """Read one trace: `<experiment>.json`, `.<experiment>.part`, or the file of a try.

    TraceError as `read_record`, and where it is the trace of another experiment.
    """
    trace = read_record(path, Trace)
    experiment = path.name.removeprefix(".").partition(".")[0]
    if trace.experiment != experiment:
        raise TraceError(
            f"{path}: experiment: is {trace.experiment!r}, the file says {experiment!r}"
        )
    return trace


def trace_paths(folder: Path) -> list[Path]:
    """The traces of a machine's folder, in order of their experiments."""
    return [path for path in sorted(folder.glob("*.json")) if path.stem != MACHINE]


def read_machine(folder: Path) -> Machine:
    """Read `machine.json` of a machine's folder; errors as `read_record` has them."""
    return read_record(folder / "machine.json", Machine)


def is_stale(trace: Trace) -> bool:
    """Whether the code or a program behind a measured trace has changed."""
    is_other_code = trace.code.digest != source_digest(trace.experiment)
    return is_other_code or bool(outdated_programs(trace))


def outdated_programs(trace: Trace) -> list[str]:
    """The runs whose program is another one now, or is gone."""
    now, then = program_digests(trace.experiment), trace.code.programs
    programs = {name: str(run.settings.get("program")) for name, run in trace.runs.items()}
    return [name for name, path in programs.items() if then.get(path) != now.get(path)]


def write(path: Path, record: Record) -> None:
    """Write a record as JSON atomically, a `Guarded` record with the digest of its other fields.

    ValueError where it holds a number that is not finite; OSError leaves nothing behind.
    """
    document = record.as_json()
    if isinstance(record, Guarded):
        document["values"] = _values(document)
    write_json(path, document)
