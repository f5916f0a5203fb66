"""Accelerators without one: drivers, backends, spinning ranks and an allocator, by stand-ins."""

import os
import time
import weakref
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch._subclasses import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from proofbook.runners.__main__ import main
from proofbook.runners.core.declared.experiment import Declaration, find
from proofbook.runners.core.measuring import endings, launch, measure
from proofbook.runners.core.measuring.launch import Launcher, Place
from proofbook.runners.core.meters.activity import collective_of
from proofbook.runners.core.meters.allocator import AllocatorLimit, AllocatorPeak, with_allocator
from proofbook.runners.core.meters.kernel import MeterDisagreesError
from proofbook.runners.core.meters.memory import FakeMemoryMeter, MemoryMeter
from proofbook.runners.core.meters.refusal import held_bytes_at
from proofbook.runners.core.ranks.heartbeat import Heart
from proofbook.runners.core.ranks.process import failure_of
from proofbook.runners.core.ranks.rank import Rank
from proofbook.runners.core.system import accelerator, gloo_threads, processes
from proofbook.runners.core.system.processes import IdleTime, Thread
from proofbook.runners.core.trace import machine
from proofbook.runners.core.trace.measured import AllocatorMemory, Memory
from proofbook.runners.core.trace.outcome import RankOutcome
from proofbook.runners.core.trace.records import Failure
from tests.processes import python

CUDA = torch.device("cuda", 0)


def test_a_device_that_nobody_knows_is_said_in_one_line(capsys, monkeypatch):
    monkeypatch.setenv(accelerator.DEVICE, "gpu")
    assert main(["run", "hangs"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "PROOFBOOK_DEVICE is 'gpu'; set it to cpu, or leave it out" in line


@pytest.mark.parametrize(("num_ranks", "backend"), [(1, "nccl"), (2, "nccl"), (4, "gloo")])
def test_ranks_that_share_an_accelerator_communicate_over_gloo(num_ranks, backend, monkeypatch):
    monkeypatch.setattr(accelerator, "num_devices", lambda: 2)
    assert machine.num_places("cuda") == 2
    with Launcher("cuda") as launcher:
        assert launcher.place_of(Declaration("train", num_ranks)) == ("cuda", backend)


def live(tmp_path, *, spins):
    """This very process as a rank that has computed, without a heartbeat for a minute."""
    rank = endings.LiveRank(os.getpid(), tmp_path / "rank0", spins=spins)
    rank.idle_time._since = time.monotonic() - 60
    rank.update(None)
    return rank


def refused(tmp_path):
    """A rank whose record says that it ran out of memory."""
    one = live(tmp_path, spins=True)
    failure = Failure(
        kind="out_of_memory", message="", requested_bytes=1, rank=1, phase="forward", step=0
    )
    one.outcome = RankOutcome(rank=1, status="out_of_memory", failure=failure)
    return one


def test_a_rank_that_spins_for_a_collective_makes_no_progress(tmp_path):
    assert live(tmp_path, spins=True).idle_time.exceeds(6.0)
    assert not live(tmp_path, spins=False).idle_time.exceeds(6.0)


LOOP = gloo_threads.TCP_LOOP


@pytest.mark.parametrize(
    ("threads", "is_idle"),
    [
        # Processor time in a minute: each wakes up now and then, and together they take 3 %.
        ([("python", "S", 60), (LOOP, "S", 60), (LOOP, "R", 60)], True),
        ([("python", "R", 60), (LOOP, "S", 60)], False),  # ready to run, and others have the core
        ([("python", "S", 0), (gloo_threads.RUN_LOOP, "S", 180)], False),  # a long collective
        ([("python", "S", 0), (gloo_threads.RUN_LOOP, "R", 0)], False),  # it gets no turn
        ([], True),  # not shown by this kernel, which needs ten times as long
    ],
)
def test_what_only_wakes_up_is_idle_and_what_gets_no_turn_is_not(threads, is_idle, monkeypatch):
    shown = {number: Thread(*thread) for number, thread in enumerate(threads, 1)}
    monkeypatch.setattr(processes, "threads", lambda _: dict(shown))
    time_of = IdleTime(4711)
    time_of._since = time.monotonic() - 61
    assert time_of.exceeds(6.0) == is_idle


@pytest.mark.parametrize(("spins", "settle", "code"), [(True, 0.1, None), (False, 6.0, 0)])
def test_of_the_peers_of_a_refused_rank_those_that_work_are_waited_for(
    spins, settle, code, tmp_path, monkeypatch
):
    if spins:
        monkeypatch.setattr(launch, "GRACE_SECONDS", float("inf"))
    codes = [{os.getpid(): 0}, {}, {}]
    server = SimpleNamespace(exits=dict if spins else codes.pop)
    ranks = [live(tmp_path, spins=spins), refused(tmp_path)]
    with Launcher() as launcher:
        assert launcher._follow(server, ranks, None, patience=6.0, settle=settle) is False
    assert ranks[0].exit_code == code


@pytest.mark.builds
def test_nothing_asks_for_accelerators_before_ranks_are_forked():
    """A process that has asked the driver cannot fork ranks that use what it found."""
    program = """
import torch
from proofbook.runners.core.measuring.forkserver import ENVIRONMENT
asked = []
for name in ("is_available", "device_count", "init", "_lazy_init", "current_device"):
    setattr(torch.cuda, name, lambda *a, name=name: asked.append(name) or 0)
from proofbook.runners.core.declared.experiment import find, names
from proofbook.runners.core.ranks.process import preload
preload()
for name in names():
    find(name)
print(asked, ENVIRONMENT["PYTORCH_NVML_BASED_CUDA_CHECK"])
"""
    done = python("-c", program)
    assert done.stdout == "[] 1\n", done.stderr


@pytest.mark.parametrize("experiment", ["growth", "large_model", "sharding", "transformer"])
def test_ranks_share_an_accelerator_but_where_gloo_would_gather_and_scatter_on_it(experiment):
    sharded = {"fsdp", "fsdp_freed", "fsdp_kept", "fsdp_tensor", "split", "tensor_parallel"}
    runs = find(experiment).runs.values()
    reasons = {run.strategy: measure.cannot_run(run, Place("cuda", "gloo")) for run in runs}
    alone = {strategy for strategy, reason in reasons.items() if reason is not None}
    assert alone == sharded & reasons.keys()
    assert all("share an accelerator" in reasons[one] for one in alone)
    assert not any(measure.cannot_run(run, Place("cuda", "nccl")) for run in runs)


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
    return torch.empty(num_bytes // 4)


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
    before = floats(5 * MIB)
    del before  # what came before the start of a peak is no part of it
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


def test_a_process_that_ends_while_its_threads_are_listed_has_none(monkeypatch):
    def vanished(*_):
        raise FileNotFoundError

    monkeypatch.setattr(Path, "glob", vanished)
    assert processes.threads(2**22 + 1) == {}
