"""Memory and collectives of an accelerator, without one: a model of its allocator, fake tensors."""

import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from proofbook.runners.core.declared.experiment import Declaration
from proofbook.runners.core.meters.activity import collective_of
from proofbook.runners.core.meters.allocator import AllocatorLimit, AllocatorPeak, with_allocator
from proofbook.runners.core.meters.kernel import MeterDisagreesError
from proofbook.runners.core.meters.memory import FakeMemoryMeter, MemoryMeter
from proofbook.runners.core.meters.refusal import held_bytes_at
from proofbook.runners.core.ranks.heartbeat import Heart
from proofbook.runners.core.ranks.process import failure_of
from proofbook.runners.core.ranks.rank import Rank
from proofbook.runners.core.system import accelerator
from proofbook.runners.core.trace.measured import AllocatorMemory, Memory

CUDA = torch.device("cuda", 0)
MIB = 1 << 20


class Given:
    """What an allocator has given out: blocks by number, their bytes, and the most of these."""

    def __init__(self):
        self.blocks = {}
        self.num = self.peak = 0

    @property
    def allocated(self):
        return sum(self.blocks.values())

    def allocate(self, num_bytes):
        self.num += 1
        self.blocks[self.num] = num_bytes
        self.peak = max(self.peak, self.allocated)
        return self.num

    def free(self, number):
        del self.blocks[number]


class Mirror(TorchDispatchMode):
    """Lets a model of the device's allocator see what operations on CPU allocate and free."""

    def __init__(self, model):
        super().__init__()
        self.model = model
        self.known = set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            storage = result.untyped_storage()
            if storage._cdata not in self.known:
                self.known.add(storage._cdata)
                number = self.model.allocate(storage.nbytes())
                weakref.finalize(storage, self._freed, storage._cdata, number)
        return result

    def _freed(self, address, number):
        self.known.discard(address)
        self.model.free(number)


@pytest.fixture
def model(monkeypatch):
    """The model at the edge where the runners read the device's allocator."""
    found = Given()
    stood_in = {
        "allocated": lambda _: accelerator.Allocated(
            found.allocated, found.peak, len(found.blocks)
        ),
        "held_bytes": lambda _: found.allocated,
        "reset_peak": lambda _: setattr(found, "peak", found.allocated),
        "free_workspaces": lambda _: 0,
    }
    for name, function in stood_in.items():
        monkeypatch.setattr(accelerator, name, function)
    with Mirror(found):
        yield found


def floats(num_bytes):
    """A tensor of so many bytes that are never touched."""
    return torch.empty(num_bytes // 4)


def test_a_peak_is_what_came_after_its_start(model):
    before = floats(2 * MIB)
    peak = AllocatorPeak(CUDA, counts_workspaces=False)
    after = floats(3 * MIB)
    assert (peak.read().peak_bytes, before.nbytes) == (after.nbytes, 2 * MIB)


def test_what_is_requested_counts_without_the_rounding_of_blocks(monkeypatch):
    stats = {"requested_bytes.all.peak": 700, "allocated_bytes.all.peak": 1024}
    monkeypatch.setattr(accelerator, "_cuda", lambda: SimpleNamespace(memory_stats=lambda _: stats))
    assert accelerator.allocated(CUDA).peak_bytes == 700


def test_a_run_that_needs_more_than_the_budget_is_refused(model):
    first = floats(100 * MIB)
    del first  # what was given out before counts no more
    with AllocatorLimit(60 * MIB, CUDA):
        held = floats(40 * MIB)
        with pytest.raises(torch.OutOfMemoryError) as refused:
            floats(30 * MIB)
    assert held.nbytes == 40 * MIB
    at = {"phase_name": "forward", "step_index": 2, "is_stepping": True}
    rank = SimpleNamespace(rank=1, declaration=Declaration("train"), **at)
    status, failure = failure_of(refused.value, rank, Path(__file__))
    assert (status, failure.kind) == ("out_of_memory", "out_of_memory")
    assert (failure.line or "").startswith(f"{Path(__file__).name}:")
    assert failure.requested_bytes == 30 * MIB
    assert failure.held_bytes == 40 * MIB  # with the request it is above the budget of 60 MiB


def test_a_rank_is_refused_at_its_end_where_no_operation_follows(model, tmp_path):
    rank = Rank(0, Declaration("train"), "budgeted", CUDA, Heart(tmp_path / "heart"))
    rank.limit(AllocatorLimit(10 * MIB, CUDA))
    model.allocate(11 * MIB)
    with pytest.raises(torch.OutOfMemoryError) as refused:
        rank.finish()
    assert held_bytes_at(refused.value) == 0  # before the operation that was refused
    rank.lift_limit()
    floats(20 * MIB)  # nothing is limited any more


def test_the_meter_counts_tensors_on_the_device_and_those_in_main_memory_apart():
    with FakeTensorMode(), FakeMemoryMeter(CUDA) as meter:
        weight = torch.ones(100, 10, device=CUDA)
        counters = [torch.zeros(()) for _ in range(3)]  # as Adam keeps its steps
        product = weight @ weight.t()
        meter.name([weight], "parameters")
    memory = meter.memory(None)
    assert memory.peak_bytes == weight.nbytes + product.nbytes == 4 * (1000 + 10_000)
    assert memory.largest.parameters_bytes == 4000
    assert meter.host_peak_bytes() == 4 * len(counters)


def metered(peak):
    nothing = {"at_peak": None, "largest": None, "phases": {}, "kernel_peak_bytes": None}
    return Memory(peak_bytes=peak, peak_phase="backward", **nothing)


@pytest.mark.parametrize(
    ("above", "agrees"),
    [(-512, True), (512, True), (32 * MIB, True), (-3 * MIB, False), (35 * MIB, False)],
)
def test_the_meter_agrees_with_an_allocator_that_also_holds_workspaces(above, agrees):
    peak = 100 * MIB + above
    found = AllocatorMemory(peak_bytes=peak, workspace_bytes=32 * MIB, rounding_bytes=512)
    if agrees:
        assert with_allocator(metered(100 * MIB), found, peak).allocator == found
        return
    with pytest.raises(MeterDisagreesError, match="33554432 are cuBLAS workspaces"):
        with_allocator(metered(100 * MIB), found, peak)


def test_what_an_operation_takes_and_gives_back_is_no_disagreement(model):
    peak = AllocatorPeak(CUDA, counts_workspaces=True)
    with MemoryMeter(after_operation=peak.update) as meter:
        held = floats(2 * MIB)
        model.free(model.allocate(MIB))  # within an operation, which the meter cannot see
        held.add_(1)
    found = peak.read()
    assert with_allocator(meter.memory(None), found, peak.held_bytes).allocator == found
    assert (peak.held_bytes, found.peak_bytes) == (2 * MIB, 3 * MIB)


# Names as profilers recorded them: NCCL 2.10 and 2.18 (…Kernel_…_Sum_float), 2.20 (ncclDevKernel_),
# 2.27 (symmetric memory); gloo's are those of ProcessGroupGloo.cpp.
NAMES = {
    "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)": "all_reduce",
    "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevComm*)": "reduce_scatter",
    "ncclSymDevKernel_AllGather_LLMC(ncclSymDevArgs)": "all_gather",
    "gloo:all_to_all": "all_to_all",
    "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm>": None,
    "nccl:all_reduce": None,  # the call on the CPU, beside the kernel
}
SENDS = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"


def test_collectives_are_found_by_the_names_that_profilers_record():
    assert {name: collective_of(name) for name in NAMES} == NAMES
    for called, name in (("all_to_allv", "all_to_all"), ("gather", "gather"), ("", "send")):
        metadata = f'"stream": 20, "Collective name": "{called}", "Group size": 4'
        assert collective_of(SENDS, lambda said=metadata: said) == name
