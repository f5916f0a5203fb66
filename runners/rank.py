"""What an experiment's code holds: its rank, its world, its device, and the recorder.

A strategy is a function of one `Rank`. It builds a model, trains, and marks what it does:

    with rank.phase("forward"):
        logits = model(rows)

In a timed pass the marks cost a heartbeat and nothing else; in a metered pass they feed the
meters; under a budget they say where the allocator refused. Out: a `RankOutcome`.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from runners.experiment import PassName, RunPlan
from runners.heartbeat import Heart
from runners.meters.activity import ActivityMeter
from runners.meters.memory import KernelPeak, MemoryMeter, _local
from runners.outcome import EpochPart, EventPart, RankOutcome, ValidationPart
from runners.trace import Memory, Model, NonFinite, PredictionStep, Setting, Stage, finite_or_none

NUM_METERED_STEPS = 3  # the first creates state, the second rebuilds DDP's buckets, the third is steady
NUM_TIMELINE_STEPS = 2  # one to settle without the memory meter, one under the profiler
NUM_VALUES = 4


def first_values(tensor: Tensor, count: int = NUM_VALUES) -> list[float]:
    """The first values of a tensor, rounded to six significant digits; not finite ones as 0."""
    flat = _local(tensor.detach()).reshape(-1)[:count].to("cpu", torch.float64)
    return [float(f"{v:.6g}") if math.isfinite(v) else 0.0 for v in flat.tolist()]


def parameter_digest(parameters: Iterable[Tensor]) -> str:
    """Twelve hexadecimal digits over the bytes of parameters: equal exactly where they are."""
    digest = hashlib.sha256()
    for parameter in parameters:
        local = _local(parameter.detach()).contiguous().to("cpu")
        digest.update(local.view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]


class Rank:
    """One process that stands for one device."""

    def __init__(
        self,
        rank: int,
        plan: RunPlan,
        pass_name: PassName,
        device: torch.device,
        heart: Heart,
    ) -> None:
        self.rank = rank
        self.world_size = plan.world_size
        self.plan = plan
        self.seed = plan.seed
        self.settings = SimpleNamespace(**plan.settings)
        self.device = device
        self.pass_name = pass_name
        self.outcome = RankOutcome(rank=rank)
        self.phase_name = "build"
        self.step_index = -1
        self._heart = heart
        self._memory: MemoryMeter | None = None
        self._kernel: KernelPeak | None = None
        self._activity: ActivityMeter | None = None
        self._module: nn.Module | None = None
        self._optimizer: torch.optim.Optimizer | None = None

    # --- what is being done

    @property
    def is_metered(self) -> bool:
        """Whether this pass is a metered one: few steps, no results of training."""
        return self.pass_name == "metered"

    @contextmanager
    def phase(self, name: str, *, computes: bool = True) -> Iterator[None]:
        """Mark what the rank does: build, wrap, forward, backward, optimizer, …

        Args:
            name: the phase.
            computes: False for a phase that only communicates; a timeline then shows what the
                communication does and not a computation around it.
        """
        outer, self.phase_name = self.phase_name, name
        self._heart.beat(name, self.step_index)
        if self._memory is not None:
            self._memory.phase = name
        start_ns = time.time_ns()
        yield  # no finally: after a failure the phase it happened in must stand
        if self._activity is not None and computes:
            self._activity.add("compute", name, start_ns)
        if self._memory is not None:
            self._name_state()
            self._memory.phase = outer
        self.phase_name = outer

    def epochs(self, count: int) -> Iterator[int]:
        """Epochs from 1; a metered pass stops within the first."""
        yield from range(1, (1 if self.is_metered else count) + 1)

    def steps(self, count: int) -> Iterator[int]:
        """The steps of one epoch, each timed or metered as the pass demands."""
        if not self.is_metered:
            for index in range(count):
                self.step_index += 1
                start = time.perf_counter()
                yield index
                self.outcome.step_seconds.append(time.perf_counter() - start)
            return
        timeline = NUM_TIMELINE_STEPS if self.plan.has_timeline else 0
        for index in range(NUM_METERED_STEPS + timeline):
            self.step_index += 1
            if self._memory is not None and index == NUM_METERED_STEPS - 1:
                self._memory.counting = True
            last = timeline > 0 and index == NUM_METERED_STEPS + timeline - 1
            with self._timeline() if last else nullcontext():
                yield index % count
            if index == NUM_METERED_STEPS - 1:
                self.stop_memory()

    @contextmanager
    def _timeline(self) -> Iterator[None]:
        if self.plan.world_size > 1:
            dist.barrier()  # ranks enter the step together, so its start means the same to all
        self._activity = ActivityMeter(self.rank, self.device.type)
        with self._activity as meter:
            yield
        self.outcome.window_ns = (meter.start_ns, meter.end_ns)
        self.outcome.events = [
            EventPart(kind=e.kind, name=e.name, start_ns=e.start_ns, end_ns=e.end_ns, peer=e.peer)
            for e in meter.events
        ]
        self._activity = None

    # --- memory

    def start_memory(self) -> None:
        """Enter the memory meter; the process body does this in a metered pass."""
        self._kernel = KernelPeak() if self.device.type == "cpu" else None
        self._memory = MemoryMeter().__enter__()

    def stop_memory(self) -> None:
        """Leave the memory meter and keep what it saw."""
        if self._memory is None:
            return
        kernel = self._kernel.bytes() if self._kernel else None
        self._memory.__exit__(None, None, None)
        self.outcome.memory = self._memory.memory(kernel)
        self.outcome.collectives = self._memory.collective_list()
        self._memory = None

    def start_kernel(self) -> None:
        """Start the kernel's high-water mark alone: what a budgeted pass can afford."""
        self._kernel = KernelPeak() if self.device.type == "cpu" else None

    def keep_peak(self) -> None:
        """Keep the kernel's peak of a budgeted pass; a metered one has kept its own."""
        if self._kernel is None or self.outcome.memory is not None or self._memory is not None:
            return
        self.outcome.memory = Memory(
            peak_bytes=None,
            peak_phase=None,
            at_peak=None,
            largest=None,
            phases={},
            kernel_peak_bytes=self._kernel.bytes(),
        )

    def finish(self) -> None:
        """Close what a strategy left open: meters, and the digest of what was trained."""
        self.stop_memory()
        self.keep_peak()
        if self._module is not None and not self.is_metered and self.pass_name != "budgeted":
            self.outcome.parameter_digest = parameter_digest(self._module.parameters())

    def rows(self, *tensors: Tensor) -> None:
        """Say that tensors are input rows, not activations."""
        if self._memory is not None:
            self._memory.name(tensors, "buffers")

    def watch(self, module: nn.Module, optimizer: torch.optim.Optimizer | None = None) -> None:
        """Tell the meters, and the digests, which parameters and which state this rank trains."""
        self._module, self._optimizer = module, optimizer
        self.outcome.num_parameters = sum(_local(p).numel() for p in module.parameters())
        if self._memory is not None:
            self._name_state()

    def _name_state(self) -> None:
        if self._memory is None or self._module is None:
            return
        parameters = list(self._module.parameters())
        self._memory.name(parameters, "parameters")
        self._memory.name(self._module.buffers(), "buffers")
        self._memory.name([p.grad for p in parameters if p.grad is not None], "gradients")
        if self._optimizer is not None:
            state = [
                value
                for entry in self._optimizer.state.values()
                for value in entry.values()
                if isinstance(value, Tensor)
            ]
            self._memory.name(state, "optimizer")

    # --- passing tensors between two ranks

    def send(self, tensor: Tensor, to: int) -> None:
        """Send a tensor to another rank and wait until it has it."""
        self._passed("send", to, lambda: dist.send(tensor.contiguous(), to))

    def receive(self, shape: Iterable[int], source: int, dtype: torch.dtype | None = None) -> Tensor:
        """Wait for a tensor from another rank."""
        tensor = torch.empty(*shape, dtype=dtype or torch.float32, device=self.device)
        self._passed("recv", source, lambda: dist.recv(tensor, source))
        return tensor

    def _passed(self, operation: str, peer: int, pass_on: Callable[[], Any]) -> None:
        word = "send to" if operation == "send" else "receive from"
        self._heart.beat(f"{word} rank {peer}", self.step_index)
        start_ns = time.time_ns()
        pass_on()
        if self._activity is not None:
            self._activity.add("communication", operation, start_ns, peer)
        self._heart.beat(self.phase_name, self.step_index)

    # --- what is recorded

    def describe(self, model: Model) -> None:
        """Record the whole model, before any split."""
        self.outcome.model = model

    @contextmanager
    def stage(
        self, name: str, operation: str, of: Tensor | None = None, everywhere: bool = False
    ) -> Iterator[Callable[[Tensor], None]]:
        """Record a stage from its tensors, the first time it is passed in a timed pass.

        Args:
            name: as the lesson's data-flow table names it.
            operation: what is done, in words without numerals.
            of: what goes in; None where nothing does.
            everywhere: the stage is the same on every rank.

        Yields:
            A function to call with what came out.
        """
        with self._shown() as (out, seconds):
            yield out.append
        known = any(s.name == name for s in self.outcome.stages)
        if self.is_metered or known or not out:
            return
        result = out[-1]
        self.outcome.stages.append(
            Stage(
                name=name,
                rank=None if everywhere else self.rank,
                operation=operation,
                shape_in=list(of.shape) if of is not None else [],
                shape_out=list(result.shape),
                dtype=str(result.dtype).removeprefix("torch."),
                bytes=result.nbytes,
                values=first_values(result),
            )
        )
        self.outcome.stage_seconds[name] = seconds[-1]

    @contextmanager
    def predict(
        self, name: str, operation: str, of: Tensor, facts: dict[str, Setting] | None = None
    ) -> Iterator[Callable[[Tensor], None]]:
        """Record one step of a prediction from its tensors; `facts` may be filled inside."""
        with self._shown() as (out, seconds):
            yield out.append
        if self.is_metered or not out:
            return
        self.outcome.prediction.append(
            PredictionStep(
                name=name,
                rank=self.rank,
                operation=operation,
                shape_in=list(of.shape),
                shape_out=list(out[-1].shape),
                values=first_values(out[-1]),
                facts=dict(facts or {}),
            )
        )
        self.outcome.prediction_seconds[name] = seconds[-1]

    @contextmanager
    def _shown(self) -> Iterator[tuple[list[Tensor], list[float]]]:
        out: list[Tensor] = []
        seconds: list[float] = []
        start = time.perf_counter()
        yield out, seconds
        seconds.append(round(time.perf_counter() - start, 7))

    def epoch(
        self,
        epoch: int,
        *,
        loss: float | None = None,
        accuracy: float | None = None,
        num_samples: int = 0,
        validation: tuple[int, float, float] | None = None,
        parameters: Iterable[Tensor] | None = None,
    ) -> None:
        """Record what this rank saw in an epoch.

        Args:
            epoch: from 1.
            loss: mean over this rank's samples.
            accuracy: share of them classified rightly.
            num_samples: how many there were.
            validation: rows, loss and accuracy on rows never trained on.
            parameters: given where replicas are to be compared: their digest is kept.
        """
        if self.is_metered:
            return
        if loss is not None and not math.isfinite(loss):
            self._not_finite("loss", loss)
        rows, validation_loss, validation_accuracy = validation or (0, None, None)
        self.outcome.epochs.append(
            EpochPart(
                epoch=epoch,
                loss=_rounded(loss),
                accuracy=_rounded(accuracy),
                num_samples=num_samples,
                validation_loss=_rounded(validation_loss),
                validation_accuracy=_rounded(validation_accuracy),
                parameter_digest=parameter_digest(parameters) if parameters is not None else None,
            )
        )
        if validation is not None:
            self.outcome.validation = ValidationPart(
                num_rows=rows,
                loss=_rounded(validation_loss),
                accuracy=_rounded(validation_accuracy),
            )

    def step_loss(self, loss: float) -> None:
        """Record the loss of one step, where the run keeps them."""
        if not math.isfinite(loss):
            self._not_finite("step_losses", loss)
        if self.plan.keeps_steps and not self.is_metered:
            self.outcome.step_losses.append(_rounded(loss))

    def _not_finite(self, field: str, value: float) -> None:
        kind = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        step = self.step_index
        self.outcome.non_finite.append(NonFinite(field=field, step=step, kind=kind))

    def count_samples(self, count: int) -> None:
        """Add to the training samples this rank has seen."""
        self.outcome.num_samples = (self.outcome.num_samples or 0) + count


def _rounded(value: float | None) -> float | None:
    """A result as a trace keeps it: seventeen digits would only repeat the machine's."""
    return None if value is None else finite_or_none(float(value))
