"""The user's own code: which of its lines is at work.

In: the running stack, or an exception. Out: `FILE:LINE`, or a reason in one line. No torch.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import sysconfig
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from traceback import walk_tb
from types import TracebackType
from typing import Any

MOST_CHARACTERS = 160  # of a message that is not ours
_ROOM = Path(__file__).resolve().parent
_ENTRY = str(_ROOM / "one_rank.py")  # what lies below it on the stack started the simulation
_STANDARD = f"{Path(os.__file__).parent}/"
_INSTALLED = tuple({f"{sysconfig.get_path(name)}/" for name in ("purelib", "platlib")})
_SIMULATING = tuple(f"{_ROOM.parent / name}/" for name in ("planning", "simulate", "meters"))

# What torch says where a program asks for the bytes of a fake tensor.
_NO_MEMORY = ("Cannot access data pointer", "data is not allocated", "Not available for 'meta'")


def _folder_of(package: str) -> str:
    found = importlib.util.find_spec(package)
    return f"{Path(found.origin).parent}/" if found and found.origin else "<none>"


@cache
def _is_user_file(name: str) -> bool:
    """Whether a file is neither the simulation's, nor torch's, NumPy's or Python's."""
    if name.startswith(("<", *_SIMULATING, *map(_folder_of, ("torch", "numpy")))):
        return False
    return name.startswith(_INSTALLED) or not name.startswith(_STANDARD)


def _shown(file: str, line: int) -> str:
    path = Path(file)
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}:{line}"


def _user_line(frames: Iterable[tuple[str, int]], layers: str = "<none>") -> str | None:
    """The user's line among frames of a stack, innermost first; else that of one of torch's layers.

    Args:
        frames: files and lines.
        layers: the folder of those.
    """
    layer = None
    for file, line in frames:
        if file == _ENTRY:
            break
        if _is_user_file(file):
            return _shown(file, line)
        if layer is None and layers in file:
            layer = _shown(file, line)
    return layer


def running_line() -> str | None:
    """The innermost line of the user's, or of a layer, that is running; None in a plan's update."""

    def frames() -> Iterable[tuple[str, int]]:
        frame = inspect.currentframe()
        while frame is not None:
            yield frame.f_code.co_filename, frame.f_lineno
            frame = frame.f_back

    return _user_line(frames(), "/torch/nn/modules/")


def line_of(function: Callable[..., Any]) -> str:
    """Where a function is defined, with its name."""
    body = getattr(function, "__init__", None) if inspect.isclass(function) else function
    code = getattr(inspect.unwrap(body or function), "__code__", None)
    name = getattr(function, "__qualname__", repr(function))
    return f"{_shown(code.co_filename, code.co_firstlineno)}: {name}" if code else name


def reason_of(error: BaseException, name: str) -> str:
    """What the user's code raised, in one line that begins with the user's line.

    Args:
        error: what was raised.
        name: of the model; it stands for the line of what torch raised in a backward pass.
    """
    said = str(error).strip().splitlines()
    message = said[0][:MOST_CHARACTERS] if said else ""
    kind = f"{type(error).__name__}: "
    if any(one in message for one in _NO_MEMORY):
        kind, message = "", "looks at the memory of a tensor, and a plan's tensors have none"
    if isinstance(error, SyntaxError) and error.filename:
        place: str | None = _shown(error.filename, error.lineno or 0)
        message = error.msg
    else:
        place = _raising_line(error.__traceback__)
    return f"{place or name}: {kind}{message}".rstrip(": ")


def _raising_line(trace: TracebackType | None) -> str | None:
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(trace)]
    return _user_line(reversed(frames))
