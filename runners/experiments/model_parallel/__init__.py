"""Model parallelism by layers: four ranks, each with its own layers, one batch in flight.

`full` has 100 million parameters and shows memory, bytes passed and who waits; `curve` has the same
shape, narrower, and trains to the end; `full_single` and `single` are the same models unsplit.

    python -m runners run model_parallel
"""

from __future__ import annotations

from functools import cached_property

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, Factor, FactorOrZero
from runners.traces.schema import Setting
from runners.training.settings import TeacherSettings

QUESTION = "What does it take to train one model whose layers are placed on four ranks?"
BYTES_PER_VALUE = 4
HIDDEN_LAYERS_PER_STAGE = 5


class Settings(TeacherSettings):
    """A deep network with residual layers, as many on each stage."""

    num_samples: Count
    num_validation_samples: Count
    num_features: Count = 100
    num_classes: Count = 10
    teacher_temperature: Factor = 0.05
    width: Count
    num_stages: Count = 4
    batch_size: Count
    num_epochs: Count
    learning_rate: Factor
    momentum: FactorOrZero

    def forced(self) -> dict[str, Setting]:
        """Each rank has one stage."""
        return {"num_stages": self.world_size} if self.strategy == "stages" else {}

    @cached_property
    def num_layers(self) -> int:
        """Linear layers: those of every stage, and the first and the last."""
        return self.num_stages * HIDDEN_LAYERS_PER_STAGE + 2

    @cached_property
    def bytes_per_value(self) -> int:
        """Of fp32."""
        return BYTES_PER_VALUE

    def check(self) -> None:
        """Refuse samples that fill no batch."""
        if self.num_samples < self.batch_size:
            raise ValueError(
                f"num_samples {self.num_samples} are fewer than the {self.batch_size} of one batch"
            )


FULL_SIZE = Settings(
    width=2236,
    num_samples=256,
    num_validation_samples=64,
    batch_size=32,
    num_epochs=1,
    learning_rate=0.05,
    momentum=0.0,
)
CURVE = Settings(
    width=64,
    num_samples=8000,
    num_validation_samples=1000,
    batch_size=64,
    num_epochs=5,
    learning_rate=0.02,
    momentum=0.9,
)
RUNS = {
    "full": RunPlan("stages", 4, FULL_SIZE, keeps_steps=True),
    "full_single": RunPlan("single", 1, FULL_SIZE, keeps_steps=True, has_timeline=False),
    "curve": RunPlan("stages", 4, CURVE, passes=("timed",)),
    "single": RunPlan("single", 1, CURVE, passes=("timed",)),
}
# A try of these takes seconds only with fewer batches.
TRIED_WITH = {"full": {"num_samples": 320}, "full_single": {"num_samples": 320}}
