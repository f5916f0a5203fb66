"""Claims as authors write them → one claim for each run that they are judged on.

In: the files of `content/claims/` and the traces, in which a selection finds its runs. Out: `Laws`,
or what is wrong with a `for:`, at its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from generator.content import names
from generator.content.claim import Case, Claim, ClaimFile, Domain
from generator.content.errors import ContentError, nearest
from generator.content.shelf import TraceOnPage, missing_run, no_trace
from runners.traces.fields import at as value_at
from runners.traces.fields import steps_of
from runners.traces.records import Run

if TYPE_CHECKING:
    from generator.content.documents import Document

Path = tuple[str | int, ...]


@dataclass
class Laws:
    """The claims of a book.

    Attributes:
        claims: by id, one for each run.
        of_law: the ids that come of each claim as it is written.
    """

    claims: dict[str, Claim] = field(default_factory=dict)
    of_law: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def lacks(self, name: str) -> str:
        """Why no claim has an id, and which one is meant."""
        if name in self.of_law:
            ids = self.of_law[name]
            return f"claim {name!r} is judged on {len(ids)} runs; name one of them: {ids[0]!r}"
        law, _, run = name.partition("@")
        if run and law in self.of_law:
            runs = [one.partition("@")[2] for one in self.of_law[law]]
            return f"claim {law!r} is not judged on {run!r}{nearest(run, filter(None, runs))}"
        return f"no claim {name!r}{nearest(name, {*self.claims, *self.of_law})}"


def of_documents(
    documents: Sequence[Document[ClaimFile]],
    traces: Mapping[str, TraceOnPage],
    errors: list[ContentError],
) -> Laws:
    """Every claim of a book, once for each of its runs; mistakes go to `errors`."""
    found = Laws()
    for document in documents:
        for position, claim in enumerate(document.model.claims):
            place = ("claims", position, "for")
            runs = tuple(_runs_of_cases(document, place, claim, traces, errors))
            own = _on_runs(document, position, runs)
            found.claims.update((one.id, one) for one in own)
            found.of_law[claim.id] = tuple(one.id for one in own)
    return found


@lru_cache(maxsize=4096)
def _on_runs(
    document: Document[ClaimFile], position: int, runs: tuple[tuple[int, str], ...]
) -> tuple[Claim, ...]:
    """A claim of a file on each of its runs; made once as long as the file is as it was."""
    claim = _within(document.model, document.model.claims[position])
    if not claim.cases:
        return (alone(claim),)
    nothing: dict[str, object] = {"experiment": None, "strategy": [], "where": {}}
    cases = (claim.cases[n].model_copy(update={"run": run, **nothing}) for n, run in runs)
    return tuple(written_out(claim, case) for case in cases)


def _within(file: ClaimFile, claim: Claim) -> Claim:
    """A claim under the regime that its file states for all of its claims."""
    return claim.model_copy(update={"regime": claim.regime.over(file.regime)})


def _runs_of_cases(
    document: Document[Any],
    path: Path,
    claim: Claim,
    traces: Mapping[str, TraceOnPage],
    errors: list[ContentError],
) -> Iterator[tuple[int, str]]:
    """The runs that a claim is judged on, each with the position of its case."""
    seen: set[str] = set()
    for position, case in enumerate(claim.cases):
        place = (*path, position)
        runs = [case.run] if case.run else _selected(case, traces)
        problems = [missing_run(traces, run) for run in (case.run, case.other) if run]
        if not runs:
            problems = [_selects_nothing(case, traces)]
        errors += [document.error(place, problem) for problem in problems if problem]
        for run in runs:
            if run in seen:
                errors.append(document.error(place, f"for: names {run!r} already"))
                continue
            seen.add(run)
            yield position, run


def _selected(case: Case, traces: Mapping[str, TraceOnPage]) -> list[str]:
    """The runs that a selection finds: in the reference machine's trace, where it has one."""
    shown = traces.get(str(case.experiment))
    if shown is None:
        return []
    runs = (shown.reference or shown.trace).runs
    return [f"{case.experiment}.{name}" for name, run in runs.items() if _is_selected(case, run)]


def _is_selected(case: Case, run: Run) -> bool:
    wanted = case.where | ({"strategy": [*case.strategy]} if case.strategy else {})
    return all(_found(run, path) in values for path, values in wanted.items())


def _found(run: Run, path: str) -> object:
    try:
        return value_at(run, steps_of(f"experiment.run.{path}")[2:])
    except (KeyError, IndexError, AttributeError, TypeError, ValueError):
        return None


def _selects_nothing(case: Case, traces: Mapping[str, TraceOnPage]) -> str:
    shown = traces.get(str(case.experiment))
    if shown is None:
        return no_trace(str(case.experiment), traces)
    strategies = {run.strategy for run in (shown.reference or shown.trace).runs.values()}
    unknown = [one for one in case.strategy if one not in strategies]
    hint = nearest(unknown[0], strategies) if unknown else ""
    return f"no run of {case.experiment} is like that{hint}"


def alone(claim: Claim) -> Claim:
    """A claim without `for`, its texts written out."""
    return _with_texts(claim)


def written_out(claim: Claim, case: Case) -> Claim:
    """A claim on one of its runs: with an id of its own, and texts that name the run."""
    own = {key: getattr(case, key) or getattr(claim, key) for key in ("says", "showed", "source")}
    name = f"{claim.id}@{case.run}"
    return _with_texts(claim.model_copy(update={**own, "id": name, "cases": [case]}))


def short_names(claim: Claim) -> dict[str, str]:
    """What stands in the texts of a claim of one run for what."""
    found = {side: f"{side}({claim.id!r})" for side in ("predicted", "observed")}
    runs = {"run": claim.run, "other": claim.other}
    if claim.cases and claim.cases[0].called:
        found["called"] = names.Words(claim.cases[0].called)
    return found | {name: path for name, path in runs.items() if path is not None}


def _with_texts(claim: Claim) -> Claim:
    """A claim of one run with its texts written out."""
    short = short_names(claim)

    def say(text: str) -> str:
        return names.of_text(text, short)

    texts: dict[str, Any] = {"says": say(claim.says)}
    if claim.formula:
        texts["formula"] = say(claim.formula)
    if isinstance(claim.domain, Domain) and claim.domain.because:
        texts["domain"] = claim.domain.model_copy(update={"because": say(claim.domain.because)})
    if claim.showed:
        lines = {verdict: line and say(line) for verdict, line in claim.showed}
        texts["showed"] = claim.showed.model_copy(update=lines)
    return claim.model_copy(update=texts)
