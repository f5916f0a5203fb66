"""Whether a program leaves the tensors and modules that it was lent as they were.

In: tensors, modules, and lists, tuples and dicts of them, before and after a program. Out: a line
for each change. Values are copied, so a snapshot is taken before metering.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import keystr, tree_flatten_with_path


class Lent:
    """A snapshot of the tensors and modules that a program is lent, by name.

    Nothing may change of `kept`. Of `trained`, only the values of tensors may.
    """

    def __init__(self, kept: Mapping[str, Any], trained: Mapping[str, Any]) -> None:
        self._lent = {**kept, **trained}
        self._tensors = {
            name: (tensor, tensor.data_ptr(), tensor.requires_grad)
            for name, tensor in self._leaves(Tensor)
        }
        self._values = {
            name: tensor.detach().clone()
            for name, tensor in self._leaves(Tensor)
            if re.split(r"[.\[]", name)[0] in kept
        }
        self._modes = self._current_modes()

    def tensors(self) -> list[Tensor]:
        """All tensors that are lent, and their gradients."""
        own = [tensor for _, tensor in self._leaves(Tensor)]
        return own + [tensor.grad for tensor in own if tensor.grad is not None]

    def changes(self) -> Iterator[str]:
        """Yield a line for each change of tensors, memory, `requires_grad`, values or modes."""
        now = dict(self._leaves(Tensor))
        for name, (was, address, required) in self._tensors.items():
            tensor = now.get(name)
            if tensor is not was:
                yield f"{name} is no longer the same tensor"
            # torch's own `vector_to_parameters` gives parameters other memory.
            elif tensor.data_ptr() != address and not isinstance(tensor, nn.Parameter):
                yield f"{name} has other memory than before, such as a new `.data`"
            elif tensor.requires_grad != required:
                yield f"requires_grad of {name} is {tensor.requires_grad}, and was {required}"
            elif name in self._values and not torch.equal(tensor, self._values[name]):
                yield f"the values of {name} have changed"
        yield from (f"{name} is new" for name in now if name not in self._tensors)
        for name, mode in self._current_modes().items():
            if mode != self._modes.get(name, mode):
                yield f"{name} is {mode}, and was {self._modes[name]}"

    def _leaves(self, kind: type) -> Iterator[tuple[str, Any]]:
        """All tensors or modules that are lent, with names such as `model.weight`."""
        for path, leaf in tree_flatten_with_path(self._lent)[0]:
            name = keystr(path).replace("['", "", 1).replace("']", "", 1)
            if isinstance(leaf, nn.Module) and kind is Tensor:
                for own, tensor in [*leaf.named_parameters(), *leaf.named_buffers()]:
                    yield f"{name}.{own}", tensor
            elif isinstance(leaf, kind):
                yield name, leaf

    def _current_modes(self) -> dict[str, Any]:
        """Modes of modules and of torch."""
        modules = {
            f"the training mode of {name}{'.' if part else ''}{part}": module.training
            for name, lent in self._leaves(nn.Module)
            for part, module in lent.named_modules()
        }
        return modules | {
            "the gradient mode of torch": torch.is_grad_enabled(),
            "the default dtype of torch": torch.get_default_dtype(),
        }
