"""What readers exported: their answers, as the Recall page wrote them into a file.

In: JSON files, of whom nothing is known but that a person sent them. Out: for each an `Export`, or
one line that says what is wrong with it. Nothing in a file is printed unless the book knows it.

    {"proofbook": 1, "exported_at": "…", "items": {ID: {"digest": "…", "attempts": [
        {"at": ms, "answer": …, "is_right": true, "confidence": 0, "gave_up": false}]}}}

An answer is, by kind of item: choice and faulty_line, the position as written; several, positions;
order, positions with the first place first; match, for each left side the position of the right
one; number, predict and complete, a number in the base unit or the text typed; null for giving up.
`variant` is the number of the variant answered, and missing where the item itself was.
`confidence` is 0 (a guess), 1 (fairly sure), 2 (sure), or null. Fields beyond these are the
script's own and left alone. A changed item begins a new list under its new digest.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError

MAX_BYTES = 5_000_000  # as the page's own import
NEWEST = 1

Position = Annotated[int, Field(ge=0, le=99, strict=True)]
Answer = (
    Annotated[int, Field(strict=True)]
    | Annotated[float, Field(strict=True, allow_inf_nan=False)]
    | Annotated[str, Field(max_length=100)]
    | Annotated[list[Position], Field(max_length=20)]
    | None
)


class _Exported(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Attempt(_Exported):
    """One answer; `at` in milliseconds since 1970, UTC."""

    at: Annotated[int, Field(ge=0, strict=True)]
    answer: Answer
    is_right: Annotated[bool, Field(strict=True)] | None = None
    confidence: Annotated[int, Field(ge=0, le=2, strict=True)] | None = None
    gave_up: Annotated[bool, Field(strict=True)] = False
    variant: Annotated[int, Field(ge=0, le=99, strict=True)] = 0


class Record(_Exported):
    """All that a reader answered to one version of an item, the first attempt first."""

    digest: Annotated[str, Field(pattern=r"^[0-9a-f]{1,64}$")]
    attempts: Annotated[list[Attempt], Field(min_length=1, max_length=1000)]


class Export(_Exported):
    """One reader's file."""

    proofbook: Literal[1]
    exported_at: Annotated[str, Field(max_length=40)] = ""
    items: Annotated[dict[str, Record], Field(max_length=10_000)]


class ExportError(ValueError):
    """A file that is no reader's export; the message says why, in one line."""


def read(path: Path) -> Export:
    """Read one exported file.

    Raises:
        ExportError: it cannot be read, is no JSON, or is not what a page exports.
    """
    try:
        if path.stat().st_size > MAX_BYTES:
            raise ExportError(f"{path}: larger than {MAX_BYTES} bytes; no reader exports so much")
        document = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except OSError as error:
        raise ExportError(f"{path}: {error.strerror or 'cannot be read'}") from None
    except RecursionError:
        raise ExportError(f"{path}: nested too deeply to be an export") from None
    except ExportError:
        raise
    except ValueError:
        raise ExportError(f"{path}: not a whole JSON file; export it again") from None
    return _checked(path, document)


def _checked(path: Path, document: object) -> Export:
    if not isinstance(document, dict) or "proofbook" not in document:
        raise ExportError(f"{path}: not an export of a reader's answers (no key proofbook)")
    version = document["proofbook"]
    if isinstance(version, int) and version > NEWEST:
        raise ExportError(f"{path}: written by a newer Proofbook; update this one")
    try:
        return Export.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(ascii(part).strip("'")[:60] for part in first["loc"])
        more = error.error_count() - 1
        others = f" (and {more} more)" if more else ""
        raise ExportError(f"{path}: {place}: {first['msg'].lower()}{others}") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(name)
