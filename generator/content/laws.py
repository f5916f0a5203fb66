"""Claims as authors write them → one claim for each run that they are judged on.

In: the files of `content/claims/`. Out: `Laws`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from generator.content import names
from generator.content.claim import Case, Claim, ClaimFile
from generator.content.errors import ContentError, nearest

if TYPE_CHECKING:
    from generator.content.documents import Document

_AS_WRITTEN = frozenset({"cases", "predicted", "observed"})  # evaluated with what `run` stands for


@dataclass
class Laws:
    """The claims of a book.

    Attributes:
        claims: by id, one for each run.
        of_law: the ids that come of each claim as it is written.
        written: the file of each claim, and its position there.
    """

    claims: dict[str, Claim] = field(default_factory=dict)
    of_law: dict[str, tuple[str, ...]] = field(default_factory=dict)
    written: dict[str, tuple[Document[ClaimFile], int]] = field(default_factory=dict)

    def error(self, name: str, message: str) -> ContentError:
        """An error at the place where a claim is written."""
        document, position = self.written[name]
        return document.error(("claims", position), message)

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


def of_documents(documents: Sequence[Document[ClaimFile]]) -> Laws:
    """Every claim of a book, once for each of its runs."""
    found = Laws()
    for document in documents:
        for position, claim in enumerate(document.model.claims):
            own = _on_runs(document, position)
            found.claims.update((one.id, one) for one in own)
            found.of_law[claim.id] = tuple(one.id for one in own)
            found.written.update((one.id, (document, position)) for one in own)
    return found


@lru_cache(maxsize=4096)
def _on_runs(document: Document[ClaimFile], position: int) -> tuple[Claim, ...]:
    """A claim of a file on each of its runs, under the regime that the file states for all."""
    claim = document.model.claims[position]
    claim = claim.model_copy(update={"regime": claim.regime.over(document.model.regime)})
    on_runs = [_on_run(claim, case) for case in claim.cases] or [claim]
    return tuple(names.in_texts(one, short_names(one), _AS_WRITTEN) for one in on_runs)


def _on_run(claim: Claim, case: Case) -> Claim:
    """A claim on one of its runs, with an id and perhaps texts of its own."""
    own = {key: getattr(case, key) or getattr(claim, key) for key in ("says", "source")}
    return claim.model_copy(update={**own, "id": f"{claim.id}@{case.run}", "cases": [case]})


def short_names(claim: Claim) -> dict[str, str]:
    """What stands in the texts of a claim of one run for what."""
    found = {side: f"{side}({claim.id!r})" for side in ("predicted", "observed")}
    if claim.cases and claim.cases[0].called:
        found["called"] = names.Words(claim.cases[0].called)
    return found | claim.names
