"""Whether a program leaves what it was lent as it was.

In: tensors, modules, and lists, tuples and dicts of them, before and after a program. Out: a line
for each thing that is not as it was. Values are copied, so a snapshot is taken before metering.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import keystr, tree_flatten_with_path


class Lent:
    """What a program is lent, as it was when this was made.

    Args:
        kept: by name; nothing of it may change.
        trained: by name; the values may change, but tensors, their memory and modes may not.
    """

    def __init__(self, kept: Mapping[str, Any], trained: Mapping[str, Any]) -> None:
        self._things = {**kept, **trained}
        self._tensors = {
            name: (one, one.data_ptr(), one.requires_grad) for name, one in self._leaves(Tensor)
        }
        self._values = {
            name: one.detach().clone()
            for name, one in self._leaves(Tensor)
            if re.split(r"[.\[]", name)[0] in kept
        }
        self._modes = self._modes_of_now()

    def tensors(self) -> list[Tensor]:
        """All that is lent, and the gradients of it."""
        own = [one for _, one in self._leaves(Tensor)]
        return own + [one.grad for one in own if one.grad is not None]

    def changes(self) -> Iterator[str]:
        """What is not as it was, in words."""
        now = dict(self._leaves(Tensor))
        for name, (was, address, required) in self._tensors.items():
            one = now.get(name)
            if one is not was:
                yield f"{name} is no longer the same tensor"
            # torch's own `vector_to_parameters` gives parameters other memory.
            elif one.data_ptr() != address and not isinstance(one, nn.Parameter):
                yield f"{name} has other memory than before, such as a new `.data`"
            elif one.requires_grad != required:
                yield f"requires_grad of {name} is {one.requires_grad}, and was {required}"
            elif name in self._values and not torch.equal(one, self._values[name]):
                yield f"the values of {name} have changed"
        yield from (f"{name} is new" for name in now if name not in self._tensors)
        for name, mode in self._modes_of_now().items():
            if mode != self._modes.get(name, mode):
                yield f"{name} is {mode}, and was {self._modes[name]}"

    def _leaves(self, kind: type) -> Iterator[tuple[str, Any]]:
        """The tensors, or modules, by name; those of modules by the names that these give."""
        for path, leaf in tree_flatten_with_path(self._things)[0]:
            name = keystr(path).replace("['", "", 1).replace("']", "", 1)
            if isinstance(leaf, nn.Module) and kind is Tensor:
                for own, tensor in [*leaf.named_parameters(), *leaf.named_buffers()]:
                    yield f"{name}.{own}", tensor
            elif isinstance(leaf, kind):
                yield name, leaf

    def _modes_of_now(self) -> dict[str, Any]:
        """Modes of modules and of torch."""
        modules = {
            f"the training mode of {name}{'.' if part else ''}{part}": module.training
            for name, one in self._leaves(nn.Module)
            for part, module in one.named_modules()
        }
        return modules | {
            "the gradient mode of torch": torch.is_grad_enabled(),
            "the default dtype of torch": torch.get_default_dtype(),
        }
