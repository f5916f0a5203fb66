"""The memory meter for tensors that hold nothing: what a rank would hold, were it there.

In: the operations of a pass inside a `FakeTensorMode`, over a process group that pretends. Out:
the same `Memory` as the real meter's. Fake tensors lie on the meta device with their sizes, and
the same log of allocations and frees follows them; there is no kernel to hold it against.
"""

from __future__ import annotations

from typing import Any, Self
from unittest.mock import patch

import torch
from torch.distributed.tensor._sharding_prop import ShardingPropagator

from runners.meters.memory import CPU, MemoryMeter

_PROPAGATE = "_propagate_tensor_meta_non_cached"


class FakeMemoryMeter(MemoryMeter):
    """Follows the storages of fake tensors; enter it inside the fake mode, so that it sees them.

    Two things are no memory of the rank: what lies on the meta device in name as well, and the
    whole-sized tensors from which DTensor works out, once an operation, what shape comes out.
    """

    def __init__(self, device: torch.device = CPU) -> None:
        super().__init__(device)
        self._asks_for_shapes = False
        propagate, meter = getattr(ShardingPropagator, _PROPAGATE), self

        def watched(*args: Any, **kwargs: Any) -> Any:
            meter._asks_for_shapes = True
            try:
                return propagate(*args, **kwargs)
            finally:
                meter._asks_for_shapes = False

        self._watched = patch.object(ShardingPropagator, _PROPAGATE, watched)

    def __enter__(self) -> Self:
        self._watched.start()
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        self._watched.stop()
        super().__exit__(*exception)

    def _sees(self, tensor: torch.Tensor) -> bool:
        return not self._asks_for_shapes and tensor.device.type != "meta"

    def _lies_nowhere(self, storage: torch.UntypedStorage) -> bool:
        return False
