"""Bring the JSON document of an earlier schema version to the present one.

In: a document as it was read, before any model has seen it. Out: the same document in the present
version, and the version that it had. Each step takes a document from one version to the next and
changes nothing in place; what a step cannot know becomes null. Pure; no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

Document = dict[str, Any]
Step = Callable[[Document], Document]

TRACE_VERSION = 2  # of `Trace.schema_version`


class VersionError(ValueError):
    """A document whose schema version is missing or unknown; the message says what to do."""


def upgraded(document: Document, steps: Mapping[int, Step], version: int) -> tuple[Document, int]:
    """A document in the present version, and the version that it had.

    Args:
        document: as it was read.
        steps: by the version from which each leads to the next.
        version: the present one.

    Raises:
        VersionError: its version is missing, no whole number, newer, or older than any step.
    """
    found = document.get("schema_version")
    if type(found) is not int:
        said = "is missing" if found is None else f"is {found!r}, not a whole number"
        raise VersionError(f"schema_version {said}; measure it again")
    if found > version:
        raise VersionError(
            f"schema_version {found} is newer than this Proofbook reads ({version}); "
            "update the project"
        )
    if found < version and found not in steps:
        raise VersionError(f"schema_version {found} is unknown; measure it again")
    for step in range(found, version):
        document = steps[step](document)
    return document, found


def _renamed(record: Any, was: str, now: str) -> Any:  # noqa: ANN401
    """A record with a field under its new name; anything but a record as it is."""
    if not isinstance(record, dict):
        return record
    return {now if name == was else name: value for name, value in record.items()}


def _each(values: Any, change: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """Every value of a list or of an object, changed; the models refuse anything else later."""
    if isinstance(values, list):
        return [change(one) for one in values]
    if isinstance(values, dict):
        return {name: change(one) for name, one in values.items()}
    return values


def _changed(record: Any, **changes: Callable[[Any], Any]) -> Any:  # noqa: ANN401
    """A record with some of its fields changed, where it has them."""
    if not isinstance(record, dict):
        return record
    return {
        name: changes[name](value) if name in changes else value for name, value in record.items()
    }


def _failure(failure: Any) -> Any:  # noqa: ANN401
    return _renamed(failure, "asked_bytes", "requested_bytes")


def _validation(validation: Any) -> Any:  # noqa: ANN401
    return _renamed(validation, "num_rows", "num_samples")


def _move(move: Any) -> Any:  # noqa: ANN401
    return _renamed(move, "target", "destination")


def _stage(stage: Any) -> Any:  # noqa: ANN401
    return _changed(stage, moves=lambda moves: _each(moves, _move))


def _rank(rank: Any) -> Any:  # noqa: ANN401
    return _changed(rank, failure=_failure)


def _run(run: Any) -> Any:  # noqa: ANN401
    return _changed(
        run,
        error=_failure,
        validation=_validation,
        stages=lambda stages: _each(stages, _stage),
        ranks=lambda ranks: _each(ranks, _rank),
    )


def _with_circumstances(document: Document) -> Document:
    """Version 1 kept versions as `software`; circumstances beside them were kept later."""
    whole = {name: value for name, value in document.items() if name != "software"}
    software = document.get("software")
    if "circumstances" in document or not isinstance(software, dict):
        return whole
    unknown = {"affinity": None, "visible_devices": None, "huge_pages": None}
    return {**whole, "circumstances": {**software, **unknown}}


def _from_version_1(document: Document) -> Document:
    """Circumstances for software, and the field's words for four names."""
    changed = _changed(_with_circumstances(document), runs=lambda runs: _each(runs, _run))
    return {**changed, "schema_version": 2}


TRACE_STEPS: Mapping[int, Step] = {1: _from_version_1}
