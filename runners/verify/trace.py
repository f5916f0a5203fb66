"""The trace of a watched script: what `verify` reported, tensor by tensor and rank by rank.

In: `content/tries/<script>-<digest>.verify.json`, which `keep` writes; git ignores it, and pages
show it while they are served. A report that a page of the book shows lies in `content/verified`,
beside its program. Out: a `Watched`, or one line that says what is wrong with the file. No torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from runners.traces.files import TraceError, read_record, remedy
from runners.traces.records import Circumstances
from runners.traces.schema import Guarded, Moment, Record, Shape

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


class Flow(Record):
    """What one rank passed through a module in one update.

    Norms are those of what the rank holds; null: nothing, or not finite. Weights are those of the
    tokens or samples of its losses; null where another rank has the same batch.
    """

    rank: Annotated[int, Field(ge=0)]
    update: Annotated[int, Field(ge=1)]
    module: str
    inputs: list[Shape]
    num_forwards: int
    num_weights: int = 0
    lowest_weight: float | None = None
    highest_weight: float | None = None
    sum_of_weights: float | None = None
    gradient_norm: Size | None  # before clipping
    clipped_norm: Size | None
    update_norm: Size | None


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
    flow: list[Flow]
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
    for field, message in _violations(watched):
        raise TraceError(f"{path}: {field}: {message}; {AGAIN}")
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
    for row in one.flow:
        if row.rank >= report.world_size:
            yield "rank", f"{row.rank} of {report.world_size} ranks"
