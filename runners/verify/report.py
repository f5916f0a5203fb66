"""What the tool says of a script, prints and keeps: findings first, then what was not compared.

A `Verdict` collects findings and gaps. `lines` prints it, on at most a screen; the last line is the
verdict. `document` is the same for programs. `causes.yml` has the usual cause of each finding, and
the section that explains it. `keep` writes a `Watched` into `content/tries`, which git ignores and
`make serve` shows; a report that a page shows lies in `content/verified`. No torch.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import yaml
from pydantic import Field

from runners.system.errors import FixableError
from runners.system.patience import say
from runners.traces import machine
from runners.traces.files import TraceError, read_record, remedy, write
from runners.traces.records import Circumstances
from runners.traces.schema import Guarded, Moment, Record, Shape, digest_of, now

if TYPE_CHECKING:
    from runners.verify.records import Layout, Update  # which import torch

Term = tuple[int, int | None]  # a rank, and one of its backward passes (None: all of them)


class Error(NamedTuple):
    """How far a tensor is from that of one process, and what rounding allows; over its norm."""

    error: float
    allowed: float

    @property
    def agrees(self) -> bool:
        """Whether it is no more than rounding; a tensor that is not finite does not agree."""
        return self.error <= self.allowed


@dataclass
class Strip:
    """What an update of a module differs by, tensor by tensor; updates count from 1."""

    module: str
    update: int
    gradients: dict[str, Error]  # up to `factors`
    factors: dict[Term, float] | None
    steps: dict[str, Error] = field(default_factory=dict)  # of what the optimizer added


@dataclass
class Finding:
    """Something that one process would do otherwise."""

    cause: str  # a key of the table of causes
    says: str  # what was seen
    place: str = ""  # the script's line
    parameter: str = ""  # the first that differs, and how many more
    rank: int | None = None  # the first rank
    step: int | None = None  # the number of the update, from 1; None where it concerns none
    detail: str = ""  # more, in one line


@dataclass
class Verdict:
    """All that is said."""

    findings: list[Finding] = field(default_factory=list)  # most certain first
    not_compared: list[str] = field(default_factory=list)  # what was not, and why
    lasting: set[str] = field(default_factory=set)  # what of that a run as one process leaves open
    notes: list[str] = field(default_factory=list)
    weights: str = ""  # the line of the weights
    numbers: dict[str, int] = field(default_factory=dict)  # of parameters and updates, for `--json`
    strips: list[Strip] = field(default_factory=list)  # of each update that was compared

    def find(self, finding: Finding) -> None:
        """Add a finding, once for each cause."""
        if all(one.cause != finding.cause for one in self.findings):
            self.findings.append(finding)

    def skip(self, what: str, *, is_lasting: bool = False) -> None:
        """Say what was not compared, once.

        Args:
            what: and why.
            is_lasting: whether a run as one process leaves it open.
        """
        if what not in self.not_compared:
            self.not_compared.append(what)
        if is_lasting:
            self.lasting.add(what)

    def proven(self, how: str) -> None:
        """What was not compared in parts has been compared as a whole, but for what lasts."""
        others = [one for one in self.not_compared if one not in self.lasting]
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        self.notes.append("; this answers: ".join([how, *(one + more for one in others[:1])]))
        self.not_compared = [one for one in self.not_compared if one in self.lasting]

    @property
    def exit_code(self) -> int:
        """0 all agrees, 1 findings, 3 something was not compared."""
        return 1 if self.findings else 3 if self.not_compared else 0


_FILE = Path(__file__).with_name("causes.yml")
# How the table is divided, in its order: what a reader sees of gradients, updates and losses.
GROUPS = {
    "ranks": "A factor that is the number of ranks",
    "microbatches": "A factor that is the number of microbatches",
    "own": "The gradient of one rank, or a part",
    "zero": "Zero, or lost",
    "before": "Something of the update before",
    "module": "Everything behind one module",
    "norms": "Normalizations only",
    "experts": "Experts only",
    "others": "Data, weights, updates, and how the script ends",
}


class Cause(NamedTuple):
    """A row of the table."""

    title: str
    usually: str
    page: str
    section: str
    group: str


@cache
def table() -> dict[str, Cause]:
    """All causes by their key."""
    rows = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return {
        key: Cause(row["title"], row["usually"], **row["lesson"], group=row.get("group", "others"))
        for key, row in rows.items()
    }


SCHEMA = 1
WIDTH = 84
MOST_FINDINGS = 4
MOST_REASONS = 6
WORDS: dict[int, Word] = {0: "agrees", 1: "differs", 3: "not compared"}


def lines(verdict: Verdict, script: str, world_size: int) -> Iterator[str]:
    """The report of a run."""
    numbers = verdict.numbers
    yield f"verify {script} on {world_size} ranks"
    for finding in verdict.findings[:MOST_FINDINGS]:
        yield from _finding(finding)
    if len(verdict.findings) > MOST_FINDINGS:
        yield f"  … and {len(verdict.findings) - MOST_FINDINGS} more; --json lists all"
    if verdict.weights and all(one.detail != verdict.weights for one in verdict.findings):
        yield f"  {verdict.weights}"
    if numbers.get("parameters_compared"):
        yield (
            f"  agree: {numbers['parameters_compared']} of {numbers['parameters']} parameters, "
            f"in {numbers['updates']} update{'s' * (numbers['updates'] != 1)}"
        )
    for note in verdict.notes:
        yield from _wrapped(f"note: {note}")
    for reason in verdict.not_compared[:MOST_REASONS]:
        yield from _wrapped(f"not compared: {reason}")
    if len(verdict.not_compared) > MOST_REASONS:
        yield f"  … and {len(verdict.not_compared) - MOST_REASONS} more; --json lists all"
    yield f"verify: {WORDS[verdict.exit_code]}{_head(verdict)}"


def _head(verdict: Verdict) -> str:
    if verdict.findings:
        title = table()[verdict.findings[0].cause].title
        return f" ({_lower(title)})"
    if verdict.not_compared:
        is_some = verdict.numbers.get("parameters_compared")
        return " in all parts; what was compared agrees" if is_some else ""
    return " with one process: forward, weights of the loss, gradients and update"


def _lower(title: str) -> str:
    return title[0].lower() + title[1:]


def _finding(one: Finding) -> Iterator[str]:
    row = table()[one.cause]
    where = [one.parameter] if one.parameter else []
    where += [] if one.rank is None else [f"rank {one.rank}"]
    where += [] if one.step is None else [f"step {one.step}"]
    yield f"✗ {one.place}: {_lower(row.title)}" if one.place else f"✗ {row.title}"
    for line in (one.says + (f"; {one.detail}" if one.detail else "")).splitlines():
        yield from _wrapped(line, 4)
    if where:
        yield from _wrapped(", ".join(where), 4)
    yield from _wrapped(row.usually, 4)
    yield f"    The book: {row.page}, “{row.section}”"


def _wrapped(text: str, indent: int = 2) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2)
    )


def document(verdict: Verdict, script: str, world_size: int) -> Report:
    """The same, all of it, for programs."""
    found = [
        Found(**asdict(one), title=row.title, usually=row.usually,
              lesson={"page": row.page, "section": row.section})
        for one in verdict.findings for row in [table()[one.cause]]
    ]  # fmt: skip
    return Report(
        script=script, world_size=world_size, verdict=WORDS[verdict.exit_code], findings=found,
        weights=verdict.weights, compared=verdict.numbers, not_compared=verdict.not_compared,
        notes=verdict.notes,
    )  # fmt: skip


def as_json(report: Report) -> str:
    """The document as it is printed."""
    held = {"schema": SCHEMA, **report.model_dump()}
    return json.dumps(held, indent=2, sort_keys=True, ensure_ascii=False)


def say_wrong(error: FixableError) -> int:
    """Say that the call was wrong; the exit code."""
    say(f"runners.verify: {error}")
    sys.stdout.write("verify: wrong call\n")
    sys.stdout.flush()
    return error.exit_code


SUFFIX = ".verify.json"
AGAIN = "delete it, or run `verify` again"
Size = Annotated[float, Field(ge=0)]
Word = Literal["agrees", "differs", "not compared"]


class Found(Record):
    """A finding, as `--json` prints it; `lesson` has a page and a section."""

    cause: str
    title: str
    says: str
    usually: str
    lesson: dict[str, str]
    place: str
    parameter: str
    rank: int | None
    step: int | None
    detail: str


class Report(Record):
    """What `--json` prints, of this schema."""

    script: str
    world_size: Annotated[int, Field(ge=1)]
    verdict: Word
    findings: list[Found]
    weights: str
    compared: dict[str, int]
    not_compared: list[str]
    notes: list[str]


class Off(Record):
    """The largest error of a tensor in any update, and what rounding allows, over its norm."""

    error: Size | None  # null: not finite
    allowed: Size
    update: int

    @property
    def agrees(self) -> bool:
        """Whether it is no more than rounding."""
        return self.error is not None and self.error <= self.allowed


class Parameter(Record):
    """A parameter, in the order of the model; null: not compared."""

    module: str
    name: str
    shape: Shape
    gradient: Off | None
    step: Off | None
    is_frozen: bool = False

    @property
    def state(self) -> str:
        """How its gradient and its update compare with those of one process."""
        if self.is_frozen:
            return "frozen"
        if any(one and not one.agrees for one in (self.gradient, self.step)):
            return "differs"
        return "agrees" if self.gradient else "not compared"


class Watched(Guarded):
    """A script that was watched."""

    schema_version: Literal[1]
    recorded_at: Moment
    machine: str
    circumstances: Circumstances
    command: str
    code: str  # the digest of the script's text
    printed: str
    report: Report
    tensors: list[Parameter]
    samples: list[str] = []  # digests of those that the watched updates used
    is_resumed: bool = False  # its optimizers had a state before the first update

    @property
    def first(self) -> Parameter | None:
        """The first tensor that differs, in the order of the model."""
        return next((one for one in self.tensors if one.state == "differs"), None)


def read(path: Path) -> Watched:
    """Read the trace of a watched script.

    Raises:
        TraceError: it is missing, torn, edited, of another version, or contradicts itself.
    """
    try:
        watched = read_record(path, Watched)
    except TraceError as error:
        raise TraceError(f"{str(error).removesuffix(f'; {remedy(path)}')}; {AGAIN}") from None
    for key, message in _violations(watched):
        raise TraceError(f"{path}: {key}: {message}; {AGAIN}")
    return watched


def _violations(one: Watched) -> Iterator[tuple[str, str]]:
    """How a record contradicts itself."""
    report = one.report
    if (report.verdict == "differs") != bool(report.findings):
        yield "report.verdict", f"{report.verdict!r}, with {len(report.findings)} findings"
    if (report.verdict == "not compared") != (bool(report.not_compared) and not report.findings):
        yield "report.verdict", f"{report.verdict!r}, and not compared: {report.not_compared}"
    if report.verdict == "agrees" and one.first:
        yield "tensors", f"{one.first.name} differs, and the report agrees"
    if one.tensors and len(one.tensors) != report.compared.get("parameters"):
        yield "tensors", f"{len(one.tensors)}, and the report has {report.compared}"


def kept(
    verdict: Verdict, layouts: Sequence[Layout], script: Path, words: Sequence[str],
    report: Report, printed: str,
) -> Path | None:  # fmt: skip
    """Write the trace of a run over that of the same command; its path, None outside a project.

    Args:
        verdict: of the run.
        layouts: what the ranks recorded; empty where the script did not come so far.
        script: its path.
        words: options, the script, and its arguments, as typed.
        report: as `--json` has it.
        printed: the same as text.
    """
    folder = _folder()
    if folder is None:
        return None
    command = shlex.join(["verify", "--ranks", str(report.world_size), *words])
    watched = Watched(
        schema_version=1, recorded_at=now(), machine=machine.name(),
        circumstances=machine.circumstances(), command=command,
        code=_code(script), printed=printed, report=report,
        tensors=list(_tensors(verdict.strips, layouts)),
        samples=sorted(_samples(layouts)), is_resumed=_is_resumed(layouts),
    )  # fmt: skip
    run = [str(script.resolve()), command, *["resumed"][: watched.is_resumed]]
    path = folder / f"{_name(script)}-{digest_of(run)[:8]}{SUFFIX}"
    write(path, watched)
    return path


def seen_before(layouts: Sequence[Layout], script: Path) -> str:
    """What to say where a run that goes on from a saved state uses samples of the first updates.

    Those are known from a kept run of the same script that began anew.
    """
    folder, own = _folder(), _samples(layouts)
    if folder is None or not own or not _is_resumed(layouts):
        return ""
    for path in sorted(folder.glob(f"{_name(script)}-*{SUFFIX}")):
        with suppress(TraceError):
            earlier = read(path)
            again = own & set(earlier.samples)
            if earlier.code == _code(script) and not earlier.is_resumed and again:
                return (
                    f"{len(again)} of {len(own)} samples were used by the first updates of a run "
                    f"that began anew ({path.name}), and this one has an optimizer's state: with "
                    "it, restore the epoch and the batches that were already read"
                )
    return ""


def _folder() -> Path | None:
    """Where runs are kept; None outside a project."""
    content = machine.TRACES.parent
    return content / "tries" if content.is_dir() else None


def _name(script: Path) -> str:
    return re.sub(r"[^\w-]+", "_", script.stem)


def _code(script: Path) -> str:
    return digest_of(script.read_text(encoding="utf-8", errors="replace"))


def _updates(layouts: Sequence[Layout]) -> Iterator[Update]:
    for layout in layouts:
        for record in layout.records.values():
            yield from record.updates


def _samples(layouts: Sequence[Layout]) -> set[str]:
    return {one for u in _updates(layouts) for forward in u.forwards for one in forward.samples}


def _is_resumed(layouts: Sequence[Layout]) -> bool:
    records = (record for layout in layouts for record in layout.records.values())
    return any(one.left_behind or any(u.state for u in one.updates) for one in records)


def _tensors(strips: Sequence[Strip], layouts: Sequence[Layout]) -> Iterator[Parameter]:
    for layout in layouts:
        own = [one for one in strips if one.module == layout.key]
        updates = layout.first.updates
        for name, part in updates[0].parameters.items() if updates else ():
            yield Parameter(
                module=layout.key, name=name,
                shape=list(part.shape),
                gradient=_largest({one.update: one.gradients.get(name) for one in own}),
                step=_largest({one.update: one.steps.get(name) for one in own}),
                is_frozen=all(name in one.frozen for one in updates),
            )  # fmt: skip


def _largest(errors: Mapping[int, Error | None]) -> Off | None:
    """The error that is largest by what rounding allows it; the first of equals."""
    known = {number: one for number, one in errors.items() if one is not None}
    if not known:
        return None
    number = max(known, key=lambda n: known[n].error / max(known[n].allowed, 1e-300))
    error, allowed = known[number]
    return Off(error=error if math.isfinite(error) else None, update=number,
               allowed=allowed if math.isfinite(allowed) else 0.0)  # fmt: skip
