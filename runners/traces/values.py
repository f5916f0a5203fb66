"""The digests of traces, listed beside them: an edited or half-merged trace is noticed.

In: a machine's folder. Out: `values.json` there, which the recorder writes with each trace: by
experiment the SHA-256 of its file. Reading compares each trace with its line; a folder without the
list is read as it is. This guards the files alone: what is in them, `reproduce` measures again.
No torch.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import TypeAdapter

from runners.traces.files import VALUES, TraceError, trace_paths, write_json

EDITED = f"is not as {VALUES} lists it: measure it again, or restore both from git"


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def listed(folder: Path) -> dict[str, str] | None:
    """The digest of each experiment that a machine's folder lists; None without a list.

    Raises:
        TraceError: the list is not a JSON object of digests.
    """
    path = folder / VALUES
    try:
        return TypeAdapter(dict[str, str]).validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise TraceError(f"{path}: not an object of digests; restore it from git") from None


def list_values(folder: Path, *measured: str) -> None:
    """List the digests of traces that were just measured, of all where none is named.

    The lines of others stay as they are, but for those whose trace is gone.

    Raises:
        TraceError: the list that is there cannot be read.
        OSError: the disk refused; the list is then as it was.
    """
    before, paths = listed(folder), {path.stem: path for path in trace_paths(folder)}
    anew = paths if before is None or not measured else measured
    found = {**(before or {}), **{name: _digest(paths[name]) for name in anew}}
    write_json(folder / VALUES, {name: found[name] for name in paths if name in found})


def edited(folder: Path, *names: str) -> list[str]:
    """The experiments of a machine's folder whose files are not as they were measured, sorted.

    Args:
        folder: the machine's.
        names: of experiments; all where none is named.

    Raises:
        TraceError: the folder's list cannot be read.
    """
    known = listed(folder)
    if known is None:
        return []
    paths = {path.stem: path for path in trace_paths(folder)}
    wanted = names or sorted(known.keys() | paths.keys())
    return [n for n in wanted if n not in paths or known.get(n) != _digest(paths[n])]
