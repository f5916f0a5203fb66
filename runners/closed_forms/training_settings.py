"""Settings that several experiments share. No torch.

An experiment's settings inherit what they use: functions of `steps.py` read these fields.
"""

from collections.abc import Mapping
from typing import Literal, Self

from proofbook.runners.api import (
    Count,
    Factor,
    FactorOrZero,
    FreeSettings,
    RunSettings,
    Setting,
    closed_form,
)


class TeacherSettings(RunSettings):
    """The data that a seeded teacher draws (`teacher.py`)."""

    num_samples: Count
    num_validation_samples: Count
    num_features: Count
    num_classes: Count
    teacher_temperature: Factor


class HiddenLayerSettings(TeacherSettings):
    """A network with one hidden layer, and a teacher's data."""

    num_hidden: Count

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the features, of the hidden layer, of the classes."""
        return (self.num_features, self.num_hidden, self.num_classes)


class FourClassSettings(HiddenLayerSettings):
    """The network and the data of the experiments about replicas."""

    num_validation_samples: Count = 1000
    num_features: Count = 10
    num_hidden: Count = 64
    num_classes: Count = 4
    learning_rate: Factor = 0.1
    teacher_temperature: Factor = 0.15
    dtype: Literal["float32", "float64"] = "float64"


class SmallClassifierSettings(FourClassSettings):
    """The classifier that `ddp` trains, and that other experiments compare with it."""

    num_samples: Count = 10000
    batch_size: Count = 25
    num_epochs: Count = 5
    momentum: FactorOrZero = 0.9


class GlobalBatchSettings(SmallClassifierSettings):
    """The same classifier, trained from a batch that all ranks share."""

    @closed_form
    def global_batch_size(self) -> int:
        """Samples of all ranks together in one update."""
        return self.batch_size * self.world_size

    @closed_form
    def num_updates(self) -> int:
        """Updates of the optimizer in all epochs together."""
        return self.num_samples // self.global_batch_size * self.num_epochs


class BatchSettings(HiddenLayerSettings):
    """A small classifier, trained on batches that ranks share."""

    num_samples: Count = 10000
    num_validation_samples: Count = 1000
    num_features: Count = 20
    num_hidden: Count = 128
    num_classes: Count = 10
    batch_size: Count = 100
    num_epochs: Count = 5
    learning_rate: Factor = 0.05
    momentum: FactorOrZero = 0.9
    teacher_temperature: Factor = 0.05


class StackSettings(RunSettings):
    """A stack of equal linear layers."""

    width: Count
    num_layers: Count

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the features, and of what each layer puts out."""
        return (self.width,) * (self.num_layers + 1)


class SharedBatchSettings(StackSettings):
    """A stack of equal linear layers, and one batch that the ranks divide among them."""

    global_batch_size: Count
    num_steps: Count
    learning_rate: Factor
    equal_parts = (("global_batch_size", "world_size"),)

    @closed_form
    def batch_size(self) -> int:
        """Samples that one rank takes in a step."""
        return self.global_batch_size // self.world_size


class ProgramSettings(FreeSettings):
    """A program's path below the repository's root, and its constants."""

    program: str

    def changed(self, changes: Mapping[str, Setting]) -> Self:
        """These settings, unchanged; ValueError where a change gives any of them another value."""
        if {**self.declared(), **changes} != self.declared():
            raise ValueError(
                f"a program's settings are its own constants; change them in {self.program}"
            )
        return self
