"""RunSettings that several experiments share. No torch.

An experiment's `RunSettings` inherits what it uses: functions of `steps.py` read these fields.
"""

from __future__ import annotations

from runners.plans.settings import Count, Factor, RunSettings, Seconds


class TeacherSettings(RunSettings):
    """The data that a seeded teacher draws (`teacher.py`)."""

    num_rows: Count
    num_validation_rows: Count
    num_features: Count
    num_classes: Count
    teacher_temperature: Factor


class HiddenLayerSettings(TeacherSettings):
    """A network with one hidden layer, and a teacher's data."""

    num_hidden: Count


class ClassifierSettings(HiddenLayerSettings):
    """The same, trained by SGD with momentum."""

    learning_rate: Factor
    momentum: Seconds


class StackSettings(RunSettings):
    """A stack of equal linear layers."""

    width: Count
    num_layers: Count

    @property
    def widths(self) -> tuple[int, ...]:
        """Of the features, and of what each layer puts out."""
        return (self.width,) * (self.num_layers + 1)
