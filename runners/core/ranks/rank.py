"""The rank that a strategy is called with: its world, its device, its meters and its recorder.

A strategy is a function of one `Rank`. It builds a model and trains as any program would:

    rank.watch(model, optimizer)
    for step in rank.steps(settings.num_steps):
        loss = cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

The rank tells phases apart (`phases.py`). In a timed pass they cost a heartbeat and nothing else;
in a metered pass they feed the meters; under a budget they say where the allocator refused. Out: a
`RankOutcome`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Generic, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from proofbook.runners.core.declared.experiment import Declaration, PassName
from proofbook.runners.core.declared.settings import S
from proofbook.runners.core.meters.activity import ActivityMeter
from proofbook.runners.core.meters.allocator import AllocatorPeak, with_allocator
from proofbook.runners.core.meters.kernel import KernelPeak, disagreement
from proofbook.runners.core.meters.link import LinkMeter
from proofbook.runners.core.meters.memory import MemoryMeter, local
from proofbook.runners.core.meters.refusal import Limit
from proofbook.runners.core.ranks.heartbeat import Heart
from proofbook.runners.core.ranks.phases import BASE, Phase, StepPhases
from proofbook.runners.core.ranks.recorder import Recorder, parameter_digest
from proofbook.runners.core.system import accelerator
from proofbook.runners.core.trace.measured import Memory

# The first creates state, the second rebuilds DDP's buckets, the third is steady.
NUM_METERED_STEPS = 3
NUM_TIMELINE_STEPS = 2  # one to settle without the memory meter, one under the profiler


class Rank(Recorder, Generic[S]):
    """One process that stands for one device; `S` is the class of its run's settings."""

    def __init__(
        self,
        rank: int,
        declaration: Declaration,
        pass_name: PassName,
        device: torch.device,
        heart: Heart,
    ) -> None:
        super().__init__(rank, declaration, pass_name)
        self.world_size = declaration.world_size
        self.seed = declaration.seed
        self.settings = cast("S", declaration.settings)
        self.device = device
        self.phase_name = BASE
        self.is_stepping = False  # then what no phase marks is no longer building
        self._of_step = StepPhases(self)
        self.scratch = Path()  # a folder of this pass alone, which goes when it ends
        self.has_lost_peers = False  # then nobody is left to meet at the end
        self.followed: dict[str, list[float]] = {}  # seconds, of the run that this one follows
        self._heart = heart
        self.memory_fault: str | None = None  # why meter and kernel cannot both be right
        self.largest_collective_bytes = 0
        self.scratch_bytes = 0  # that the backend takes beside the tensors of its collectives
        self._memory: MemoryMeter | None = None
        self._kernel: KernelPeak | None = None
        self._allocator: AllocatorPeak | None = None
        self._limit: Limit | None = None
        self._activity: ActivityMeter | None = None
        self._link: LinkMeter | None = None
        self._module: nn.Module | None = None
        self._optimizer: torch.optim.Optimizer | None = None

    # --- what is being done

    def phase(self, name: str, *, computes: bool = True) -> AbstractContextManager[None]:
        """A context in which the rank is in a phase that no hook of `watch` tells, as `gather`.

        `computes` is False for a phase that only communicates: a timeline then shows no computation
        around the communication.
        """
        return Phase(self, name, computes)

    def begin(self, phase: Phase) -> None:
        """Write a heartbeat; under meters, start the phase's memory and note its time."""
        self._heart.beat(phase.name, self.step_index)
        if self._memory is not None:
            self._memory.enter(phase.name)
        if self._memory is not None or self._activity is not None:
            phase.start_ns = time.time_ns()

    def end(self, phase: Phase) -> None:
        """Under meters, record its computing, class the state, and note the kernel's mark."""
        if self._activity is None and self._memory is None:
            return
        if self._activity is not None:
            self.settle()
            if phase.computes:
                self._activity.add("compute", phase.name, phase.start_ns)
        if self._memory is not None:
            self._name_state()
            self._memory.phase = phase.outer
            if self._kernel is not None:
                self._kernel.end_phase(phase.name)

    def settle(self) -> None:
        """Wait for an accelerator to finish, so that a clock read now means something."""
        accelerator.synchronize(self.device)

    @contextmanager
    def stage(
        self, name: str, operation: str, of: Tensor | None = None, everywhere: bool = False
    ) -> Iterator[Callable[[Tensor], None]]:
        """A context, as `Recorder.stage`; a metered pass notes what travels in the stage."""
        meter = self._memory
        if meter is not None:
            meter.enter_stage(name)
        with super().stage(name, operation, of, everywhere) as out:
            yield out
        if meter is not None:
            meter.leave_stage()

    def epochs(self, count: int) -> Iterator[int]:
        """Epochs from 1; a metered pass stops within the first."""
        yield from range(1, (1 if self.is_metered else count) + 1)

    def steps(self, count: int) -> Iterator[int]:
        """Yield `count` step indices, timed; if metered, 3, with a timeline 5. ValueError for 0."""
        if count < 1:
            raise ValueError("there is no step to take: the samples fill no batch")
        self.is_stepping = True
        yield from self._metered_steps(count) if self.is_metered else self._timed_steps(count)
        self.is_stepping = False

    def _metered_steps(self, count: int) -> Iterator[int]:
        """The few steps under the meters, and one under the profiler."""
        timeline = NUM_TIMELINE_STEPS if self.declaration.has_timeline else 0
        for index in range(NUM_METERED_STEPS + timeline):
            self.step_index += 1
            if self._memory is not None and index == NUM_METERED_STEPS - 1:
                self._memory.counting = True
            last = timeline > 0 and index == NUM_METERED_STEPS + timeline - 1
            with self._timeline() if last else nullcontext():
                yield index % count
                self._of_step.close()
            if index == NUM_METERED_STEPS - 1:
                self.stop_memory()

    def _timed_steps(self, count: int) -> Iterator[int]:
        """Steps with a clock around each, and what it costs outside the loop."""
        for index in range(count):
            self.step_index += 1
            start = time.perf_counter()
            yield index
            self._of_step.close()
            self.settle()
            self.outcome.step_seconds.append(time.perf_counter() - start)

    @contextmanager
    def _timeline(self) -> Iterator[None]:
        if self.declaration.world_size > 1:
            dist.barrier()  # ranks enter the step together, so its start means the same to all
        self._activity = ActivityMeter(self.rank, self.device.type)
        with self._activity as meter:
            yield
            self.settle()
        self.outcome.window_ns = (meter.start_ns, meter.end_ns)
        self.outcome.events = meter.events
        self._activity = None

    # --- what passes its own link

    def sent_payload_bytes(self) -> int | None:
        """Bytes that this rank has sent by its own link, without headers; None without a link.

        All ranks count together, once nothing is under way; the count itself sends nothing.
        """
        if not self.declaration.own_network:
            return None
        if self._link is None:
            self._link = LinkMeter(self.scratch, self.rank, self.world_size)
        return self._link.count()

    def beat(self) -> None:
        """Write a heartbeat: for a rank that waits for processes which it started itself."""
        self._heart.beat(self.phase_name, self.step_index)

    # --- memory

    def start_memory(self, meter: MemoryMeter | None = None) -> None:
        """Enter the given meter of fake tensors, else a new MemoryMeter and the device's peak."""
        self._kernel = self._allocator = None
        if meter is None:
            self.start_peak()
        update = self._allocator.update if self._allocator else None
        self._memory = (meter or MemoryMeter(self.device, update)).__enter__()

    def start_peak(self) -> None:
        """Start the high-water mark of the kernel or the allocator, which checks the meter."""
        if self.device.type != "cpu":
            self._allocator = AllocatorPeak(self.device, counts_workspaces=self.is_metered)
            return
        self._kernel = KernelPeak(reads_phases=self.is_metered)

    def stop_memory(self) -> None:
        """Leave the meter, check its peak against the device's, record memory and collectives."""
        if self._memory is None:
            return
        self.memory_fault = None
        growth = self._kernel.growth(self.phase_name) if self._kernel else None
        self._memory.__exit__(None, None, None)
        memory = self._memory.memory(growth.peak_bytes if growth else None)
        if growth is not None:
            num_storages = self._memory.num_storages
            self.memory_fault = disagreement(memory, growth, num_storages, self.scratch_bytes)
        if self._allocator is not None:
            counted = self._allocator.read(self._memory.host_peak_bytes())
            memory = with_allocator(memory, counted, self._allocator.held_bytes)
        self.largest_collective_bytes = self._memory.largest_collective_bytes
        self.outcome.memory = memory
        self.outcome.collectives = self._memory.collective_list()
        self.outcome.stage_moves = self._memory.moves
        self._memory = None

    def restarted(self) -> Rank:
        """A new Rank as before the pass, without a timeline; drop model and hooks of this rank."""
        declaration = replace(self.declaration, has_timeline=False)
        other = Rank(self.rank, declaration, self.pass_name, self.device, self._heart)
        other.scratch, other.followed = self.scratch, self.followed
        self._of_step.detach()
        self._module = self._optimizer = None
        return other

    def keep_peak(self) -> None:
        """Record the kernel's or allocator's peak as memory, unless the meter has or will."""
        has_peak = self._kernel is not None or self._allocator is not None
        if has_peak and self.outcome.memory is None and self._memory is None:
            self.outcome.memory = Memory(
                kernel_peak_bytes=self._kernel.bytes() if self._kernel else None,
                allocator=self._allocator.read() if self._allocator else None,
            )

    def limit(self, budget: Limit) -> None:
        """Enforce a budget, and note what is held where it refuses, until `lift_limit`."""
        self._limit = budget.__enter__()

    def lift_limit(self, error: BaseException | None = None) -> None:
        """End the budget, and note on the error that ended the training the bytes held now."""
        if self._limit is not None:
            if error is not None:
                self._limit.note(error)
            self._limit.__exit__(None, None, None)
        self._limit = None

    def finish(self) -> None:
        """Enforce the limit, stop the meters, and in a timed pass record the parameters' digest.

        torch.OutOfMemoryError where the last operation exceeded the budget of an accelerator.
        """
        self._of_step.close()
        if self._limit is not None:
            self._limit.enforce()
        self.stop_memory()
        self.keep_peak()
        if self._module is not None and not self.is_metered and self.pass_name != "budgeted":
            self.outcome.parameter_digest = parameter_digest(self._module.parameters())

    def inputs(self, *tensors: Tensor) -> None:
        """Tell the memory meter that tensors are input samples, not activations."""
        if self._memory is not None:
            self._memory.name(tensors, "buffers")

    def watch(self, module: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Hook phases to module and optimizer, count the parameters, and class their tensors.

        The parameter digest is of this module.
        """
        self._module, self._optimizer = module, optimizer
        self._of_step.attach(module, optimizer)
        self.outcome.num_parameters = sum(local(p).numel() for p in module.parameters())
        self._name_state()

    def _name_state(self) -> None:
        """Tell the memory meter what the module and the optimizer hold by now."""
        if self._memory is None or self._module is None:
            return
        parameters = list(self._module.parameters())
        self._memory.name(parameters, "parameters")
        self._memory.name(self._module.buffers(), "buffers")
        self._memory.name([p.grad for p in parameters if p.grad is not None], "gradients")
        if self._optimizer is not None:
            states = self._optimizer.state.values()
            tensors = (value for state in states for value in state.values())
            self._memory.name([t for t in tensors if isinstance(t, Tensor)], "optimizer")

    # --- passing tensors between two ranks

    def send(self, tensor: Tensor, to: int) -> None:
        """Send a tensor to another rank; on return it may be changed."""
        passed = self._where_it_can_travel(tensor.contiguous())
        self._passed("send", to, lambda: dist.send(passed, to))

    def receive(
        self, shape: Iterable[int], source: int, dtype: torch.dtype | None = None
    ) -> Tensor:
        """Receive a tensor of this shape from another rank, in fp32 by default."""
        tensor = torch.empty(*shape, dtype=dtype or torch.float32, device=self.device)
        passed = self._where_it_can_travel(tensor)
        self._passed("recv", source, lambda: dist.recv(passed, source))
        return tensor if passed is tensor else tensor.copy_(passed)

    def _where_it_can_travel(self, tensor: Tensor) -> Tensor:
        """Through main memory where ranks share an accelerator: gloo cannot send from there."""
        shares = tensor.device.type == "cuda" and dist.get_backend() == "gloo"
        return tensor.cpu() if shares else tensor

    def _passed(self, operation: str, peer: int, pass_on: Callable[[], Any]) -> None:
        word = "send to" if operation == "send" else "receive from"
        self._heart.beat(f"{word} rank {peer}", self.step_index)
        start_ns = time.time_ns()
        pass_on()
        if self._activity is not None:
            self.settle()  # NCCL returns before the tensor has travelled
            self._activity.add("communication", operation, start_ns, peer)
        self._heart.beat(self.phase_name, self.step_index)
