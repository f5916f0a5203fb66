"""The digests of what traces say, listed beside them: an edited or half-merged trace is noticed.

In: a machine's folder. Out: `values.json` there, which the recorder writes with each trace: by
experiment the SHA-256 of the trace's canonical JSON, whatever its layout. `null` stands for a trace
that was measured before digests were listed. Reading compares each trace with its line. No torch.

This stops an edit by hand and a merge of two measurements, and no one who writes the list as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path

from runners.traces.files import NOT_TRACES, VALUES, TraceError, write_json

EDITED = "was edited after it was measured; measure it again, or restore it from git"
NOT_LISTED = f"is not listed in {VALUES}; measure it again, or restore both from git"
MISSING = f"is listed in {VALUES} and missing; restore it from git, or take out its line"
UNLISTED_FOLDER = f"measured before {VALUES} was kept, so that an edited trace is not noticed"


@lru_cache(maxsize=512)
def values_digest(text: str) -> str:
    """The digest of a JSON text, 64 hexadecimal digits: the same for any layout.

    Raises:
        ValueError: it is not JSON.
    """
    canonical = json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def listed(folder: Path) -> dict[str, str | None] | None:
    """The digest of each experiment that a machine's folder lists; None without a list.

    Raises:
        TraceError: the list is not a JSON object of digests.
    """
    path = folder / VALUES
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise TraceError(f"{path}: not a whole JSON file ({error}); restore it from git") from None
    if not isinstance(document, dict) or not all(
        one is None or isinstance(one, str) for one in document.values()
    ):
        raise TraceError(f"{path}: not an object of digests; restore it from git")
    return document


def list_values(folder: Path, experiment: str) -> None:
    """List the digest of a trace that was just measured; those of others stay as they are.

    A folder without a list gets one, in which each other trace stands with null. The lines of
    traces that are gone go too.

    Raises:
        TraceError: the list that is there cannot be read.
        OSError: the disk refused; the list is then as it was.
    """
    before = listed(folder) or {}
    is_first = not (folder / VALUES).exists()
    kept = {
        name: before.get(name)
        for name in _experiments(folder)
        if name in before or is_first or name == experiment
    }
    text = (folder / f"{experiment}.json").read_text(encoding="utf-8")
    write_json(folder / VALUES, {**kept, experiment: values_digest(text)})


def list_all(folder: Path) -> None:
    """List the digests of all traces of a folder as they are: once, after the measurement.

    Raises:
        OSError, ValueError: a trace cannot be read.
    """
    texts = {
        name: (folder / f"{name}.json").read_text(encoding="utf-8") for name in _experiments(folder)
    }
    write_json(folder / VALUES, {name: values_digest(text) for name, text in texts.items()})


def _experiments(folder: Path) -> list[str]:
    return sorted({path.stem for path in folder.glob("*.json")} - NOT_TRACES)


def edited(path: Path) -> str | None:
    """Why the trace at a path is not the one that was measured; None where it is, or may be.

    Raises:
        TraceError: the folder's list cannot be read.
    """
    known = listed(path.parent)
    return None if known is None else _difference(path, known)


def _difference(path: Path, known: Mapping[str, str | None]) -> str | None:
    if path.stem not in known:
        return NOT_LISTED
    digest = known[path.stem]
    try:
        text = path.read_text(encoding="utf-8")
        is_same = digest is None or values_digest(text) == digest
    except FileNotFoundError:
        return MISSING
    except (OSError, ValueError, RecursionError):
        return EDITED
    return None if is_same else EDITED


def faults(folder: Path) -> Iterator[tuple[str, str]]:
    """The files of a machine's folder that are not as they were measured, each with why.

    Raises:
        TraceError: the folder's list cannot be read.
    """
    known = listed(folder)
    if known is None:
        return
    for name in sorted({*known, *_experiments(folder)}):
        path = folder / f"{name}.json"
        found = _difference(path, known)
        if found:
            yield path.name, found


def lacks_list(folder: Path) -> list[str]:
    """The experiments that were measured before their digests were listed.

    Raises:
        TraceError: the folder's list cannot be read.
    """
    known = listed(folder)
    if known is None:
        return _experiments(folder)
    return [name for name, digest in known.items() if digest is None]
