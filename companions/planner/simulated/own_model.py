"""A model of the user's: the functions that build it, the batch it takes, and what it returns.

In: names such as `module:function`. Out: modules, arguments of a forward pass, and a loss. What the
user's functions do otherwise than a plan needs is refused in one line, which names theirs: the
running stack, or an exception, tells which of the user's lines is at work, as `FILE:LINE`. So is a
line that reads a value, since a plan has none; what torch's own optimizers read is zero, since no
size follows from it.
"""

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from traceback import walk_stack, walk_tb
from types import FrameType
from typing import Any, NoReturn
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import (
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.distributed.fsdp import FSDPModule
from torch.nn import functional

from proofbook.companions.planner.answers.question import PlanError, PlannedModel, TrainingSettings
from proofbook.runners.core.meters.collectives import tensors_in
from proofbook.runners.simulate.fake_mode import ValuelessMode
from proofbook.runners.system.errors import first_line

# What lies below it on the stack started the simulation.
_ENTRY = "proofbook.companions.planner.simulated.one_rank"
_NOT_THE_USERS = {*sys.stdlib_module_names, "torch", "numpy", "proofbook"}  # packages
_LAYERS = "torch.nn.modules."

# What torch says where a program asks for the bytes of a fake tensor.
_NO_MEMORY = ("Cannot access data pointer", "data is not allocated", "Not available for 'meta'")


def named(name: str) -> Callable[..., Any]:
    """The function that `module:function` names, imported; a PlanError where there is none."""
    module, _, function = name.partition(":")
    if not module or not function:
        raise PlanError(f"{name!r} is not of the form MODULE:FUNCTION")
    try:
        attribute: object = getattr(importlib.import_module(module), function, None)
    except ModuleNotFoundError as error:
        if f"{module}.".startswith(f"{error.name}."):
            raise PlanError(f"{name}: {error}") from None
        raise
    if not callable(attribute):
        raise PlanError(f"{name}: the module {module} has no function {function}")
    return attribute


def arguments(model: PlannedModel, training: TrainingSettings) -> Any:
    """What the model's batch function returns, as a tuple, or a dictionary of keyword arguments."""
    given = named(model.batch or "")(training.microbatch, training.sequence)
    for tensor in tensors_of(given):
        if isinstance(tensor, FakeTensor):
            tensor.constant = None  # its values stand for those of any batch
    if isinstance(given, Mapping):
        return dict(given)
    return tuple(given) if isinstance(given, (tuple, list)) else (given,)


def call(called: nn.Module, module: nn.Module, arguments: Any) -> Any:
    """The output of a module, or its wrapper, for a batch; PlanError where FSDP sees no tensor."""
    given, by_name = ((), arguments) if isinstance(arguments, dict) else (arguments, {})
    output = called(*given, **by_name)
    is_seen = tensors_in(output) or is_dataclass(output) or not tensors_of(output)
    if isinstance(called, FSDPModule) and not is_seen:
        raise PlanError(
            f"{line_of(module.forward)} returns {type(output).__name__}, in which FSDP finds no "
            "tensor; return a dictionary or a tuple"
        )
    return output


def built(model: PlannedModel) -> nn.Module:
    """The `nn.Module` that a model's function builds; a PlanError where it returns no module."""
    build = named(model.module or "")
    module = build()
    if not isinstance(module, nn.Module):
        kind = type(module).__name__
        raise PlanError(f"{line_of(build)} builds no nn.Module; it returns {kind}")
    return module


def loss_of(output: Any, line: str) -> Tensor:
    """The loss of an output: its `loss`, a leading number, or else the sum of all tensors' means.

    The number leads a tuple or list. A `loss` of several elements is their mean, one of several
    tensors the sum of means. A PlanError where nothing has a gradient.
    """
    named_loss = output.get("loss") if isinstance(output, Mapping) else None
    loss = getattr(output, "loss", None) if named_loss is None else named_loss
    first = output[0] if isinstance(output, (tuple, list)) and output else None
    if loss is None and isinstance(first, Tensor) and not first.dim():
        loss = first
    tensors = tensors_of(output if loss is None else loss)
    means = [
        tensor.float().mean() if tensor.dim() else tensor
        for tensor in tensors
        if tensor.requires_grad
    ]
    if not means:
        kind = "Tensor" if isinstance(output, Tensor) else type(output).__name__
        raise PlanError(f"{line} returns {kind}, of which nothing has a gradient; return a loss")
    return sum(means[1:], means[0])


def tensors_of(value: Any) -> list[Tensor]:
    """A list of each tensor in mappings, sequences and objects with attributes, once."""
    tensors: dict[int, Tensor] = {}
    visited: set[int] = set()
    waiting = [value]
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, Tensor):
            tensors[id(node)] = node
        elif id(node) not in visited and not isinstance(node, (str, type, nn.Module)):
            visited.add(id(node))
            if isinstance(node, Mapping):
                waiting += node.values()
            elif isinstance(node, (list, tuple, set)):
                waiting += node
            else:
                waiting += getattr(node, "__dict__", {}).values()
    return list(tensors.values())


# --- which of the user's lines is at work


def _place_of(file: str, line: int) -> str:
    path = Path(file)
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}:{line}"


def _user_line(frames: Iterable[tuple[FrameType, int]], layers: str | None = None) -> str | None:
    """The user's line among frames, innermost first; else that of one of torch's layers."""
    layer = None
    for frame, line in frames:
        file, module = frame.f_code.co_filename, str(frame.f_globals.get("__name__", ""))
        if module == _ENTRY:
            break
        if module.partition(".")[0] not in _NOT_THE_USERS and not file.startswith("<"):
            return _place_of(file, line)
        if layer is None and layers is not None and module.startswith(layers):
            layer = _place_of(file, line)
    return layer


def running_line() -> str | None:
    """The innermost line of the user's, or of a layer, that is running; None in a plan's update."""
    return _user_line(walk_stack(inspect.currentframe()), _LAYERS)


def line_of(function: Callable[..., Any]) -> str:
    """Where a function is defined, with its name."""
    body = getattr(function, "__init__", None) if inspect.isclass(function) else function
    code = getattr(inspect.unwrap(body or function), "__code__", None)
    name = getattr(function, "__qualname__", repr(function))
    return f"{_place_of(code.co_filename, code.co_firstlineno)}: {name}" if code else name


def reason_of(error: BaseException, name: str) -> str:
    """An exception of the user's code in one line, which begins with the user's line.

    The name of the model stands for the line of what torch raised in a backward pass.
    """
    kind, message = f"{type(error).__name__}: ", first_line(error)
    if any(phrase in message for phrase in _NO_MEMORY):
        kind, message = "", "looks at the memory of a tensor, and a plan's tensors have none"
    if isinstance(error, SyntaxError) and error.filename:
        place: str | None = _place_of(error.filename, error.lineno or 0)
        message = error.msg
    else:
        place = _user_line(reversed(list(walk_tb(error.__traceback__))))
    return f"{place or name}: {kind}{message}".rstrip(": ")


# --- its code without values


class RefusingMode(ValuelessMode):
    """Refuses to give the user's code a value."""

    def __init__(self) -> None:
        super().__init__()
        self.allow_fallback_kernels = False  # they would compute with real tensors of full size
        self._refusal: PlanError | None = None

    def check(self) -> None:
        """Raise the first refusal, a PlanError, again, since a model may catch what is raised."""
        if self._refusal is not None:
            raise self._refusal

    def dispatch(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Dispatch as `ValuelessMode` does; a PlanError where torch gives the result no size."""
        try:
            return super().dispatch(func, types, args, kwargs)
        except DynamicOutputShapeException:
            self._refuse(f"the size of what {func} gives follows from values; a plan has none")
        except UnsupportedOperatorException:
            self._refuse(f"torch gives no size for {func}, unless it computes")

    def answer(self, func: Any, args: Any) -> Any:
        """The value that torch's own code reads from a tensor; the user's code is refused."""
        if running_line() is not None:
            self._refuse("reads values of a tensor, and a plan has none")
        return super().answer(func, args)

    def _refuse(self, what: str) -> NoReturn:
        line = running_line()
        refusal = PlanError(f"{line}: {what}" if line else what)
        self._refusal = self._refusal or refusal
        raise refusal


@contextmanager
def patched_for_own_code() -> Iterator[None]:
    """Replace in this context `Tensor.numpy`, dropout, attention, compiling and fused LSTMs.

    Arrays of NumPy keep their own values, `torch.compile` leaves a model as it is, and an LSTM
    computes step by step: a fused one on a CPU has a workspace that fake tensors leave out.
    Attention has no dropout: a device's kernel keeps a seed for it, and a CPU's all weights. Other
    dropout keeps a mask of one byte an element, and a CPU's a factor of the type of its input.
    """
    array, is_fused = Tensor.numpy, torch._C._get_mkldnn_enabled()
    attention = functional.scaled_dot_product_attention

    def undropped(*given: Any, dropout_p: float = 0.0, **named: Any) -> Any:
        return attention(*given[:4], *(0.0 for _ in given[4:5]), *given[5:], **named)

    def dropout(x: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        return torch.native_dropout(x, p, True)[0] if p and training else x

    def numpy(tensor: Tensor, *arguments: Any, **named: Any) -> Any:
        if isinstance(tensor, FakeTensor):
            mode: Any = tensor.fake_mode
            return mode.answer(array, (tensor,))
        with torch._C._DisableTorchDispatch():
            return array(tensor, *arguments, **named)

    with (
        patch.object(Tensor, "numpy", numpy),
        patch.object(functional, "scaled_dot_product_attention", undropped),
        patch.object(functional, "dropout", dropout),
        torch.compiler.set_stance("force_eager"),
    ):
        torch._C._set_mkldnn_enabled(False)
        try:
            yield
        finally:
            torch._C._set_mkldnn_enabled(is_fused)
