"""`for:`: what is written once, over several runs or cases, and its short names written out.

`run.world_size` becomes `ddp.ddp.world_size` in every text, expression and id of an item or a claim
that binds `run`. A name stands for a path, or for words, which `{{ called }}` prints as they are.
An item keeps its other cases beside it; of a claim, `ClaimIndex` has one for each of its runs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel

from proofbook.generator.content import prose
from proofbook.generator.content.claim import Claim, ClaimFile
from proofbook.generator.content.errors import ContentError, nearest
from proofbook.generator.content.words import marks

if TYPE_CHECKING:
    from proofbook.generator.content.documents import Document

ModelT = TypeVar("ModelT", bound=BaseModel)
QUOTED = r"'[^']*'|\"[^\"]*\""
RUN = re.compile(r"[a-z_][a-z0-9_]*\.[a-z0-9_]+")


class BoundWords(str):
    """A phrase or a claim's id that a name of `for:` is bound to, in place of a path."""


@lru_cache(maxsize=1024)
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    """Matches a name where a path begins (no field, no call), or anything in quotes."""
    return re.compile(rf"{QUOTED}|(?<![\w.])(?:{'|'.join(names)})\b(?!\s*\()")


def bind_expression(expression: str, names: Mapping[str, str]) -> str:
    """The expression, keys of `names` replaced by paths or quoted words, also in `'law@run'`."""
    if not any(name in expression for name in names):
        return expression

    def meant(match: re.Match[str]) -> str:
        """What a name stands for; in quotes, it is the run of a claim: `'law@run'`."""
        written = match[0]
        if written[0] in "'\"":
            law, at, run = written[1:-1].partition("@")
            return f"{written[0]}{law}{at}{names.get(run, run)}{written[0]}" if at else written
        value = names[written]
        return repr(str(value)) if isinstance(value, BoundWords) else value

    return _pattern(tuple(names)).sub(meant, expression)


def bind_id(text: str, names: Mapping[str, str]) -> str:
    """An id with the name of a run written out, `law@run`, or an id that is a name itself."""
    law, at, run = text.partition("@")
    return f"{law}@{names.get(run, run)}" if at else str(names.get(text, text))


def bind_text(text: str, names: Mapping[str, str]) -> str:
    """The text, keys of `names` bound in its expressions; `{{ name }}` of words becomes these."""

    def meant(expression: str) -> str:
        words = names.get(expression)
        if isinstance(words, BoundWords):
            return words
        return f"{{{{ {bind_expression(expression, names)} }}}}"

    return prose.filled(text, meant) if names else text


_WAYS = {
    **dict.fromkeys(("line", "prose"), bind_text),
    **dict.fromkeys(("expression", "per_run"), bind_expression),
    **dict.fromkeys(("claim", "misconception", "run", "lesson figure"), bind_id),
}  # fmt: skip


def names_of_case(case: Mapping[str, int | str]) -> dict[str, str]:
    """Path or words for each name of a case; its words may print its runs."""
    plain = {name: str(value) for name, value in case.items()}
    paths = {name: text for name, text in plain.items() if RUN.fullmatch(text) or text.isdigit()}
    words = {name: BoundWords(bind_text(text, paths)) for name, text in plain.items()}
    return {name: paths.get(name) or text for name, text in words.items()}


def bind_part(model: ModelT, short: Mapping[str, str]) -> ModelT:
    """A copy of a part with short names written out, except in its own cases and draws."""
    written = model.model_fields_set - {"cases", "draws"}
    fields = {name: mark for name, _, mark in marks(type(model)) if name in written}
    bound = {name: _value(getattr(model, name), mark or "", short) for name, mark in fields.items()}
    return model.model_copy(update=bound)


def _value(value: Any, mark: str, short: Mapping[str, str]) -> Any:  # noqa: ANN401
    if isinstance(value, str):
        return _WAYS[mark](value, short) if mark in _WAYS else value
    if isinstance(value, BaseModel):
        return bind_part(value, short)
    if isinstance(value, list):
        return [_value(part, mark, short) for part in value]
    if isinstance(value, dict):
        return {key: _value(part, mark, short) for key, part in value.items()}
    return value


@dataclass
class ClaimIndex:
    """The claims of a book."""

    claims: dict[str, Claim] = field(default_factory=dict)  # by id, one for each run
    # The ids that come of each claim as written, and the file of each with its position there.
    of_claim: dict[str, tuple[str, ...]] = field(default_factory=dict)
    written: dict[str, tuple[Document[ClaimFile], int]] = field(default_factory=dict)

    def error(self, name: str, message: str) -> ContentError:
        """An error located at a claim in its file."""
        document, position = self.written[name]
        return document.error(("claims", position), message)

    def why_unknown(self, name: str) -> str:
        """Message for an unknown claim id: a run is lacking or wrong, or the nearest known id."""
        if name in self.of_claim:
            ids = self.of_claim[name]
            return f"claim {name!r} is judged on {len(ids)} runs; name one of them: {ids[0]!r}"
        law, _, run = name.partition("@")
        if run and law in self.of_claim:
            runs = [name.partition("@")[2] for name in self.of_claim[law]]
            return f"claim {law!r} is not judged on {run!r}{nearest(run, filter(None, runs))}"
        return f"no claim {name!r}{nearest(name, {*self.claims, *self.of_claim})}"


def claim_index(documents: Sequence[Document[ClaimFile]]) -> ClaimIndex:
    """A `ClaimIndex` of the files' claims: for each run judged, a copy with an id of its own."""
    index = ClaimIndex()
    for document in documents:
        for position, claim in enumerate(document.model.claims):
            own = _on_runs(document, position)
            index.claims.update((judged.id, judged) for judged in own)
            index.of_claim[claim.id] = tuple(judged.id for judged in own)
            index.written.update((judged.id, (document, position)) for judged in own)
    return index


@lru_cache(maxsize=4096)
def _on_runs(document: Document[ClaimFile], position: int) -> tuple[Claim, ...]:
    """A claim of a file once for each of its runs, under the regime of the file."""
    claim = document.model.claims[position]
    own = claim.regime.model_dump(exclude_none=True)
    claim = claim.model_copy(update={"regime": document.model.regime.model_copy(update=own)})
    on_runs = []
    for case in claim.cases:
        own = {key: getattr(case, key) or getattr(claim, key) for key in ("says", "source")}
        own |= {"id": f"{claim.id}@{case.run}", "cases": [case]}
        on_runs.append(claim.model_copy(update=own))
    return tuple(bind_part(judged, _short_names(judged)) for judged in on_runs or [claim])


def _short_names(claim: Claim) -> dict[str, str]:
    """The path or words of each name that texts of a claim on one run use."""
    names = {side: f"{side}({claim.id!r})" for side in ("predicted", "observed")}
    for case in claim.cases:
        names |= case.model_dump(include={"run", "other"}, exclude_none=True)
        names |= {"called": BoundWords(case.called)} if case.called else {}
    return names
