"""The memory meter: every storage a rank allocates, by class and phase, through a dispatch mode.

In: the operations of a metered pass. Out: a `Memory`, whose peak `kernel.py` compares with the
kernel's own high-water mark. The mode keeps a log of allocations and frees and replays it at the
end, so a storage counts under the class it turns out to have: a gradient in flight is a gradient.

It also counts collectives, since they pass by as operations with their real tensors, whatever
the backend, and remembers which of them passed in which stage.
"""

import weakref
from collections import defaultdict
from collections.abc import Callable, Iterable
from functools import wraps
from itertools import accumulate
from typing import Any, Self
from unittest.mock import patch

import torch
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._sharding_prop import ShardingPropagator

from proofbook.runners.core.meters.collectives import (
    EVERY_RANK,
    NAMESPACES,
    OPERATIONS,
    Ends,
    Operations,
    ends_of,
    payload_bytes,
    tensors_in,
)
from proofbook.runners.core.system.gloo_threads import GlooThreads
from proofbook.runners.core.trace.measured import Collective, Memory, MemoryClasses, Transfer
from proofbook.runners.core.trace.records import Move

# Operations whose tensors belong to a wrapper that communicates, not to the model's own data.
BUCKETED = {"all_reduce", "all_gather", "reduce_scatter"}
CPU = torch.device("cpu")
_PROPAGATE = "_propagate_tensor_meta_non_cached"  # of DTensor: what shape comes out
CLASSES = ("parameters", "gradients", "optimizer", "buckets", "buffers", "activations")


def local(tensor: torch.Tensor) -> torch.Tensor:
    """This rank's shard of a DTensor; any other tensor as it is."""
    return tensor._local_tensor if isinstance(tensor, DTensor) else tensor


class MemoryMeter(Operations):
    """Follows storages while it is entered; `phase` is what the rank is doing now."""

    _is_fake = False  # whether storages on the meta device stand for memory

    def __init__(
        self, device: torch.device = CPU, after_operation: Callable[[], None] | None = None
    ) -> None:
        """Follow storages on `device`; `after_operation` is called after each operation."""
        super().__init__()
        self._after_operation = after_operation
        self._device = device  # tensors elsewhere, such as Adam's step counters, are counted apart
        self._on_other_device: set[int] = set()  # numbers of storages that lie on another device
        self.phase = "build"
        self.counting = False  # whether collectives are being counted
        self._counted: dict[tuple[str, Ends], list[int]] = {}  # the payload of each, in bytes
        self.moves: dict[str, list[Move]] = {}  # by stage, of the first time it was passed
        self._stage: str | None = None
        self._received: list[Move] = []  # since the last stage; the next one works on it
        self._log: list[tuple[str, int, int]] = []  # phase, storage, change in bytes
        self._keys: dict[int, int] = {}  # a live storage's address → its number
        self._sizes: dict[int, int] = {}
        self._classes: dict[int, str] = {}
        self._next = 0
        self.num_storages = 0  # live at once, at most
        self.largest_collective_bytes = 0
        self._resize: Callable[..., Any] = torch.UntypedStorage.resize_
        self._gloo = GlooThreads()  # what they still hold is freed before more is allocated

    def enter_stage(self, name: str) -> None:
        """Count moves from now on to this stage, and those received since the last one."""
        if name not in self.moves:
            self._stage = name
            self.moves[name] = self._received
        self._received = []

    def leave_stage(self) -> None:
        """End the stage: collectives from now on belong to none."""
        self._stage = None
        self._received = []

    def enter(self, phase: str) -> None:
        """Start a phase; bytes that the rank holds at this moment count to it."""
        self.phase = phase
        self._log.append((phase, 0, 0))

    def __enter__(self) -> Self:
        # FSDP frees gathered parameters by resizing their storage, past the dispatcher.
        resize, meter = self._resize, self

        @wraps(resize)
        def watched(storage: torch.UntypedStorage, size: int) -> Any:
            meter._gloo.wait_until_idle()
            result = resize(storage, size)
            meter._track_storage(storage, "buckets")
            return result

        torch.UntypedStorage.resize_ = watched  # type: ignore[method-assign,assignment]
        return super().__enter__()

    def __exit__(self, *exception: Any) -> None:
        torch.UntypedStorage.resize_ = self._resize  # type: ignore[method-assign]
        super().__exit__(*exception)

    def operate(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Execute an operation once gloo is idle, return its result; track it and its storages."""
        self._gloo.wait_until_idle()
        result = func(*args, **kwargs)
        if func.namespace in NAMESPACES:
            self._gloo.refresh()
            self._track_collective(func.__name__.split(".")[0], args)
        if func.namespace == "fsdp" and func.__name__.startswith("chunk_cat"):
            self.name(args[0], "gradients")  # whole ones, which FSDP is about to reduce
        for tensor in filter(self._is_tracked, tensors_in(result)):
            self._track(tensor)
        if self._after_operation is not None:
            self._after_operation()
        return result

    def _is_tracked(self, tensor: torch.Tensor) -> bool:
        """Whether a result is memory of the rank; a meter of fake tensors excludes some."""
        return True

    def _track_collective(self, name: str, args: Any) -> None:
        operation = OPERATIONS.get(name)
        if operation is None:
            return
        ends, num_bytes = ends_of(name, args), payload_bytes(args)
        move = Move(operation=operation, source=ends[0], destination=ends[1], bytes=num_bytes)
        if self._stage is not None:
            self.moves[self._stage].append(move)
        elif operation == "recv":
            self._received.append(move)
        self.largest_collective_bytes = max(self.largest_collective_bytes, num_bytes)
        if self.counting:
            self._counted.setdefault((operation, ends), []).append(num_bytes)
        if operation in BUCKETED:
            for tensor in tensors_in(args):
                self._track(tensor, "buckets")

    def _track(self, tensor: torch.Tensor, kind: str | None = None) -> torch.UntypedStorage:
        storage = local(tensor).untyped_storage()
        # Of a fake tensor the storage lies on the meta device, and only the tensor says where.
        self._track_storage(storage, kind, tensor.device)
        return storage

    def _track_storage(
        self,
        storage: torch.UntypedStorage,
        kind: str | None = None,
        device: torch.device | None = None,
    ) -> None:
        if storage.device.type == "meta" and not self._is_fake:
            return
        address = storage._cdata
        size = storage.nbytes()
        key = self._keys.get(address)
        if key is None:
            if size == 0 and kind is None:
                return
            key = self._next
            self._next += 1
            self._keys[address] = key
            self._sizes[key] = 0
            if (device or storage.device).type != self._device.type:
                self._on_other_device.add(key)
            self.num_storages = max(self.num_storages, len(self._sizes))
            weakref.finalize(storage, self._freed, address, key)
        if size != self._sizes[key]:
            self._log.append((self.phase, key, size - self._sizes[key]))
            self._sizes[key] = size
        if kind is not None:
            self._classes.setdefault(key, kind)

    def _freed(self, address: int, key: int) -> None:
        if self._keys.get(address) == key:
            del self._keys[address]
        size = self._sizes.pop(key, 0)
        if size:
            self._log.append((self.phase, key, -size))

    def name(self, tensors: Iterable[torch.Tensor], kind: str) -> None:
        """Class the tensors' storages as `kind`; of two classes, the first in `CLASSES` stays."""
        for tensor in tensors:
            key = self._keys.get(self._track(tensor)._cdata)
            if key is None:
                continue
            known = self._classes.get(key, "activations")
            self._classes[key] = min(known, kind, key=CLASSES.index)

    def memory(self, kernel_peak_bytes: int | None) -> Memory:
        """Replay the log into a Memory: peak bytes, its phase, the most by class and by phase."""
        live: dict[str, int] = dict.fromkeys(CLASSES, 0)
        largest = dict(live)
        at_peak = dict(live)
        phases: defaultdict[str, int] = defaultdict(int)
        total = peak = 0
        peak_phase: str | None = None
        for phase, key, change in self._log:
            if key in self._on_other_device:
                continue
            kind = self._classes.get(key, "activations")
            live[kind] += change
            total += change
            largest[kind] = max(largest[kind], live[kind])
            phases[phase] = max(phases[phase], total)
            if total > peak:
                peak, peak_phase, at_peak = total, phase, dict(live)
        return Memory(
            peak_bytes=peak,
            peak_phase=peak_phase,
            at_peak=_classes(at_peak),
            largest=_classes(largest),
            phases=dict(phases),
            kernel_peak_bytes=kernel_peak_bytes,
        )

    def host_peak_bytes(self) -> int:
        """The peak of bytes of tensors on another device than the rank's."""
        changes = [change for _, key, change in self._log if key in self._on_other_device]
        return max(accumulate(changes), default=0)

    def collective_list(self) -> list[Collective]:
        """A `Collective` of each operation: calls and bytes, summed, and by ends if with a peer."""
        by_operation: defaultdict[str, list[Transfer]] = defaultdict(list)
        for (name, ends), calls in sorted(self._counted.items(), key=_by_operation_and_ends):
            sums = {"count": len(calls), "bytes": sum(calls)}
            by_operation[name].append(Transfer(source=ends[0], destination=ends[1], **sums))
        return [
            Collective(
                operation=name,
                count=sum(t.count for t in transfers),
                bytes=sum(t.bytes for t in transfers),
                transfers=[t for t in transfers if (t.source, t.destination) != EVERY_RANK],
            )
            for name, transfers in by_operation.items()
        ]


def _by_operation_and_ends(calls: tuple[tuple[str, Ends], list[int]]) -> tuple[str, list[int]]:
    (name, ends), _ = calls
    return name, [-1 if end is None else end for end in ends]


def _classes(values: dict[str, int]) -> MemoryClasses:
    return MemoryClasses(**{f"{name}_bytes": size for name, size in values.items()})


class FakeMemoryMeter(MemoryMeter):
    """Follows the storages of fake tensors, which lie on the meta device with their sizes.

    What a rank would hold, were it there: enter it inside the fake mode, so that it sees them, over
    a process group that pretends. There is no kernel to compare it with. Two things are no memory
    of the rank: what lies on the meta device in name as well, and the whole-sized tensors from
    which DTensor works out, once an operation, what shape comes out.
    """

    _is_fake = True

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

    def _is_tracked(self, tensor: torch.Tensor) -> bool:
        return not self._asks_for_shapes and tensor.device.type != "meta"
