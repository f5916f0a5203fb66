"""The verdict on a script, printed and kept: findings first, then the gaps of the comparison.

A `Verdict` collects findings and gaps, and `--json` prints it. `lines` is the same as text, on at
most a screen: its first line is the first finding, and its last line is the verdict. `causes.yml`
has the usual cause of each finding, and the section that explains it. `publish` writes a `Watched`
into `content/tries`, which git ignores and `make serve` shows; a report that a page shows lies in
`content/verified`. No torch.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import sys
import textwrap
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TextIO

import yaml
from pydantic import ConfigDict, Field

from proofbook.runners.core.trace import machine, schema
from proofbook.runners.core.trace.records import Circumstances
from proofbook.runners.system.book import program
from proofbook.runners.system.errors import FixableError, first_line
from proofbook.runners.system.progress_lines import say
from proofbook.runners.traces.digest import code_digest
from proofbook.runners.traces.files import TraceError, read_record, remedy, write

if TYPE_CHECKING:
    from proofbook.companions.verify.records import Modules  # which imports torch

Size = Annotated[float, Field(ge=0)]
Term = tuple[int, int | None]  # a rank, and one of its backward passes (None: all of them)


class Error(NamedTuple):
    """The error of a tensor against that of one process, and the allowed one, over its norm."""

    error: float
    allowed: float

    @property
    def agrees(self) -> bool:
        """Whether the error is no more than rounding; one that is not finite does not agree."""
        return self.error <= self.allowed


class Off(schema.Record):
    """The largest error of a tensor in any update, and what rounding allows, over its norm."""

    error: Size | None  # null: not finite
    allowed: Size
    update: int  # from 1

    @property
    def agrees(self) -> bool:
        """Whether the error is no more than rounding."""
        return self.error is not None and self.error <= self.allowed


@dataclass
class Finding:
    """A difference between the script and one process, with its cause and place."""

    __pydantic_config__ = ConfigDict(strict=False)  # JSON has no dataclass
    cause: str  # a key of the table of causes
    says: str  # what was seen
    place: str = ""  # the script's line
    parameter: str = ""  # the first that differs, and how many more
    rank: int | None = None  # the first rank
    step: int | None = None  # the number of the update, from 1; None where it concerns none
    off: str = ""  # by how much it differs: a factor, and what it is (`2 = ranks`)
    others: list[str] = field(default_factory=list)  # causes that give the same factor here


def in_words(factor: float, ranks: Collection[int], parts: int = 1) -> str:
    """A factor as text, with the numbers of ranks or microbatches that explain it: `2 = ranks`."""
    known = [("ranks", n) for n in ranks] + [("microbatches", parts)]
    known += [("(ranks × microbatches)", n * parts) for n in ranks if parts > 1]
    names = [name for name, n in known if n > 1 and abs(abs(factor) / n - 1) < 0.01]
    names += [f"1 / {name}" for name, n in known if n > 1 and abs(abs(factor) * n - 1) < 0.01]
    return " = ".join([f"{factor:.4g}", *dict.fromkeys(names)])


Word = Literal["agrees", "differs", "not compared"]
CODES: dict[Word, int] = {"agrees": 0, "differs": 1, "not compared": 3}  # exit codes


class Verdict(schema.Record):
    """Findings, gaps and notes of a run, as `--json` prints them and a trace keeps them."""

    model_config = ConfigDict(frozen=False)
    script: str = ""
    world_size: Annotated[int, Field(ge=1)] = 1
    verdict: Word = "agrees"
    findings: list[Finding] = []  # most certain first
    weights: str = ""  # the line of the weights
    compared: dict[str, int] = {}  # numbers of parameters and updates
    not_compared: list[str] = []  # gaps, each with the reason
    notes: list[str] = []
    # The gaps that a run as one process leaves open.
    lasting: set[str] = Field(default=set(), exclude=True)
    # Of a tensor's gradient and of its step, which the optimizer added: module, name, which one.
    largest: dict[tuple[str, str, str], Off] = Field(default={}, exclude=True)
    # A norm was judged, or gradients were clipped by hand.
    has_clipped: bool = Field(default=False, exclude=True)

    @property
    def outcome(self) -> Word:
        """The verdict that findings and gaps imply."""
        return "differs" if self.findings else "not compared" if self.not_compared else "agrees"

    def find(self, finding: Finding) -> None:
        """Add a finding, once for each cause."""
        if all(known.cause != finding.cause for known in self.findings):
            self.findings.append(finding)

    def skip(self, what: str, *, is_lasting: bool = False) -> None:
        """Add a gap with its reason, once; a lasting one stays open in a run as one process."""
        if what not in self.not_compared:
            self.not_compared.append(what)
        if is_lasting:
            self.lasting.add(what)

    def keep_largest(
        self, module: str, number: int, kind: str, errors: Mapping[str, Error]
    ) -> None:
        """Keep each tensor's error if it is the largest of all updates, over the allowed error."""
        for name, (error, allowed) in errors.items():
            most = allowed if math.isfinite(allowed) else 0.0
            new = Off(error=schema.finite_or_none(error), allowed=most, update=number + 1)
            old = self.largest.get((module, name, kind))
            if old is None or _share(new) > _share(old):
                self.largest[module, name, kind] = new

    def close_gaps(self, how: str) -> None:
        """Replace all gaps but the lasting ones by a note, since the whole was compared."""
        closed = [gap for gap in self.not_compared if gap not in self.lasting]
        more = f" and {len(closed) - 1} more" if len(closed) > 1 else ""
        self.notes.append("; this answers: ".join([how, *(gap + more for gap in closed[:1])]))
        self.not_compared = [gap for gap in self.not_compared if gap in self.lasting]


def _share(off: Off) -> float:
    return math.inf if off.error is None else off.error / max(off.allowed, 1e-300)


_FILE = Path(__file__).with_name("causes.yml")


class Cause(NamedTuple):
    """A row of `causes.yml`."""

    title: str
    usually: str
    page: str
    section: str
    group: str = "others"  # under which the book lists it


@cache
def causes() -> dict[str, Cause]:
    """All causes by their key."""
    rows = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return {key: Cause(row["title"], row["usually"], **row["book"]) for key, row in rows.items()}


SCHEMA = 2
WIDTH = 84
MOST_FINDINGS = 3
MOST_REASONS = 6


def lines(report: Verdict) -> Iterator[str]:
    """Yield the report's lines: findings, weights, agreement, notes, gaps, and the verdict last."""
    findings, numbers = report.findings, report.compared
    for finding in findings[:MOST_FINDINGS]:
        yield from _finding_lines(finding, report.world_size)
    if len(findings) > MOST_FINDINGS:
        yield f"  … and {len(findings) - MOST_FINDINGS} more findings; --json lists all"
    if report.weights:
        yield f"  {report.weights}"
    if numbers.get("parameters_compared") and not findings:
        yield (
            f"  agree: {numbers['parameters_compared']} of {numbers['parameters']} parameters, "
            f"in {numbers['updates']} update{'s' * (numbers['updates'] != 1)} "
            f"on {report.world_size} ranks"
        )
    for note in report.notes:
        yield from _wrapped(f"note: {note}")
    for reason in report.not_compared[:MOST_REASONS]:
        yield from _wrapped(f"not compared: {reason}")
    if len(report.not_compared) > MOST_REASONS:
        yield f"  … and {len(report.not_compared) - MOST_REASONS} more; --json lists all"
    yield f"verify: {report.outcome}{_head(report)}"


def _head(report: Verdict) -> str:
    if report.findings:
        return f" ({_lower(causes()[report.findings[0].cause].title)})"
    if report.not_compared:
        is_some = report.compared.get("parameters_compared")
        return " completely; what was compared agrees" if is_some else ""
    return " with one process: forward, weights of the loss, gradients and update"


def _lower(title: str) -> str:
    return title[0].lower() + title[1:]


def _finding_lines(finding: Finding, world_size: int) -> Iterator[str]:
    cause, off = causes()[finding.cause], finding.off and f"off by {finding.off}"
    head = ": ".join(filter(None, [finding.place, finding.parameter, off]))
    yield f"{head} ({_lower(cause.title)})" if head else cause.title
    numbered = (("rank", finding.rank), ("step", finding.step))
    at = ", ".join(f"{name} {number}" for name, number in numbered if number is not None)
    first, *rest = finding.says.splitlines()
    for line in (f"{at}: {first}" if at and not rest else first, *rest):
        yield from _wrapped(line, 4)
    yield from _wrapped(cause.usually, 4)
    for other in map(causes().__getitem__, finding.others):
        yield from _wrapped(f"Or it is {_lower(other.title)}. {other.usually}", 4)
    if finding.others:
        apart = 3 if world_size == 2 else 2
        yield f"    On {apart} ranks these factors differ: a run there tells the causes apart."
    yield f"    The book: {cause.page}, “{cause.section}”"


def _wrapped(text: str, indent: int = 2) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2),
        break_long_words=False,
    )  # fmt: skip


def as_json(report: Verdict) -> str:
    """The report as a text of JSON, with the title and the lesson of each finding's cause."""
    document = {"schema": SCHEMA, **report.model_dump()}
    for finding in document["findings"]:
        cause = causes()[finding["cause"]]
        finding |= {"title": cause.title, "usually": cause.usually}
        finding["lesson"] = {"page": cause.page, "section": cause.section}
    return json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False)


def say_wrong_call(error: FixableError) -> int:
    """Print the error of a wrong call; returns the exit code."""
    say(f"runners.verify: {error}")
    sys.stdout.write("verify: wrong call\n")
    sys.stdout.flush()
    return error.exit_code


SUFFIX = ".verify.json"
AS_REFERENCE = "--as-reference"  # the option that writes the report beside its program
AGAIN = "delete it, or run `verify` again"


class Parameter(schema.Record):
    """A parameter, in the order of the model; null: not compared."""

    module: str
    name: str
    shape: schema.Shape
    gradient: Off | None
    step: Off | None
    is_frozen: bool = False

    @property
    def state(self) -> str:
        """A word for its gradient and its step: agrees, differs, not compared or frozen."""
        if self.is_frozen:
            return "frozen"
        if any(off and not off.agrees for off in (self.gradient, self.step)):
            return "differs"
        return "agrees" if self.gradient else "not compared"


class Watched(schema.Guarded):
    """The kept trace of a watched script."""

    schema_version: Literal[2]
    recorded_at: schema.Moment
    machine: str
    circumstances: Circumstances
    command: str
    code: str  # the digest of the script's text
    judge: str = ""  # the digest of `verify` itself
    printed: str
    report: Verdict
    tensors: list[Parameter]
    samples: list[str] = []  # digests of those that the watched updates used, of a run that began
    # anew: its optimizers had no state before the first one

    @property
    def anew(self) -> str:
        """The command, in backquotes, that writes the report of a program of the book again."""
        return f"`{program()} {self.command.replace('verify', f'verify {AS_REFERENCE}', 1)}`"

    @property
    def first(self) -> Parameter | None:
        """The first tensor that differs, in the order of the model."""
        return next((tensor for tensor in self.tensors if tensor.state == "differs"), None)


def read(path: Path) -> Watched:
    """The `Watched` record in a file, checked for contradictions.

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


def _violations(watched: Watched) -> Iterator[tuple[str, str]]:
    """Fields in which a record contradicts itself, each with the contradiction."""
    report, gaps = watched.report, watched.report.not_compared
    unknown = [finding.cause for finding in report.findings if finding.cause not in causes()]
    if unknown:
        yield "report.findings", f"no cause {unknown[0]!r}"
    if report.verdict != report.outcome:
        both = f"{len(report.findings)} findings; not compared: {gaps}"
        yield "report.verdict", f"{report.verdict!r}, with {both}"
    if report.verdict == "agrees" and watched.first:
        yield "tensors", f"{watched.first.name} differs, and the report agrees"
    if watched.tensors and len(watched.tensors) != report.compared.get("parameters"):
        yield "tensors", f"{len(watched.tensors)}, and the report has {report.compared}"


def publish(
    verdict: Verdict, script: Path, words: Sequence[str], world_size: int,
    modules: Modules = (), document: TextIO | None = None,
) -> int:  # fmt: skip
    """Complete the verdict on a run, keep its trace, and print it; returns the exit code.

    `words` are options, the script, and its arguments, as typed; `modules` is empty where the
    script did not come so far. JSON goes to a `document`, else text is printed.
    """
    verdict.notes += _repeated_samples(modules, script)
    verdict.script, verdict.world_size, verdict.verdict = script.name, world_size, verdict.outcome
    text = [*lines(verdict)]
    try:
        kept = _keep(verdict, modules, script, words, "\n".join(text))
    except Exception as error:  # noqa: BLE001 a trace that cannot be kept changes no verdict
        kept = f"verify: this run is not kept ({first_line(error)})"
    if kept and document:
        say(kept)
    text[-1:-1] = [kept] * bool(kept)
    output = document or sys.stdout
    output.write(f"{as_json(verdict)}\n" if document else "\n".join([*text, ""]))
    output.flush()
    return CODES[verdict.outcome]


def _keep(
    verdict: Verdict, modules: Modules, script: Path, words: Sequence[str], printed: str
) -> str:
    """Write the trace of a run over that of the same command; returns a line with its path."""
    is_of_book, folder, is_resumed = words[0] == AS_REFERENCE, _folder(), _is_resumed(modules)
    words = words[is_of_book:]
    if not folder.parent.is_dir():
        return ""
    command = shlex.join(["verify", "--ranks", str(verdict.world_size), *words])
    run = [str(script.resolve()), command, *["resumed"] * is_resumed]
    name = re.sub(r"[^\w-]+", "_", script.stem) + f"-{schema.digest_of(run)[:8]}"
    watched = Watched(
        schema_version=2, recorded_at=schema.now(), machine=machine.name(),
        circumstances=machine.circumstances(), command=command, code=_code(script),
        judge=own_digest(), printed=printed, report=verdict,
        tensors=list(_tensors(verdict, modules)),
        samples=[] if is_resumed else sorted(_samples(modules)),
    )  # fmt: skip
    path = script.with_suffix(".json") if is_of_book else folder / f"{name}{SUFFIX}"
    write(path, watched)
    if is_of_book:
        return f"verify: kept in {machine.from_home(path)}"
    return f"verify: kept in {machine.from_home(path)}; `make serve` shows it on verify/{name}.html"


def _repeated_samples(modules: Modules, script: Path) -> list[str]:
    """A note where a resumed run uses samples of the first updates.

    Those are known from a kept run of the same script that began anew.
    """
    own = _samples(modules)
    for path in sorted(_folder().glob(f"*{SUFFIX}")) if own and _is_resumed(modules) else ():
        with suppress(TraceError):
            earlier = read(path)
            again = own & {*earlier.samples}
            if again and earlier.code == _code(script):
                return [
                    f"{len(again)} of {len(own)} samples were used by the first updates of a run "
                    f"that began anew ({path.name}), and this one has an optimizer's state: with "
                    "it, restore the epoch and the batches that were already read"
                ]
    return []


def _folder() -> Path:
    """The folder of kept runs; outside a project, its parent does not exist."""
    return machine.TRACES.parent / "tries"


def own_digest() -> str:
    """The digest of the code that watches and compares, and of the words of causes."""
    return schema.digest_of([code_digest(Path(__file__).with_name("__main__.py")), causes()])


def _code(script: Path) -> str:
    return schema.digest_of(script.read_text(encoding="utf-8", errors="replace"))


def _samples(modules: Modules) -> set[str]:
    forwards = (forward for m in modules for update in m.updates for forward in update.forwards)
    return {sample for forward in forwards for sample in forward.samples}


def _is_resumed(modules: Modules) -> bool:
    return any(
        any(record.left_behind for record in module.records.values())
        or any(update.state for update in module.updates)
        for module in modules
    )


def _tensors(verdict: Verdict, modules: Modules) -> Iterator[Parameter]:
    for module in modules:
        updates = module.first.updates
        for name, part in updates[0].parameters.items() if updates else ():
            yield Parameter(
                module=module.key, name=name, shape=list(part.shape),
                gradient=verdict.largest.get((module.key, name, "gradient")),
                step=verdict.largest.get((module.key, name, "step")),
                is_frozen=all(name in update.frozen for update in updates),
            )  # fmt: skip
