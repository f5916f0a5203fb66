"""The recorder of a training: stages, epochs and predictions, read off the tensors themselves.

In: tensors and losses, where a strategy marks them. Out: the fields of a
`RankOutcome`. A metered pass records no results of training: its steps are few.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from proofbook.runners.core.declared.experiment import Declaration, PassName
from proofbook.runners.core.meters.memory import local
from proofbook.runners.core.trace.outcome import EpochPart, RankOutcome
from proofbook.runners.core.trace.records import Model, NonFinite, PredictionStep, Stage, Validation
from proofbook.runners.core.trace.schema import Quantity, Repeats, Setting, finite_or_none

NUM_VALUES = 4
MAX_NON_FINITE = 20  # listed a rank; a run that has diverged says nothing new at each later step


def _first(tensor: Tensor) -> list[float]:
    first = local(tensor.detach()).reshape(-1)[:NUM_VALUES]
    values: list[float] = first.to("cpu", torch.float64).tolist()
    return values


def first_values(tensor: Tensor) -> list[float]:
    """The first values of a tensor, rounded to six significant digits; not finite ones as 0.

    Where a 0 stands for one, `Recorder` says so in `non_finite`, and the run has diverged.
    """
    return [float(f"{v:.6g}") if math.isfinite(v) else 0.0 for v in _first(tensor)]


def parameter_digest(parameters: Iterable[Tensor]) -> str:
    """Twelve hexadecimal digits of SHA-256 over the bytes of parameters, of local shards alone."""
    digest = hashlib.sha256()
    for parameter in parameters:
        shard = local(parameter.detach()).contiguous().to("cpu")
        digest.update(shard.view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:12]


class Recorder:
    """Records the results of one rank in one pass."""

    def __init__(self, rank: int, declaration: Declaration, pass_name: PassName) -> None:
        self.rank = rank
        self.declaration = declaration
        self.pass_name = pass_name
        self.is_metered = pass_name == "metered"  # few steps, and no results of training
        self.step_index = -1
        self.outcome = RankOutcome(rank=rank)
        self._keeps_steps = declaration.keeps_steps and not self.is_metered

    def settle(self) -> None:
        """Wait until the device has finished; on CPU, every call that has returned has."""

    def describe(self, model: Model) -> None:
        """Record the whole model, before any split."""
        self.outcome.model = model

    @contextmanager
    def stage(
        self, name: str, operation: str, of: Tensor | None = None, everywhere: bool = False
    ) -> Iterator[Callable[[Tensor], None]]:
        """A context yielding a function for the output; then record the stage, once, if unmetered.

        The name is that of the lesson's data-flow table, the operation is in words without
        numerals, and `of` is the input. Called several times, it keeps the last output.
        """
        out: list[Tensor] = []
        start = self._now()
        yield out.append
        seconds = round(self._now() - start, 7)
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
                values=self._values(f"stages.{name}.values", result),
            )
        )
        self.outcome.stage_seconds[name] = seconds

    @contextmanager
    def predict(
        self, name: str, operation: str, of: Tensor, facts: dict[str, Setting] | None = None
    ) -> Iterator[Callable[..., None]]:
        """A context yielding a function for the output; then record the step, if unmetered.

        It takes facts by name, too. The seconds are those within the context.
        """
        facts = {} if facts is None else facts
        out: list[Tensor] = []

        def show(result: Tensor, **more: Setting) -> None:
            out.append(result)
            facts.update(more)

        start = self._now()
        yield show
        seconds = round(self._now() - start, 7)
        if self.is_metered or not out:
            return
        step = PredictionStep.model_construct(  # which keeps these very facts
            name=name,
            rank=self.rank,
            operation=operation,
            shape_in=list(of.shape),
            shape_out=list(out[-1].shape),
            values=self._values(f"prediction.{name}.values", out[-1]),
            facts=facts,
        )
        self.outcome.prediction.append(step)
        self.outcome.prediction_seconds[name] = seconds

    def _now(self) -> float:
        self.settle()
        return time.perf_counter()

    def _values(self, field: str, tensor: Tensor) -> list[float]:
        """`first_values`, of which the values that are not finite are listed."""
        for value in _first(tensor):
            if not math.isfinite(value):
                self._not_finite(field, value)
        return first_values(tensor)

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
        """Append this rank's results in an epoch, counted from 1; a metered pass keeps none.

        `loss` and `accuracy`, a share, are means over the rank's samples. `validation` is a number
        of samples that no rank trained on, their loss and accuracy. Of `parameters`, the digest is
        kept, by which replicas are compared.
        """
        if self.is_metered:
            return
        mean_loss = None if loss is None else self._kept("loss", loss)
        validated = validation and Validation(
            rank=self.rank,
            num_samples=validation[0],
            loss=self._kept("validation_loss", validation[1]),
            accuracy=finite_or_none(float(validation[2])),
        )
        self.outcome.validation = validated or self.outcome.validation
        self.outcome.epochs.append(
            EpochPart(
                epoch=epoch,
                loss=mean_loss,
                accuracy=None if accuracy is None else finite_or_none(float(accuracy)),
                num_samples=num_samples,
                validation_loss=validated.loss if validated else None,
                validation_accuracy=validated.accuracy if validated else None,
                parameter_digest=parameter_digest(parameters) if parameters is not None else None,
            )
        )

    def step_loss(self, loss: float) -> None:
        """Record the loss of one step, where the run keeps them."""
        kept = self._kept("step_losses", loss)
        if self._keeps_steps:
            self.outcome.step_losses.append(kept)

    def _kept(self, field: str, value: float) -> float | None:
        """A result as a trace keeps it: null, and listed, where it is not finite."""
        if not math.isfinite(value):
            self._not_finite(field, value)
        return finite_or_none(float(value))

    def _not_finite(self, field: str, value: float) -> None:
        if len(self.outcome.non_finite) >= MAX_NON_FINITE:
            return
        self.outcome.non_finite.append(
            NonFinite(
                field=field,
                step=self.step_index,
                kind="nan" if math.isnan(value) else "inf" if value > 0 else "-inf",
            )
        )

    def measure(
        self, name: str, value: Setting, *, unit: str = "", repeats: Repeats = "rounded"
    ) -> None:
        """Record numbers or words of this experiment's own on this rank, in any pass.

        A page reads them as `<run>.ranks[0].measures.<name>`; a number that is not finite becomes
        null. The unit is `bytes`, `share`, `loss`, `position`, or what a whole number counts, such
        as `updates`; times go to `measure_seconds`.
        """
        self.outcome.quantities[name] = Quantity(unit=unit, repeats=repeats)
        if isinstance(value, float):
            value = self._kept(f"measures.{name}", value)
        self.outcome.measures[name] = value

    def measure_seconds(self, name: str, samples: Iterable[float]) -> None:
        """Record times of something other than a step: raw samples, in seconds.

        A page reads them as `<run>.timing.measures.<name>`, as the lowest rank took them.
        """
        self.outcome.measured_seconds.setdefault(name, []).extend(samples)

    def count_samples(self, count: int) -> None:
        """Add to the number of samples that this rank has trained on."""
        self.outcome.num_samples = (self.outcome.num_samples or 0) + count
