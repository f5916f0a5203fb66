"""Where in the script a call comes from, and what of torch stands in between.

In: frames of a running script. Out: a line of the script, as reports name it, or what calls.
"""

from __future__ import annotations

import inspect
import itertools
import sys
import traceback
from pathlib import Path
from types import FrameType, FunctionType
from typing import Any

import torch
from torch import nn
from torch.autograd.function import FunctionCtx

TORCH = str(Path(torch.__file__).parent)
_OWN = str(Path(__file__).parent)
Stage = tuple[Any, int | None]  # of a pipeline, and the number of the microbatch that it computes


def place(frame: FrameType | None = None) -> str:
    """The innermost line that is neither torch's, nor ours, nor an installed package's."""
    frames = traceback.walk_stack(frame or sys._getframe(1))
    return next((place_of(one, line) for one, line in frames if is_script(one)), "")


def place_of(frame: FrameType, line: int) -> str:
    """A line of a frame, as reports name it."""
    return f"{Path(frame.f_code.co_filename).name}:{line}"


def is_script(frame: FrameType) -> bool:
    """Whether a frame is of the script or of a module beside it."""
    file = frame.f_code.co_filename
    is_own = not file.startswith((TORCH, _OWN, "<"))
    return is_own and "site-packages" not in file and "/lib/python3" not in file


def calling_stage() -> Stage | None:
    """The stage of a pipeline that calls."""
    for frame, _ in itertools.islice(traceback.walk_stack(sys._getframe(1)), 16):
        if frame.f_code.co_filename.endswith("distributed/pipelining/stage.py"):
            own = frame.f_locals.get("self")
            if frame.f_code.co_name == "forward_one_chunk":
                return own, frame.f_locals["fwd_chunk_id"]
            if frame.f_code.co_name != "forward_maybe_with_nosync":
                return own, None
    return None


def in_function(frame: FrameType) -> bool:
    """Whether an autograd function of the script's own is running."""
    inner = (one for one, _ in itertools.islice(traceback.walk_stack(frame), 8))
    return any(
        isinstance(one.f_locals.get(one.f_code.co_varnames[0]), FunctionCtx)
        for one in inner
        if one.f_code.co_name in ("forward", "backward") and one.f_code.co_argcount
    )


def redirected(module: nn.Module) -> str:
    """The method that Lightning calls where its wrapper calls `forward`."""
    forward = module.__dict__.get("forward")
    if not isinstance(forward, FunctionType):
        return ""
    return str(inspect.getclosurevars(forward).nonlocals.get("method_name", ""))


def variables() -> dict[str, nn.Module]:
    """The modules that variables of the script hold, those of the outermost function first."""
    found: dict[str, Any] = {}
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        found = {**frame.f_locals, **found} if is_script(frame) else found
        frame = frame.f_back
    return {name: one for name, one in found.items() if isinstance(one, nn.Module)}
