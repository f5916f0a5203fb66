"""Rows from a seeded teacher: learnable, but not perfectly, with validation rows apart.

Every rank draws the same rows from the same seed and takes its own part, so no data travels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """Features of shape (rows, features) and class labels of shape (rows,)."""

    features: Tensor
    labels: Tensor

    def take(self, index: Tensor | slice) -> Rows:
        """A part of the rows."""
        return Rows(self.features[index], self.labels[index])


@dataclass(frozen=True)
class Lesson:
    """What the teacher hands out: rows to train on and rows never trained on."""

    training: Rows
    validation: Rows


def teach(
    seed: int,
    *,
    num_rows: int,
    num_validation_rows: int,
    num_features: int,
    num_classes: int,
    temperature: float = 0.35,
    dtype: torch.dtype = torch.float32,
) -> Lesson:
    """Draw rows whose labels a hidden network gives, with noise that no student can learn.

    Features have their own offset and spread each, as measured quantities have. Labels are the
    largest of the teacher's standardised scores plus Gumbel noise times `temperature`.

    Args:
        seed: equal seeds give equal rows.
        num_rows: rows to train on.
        num_validation_rows: rows to validate on, drawn from the same teacher.
        num_features: features a row.
        num_classes: classes.
        temperature: noise against signal; zero is a teacher without doubt.
        dtype: of the features.
    """
    source = torch.Generator().manual_seed(seed)
    total = num_rows + num_validation_rows
    raw = torch.randn(total, num_features, generator=source, dtype=torch.float64)
    first = torch.randn(num_features, 4 * num_classes, generator=source, dtype=torch.float64)
    second = torch.randn(4 * num_classes, num_classes, generator=source, dtype=torch.float64)
    scores = raw @ first[:, :num_classes] + 0.5 * torch.tanh(raw @ first) @ second
    scores = (scores - scores.mean(0)) / scores.std(0)
    uniform = torch.rand(total, num_classes, generator=source, dtype=torch.float64)
    gumbel = -torch.log(-torch.log(uniform.clamp(1e-12, 1 - 1e-12)))
    labels = (scores + temperature * gumbel).argmax(1)
    spread = torch.rand(num_features, generator=source, dtype=torch.float64) * 4 + 1
    offset = torch.randn(num_features, generator=source, dtype=torch.float64) * 5
    features = raw.mul_(spread).add_(offset).to(dtype)  # in place: rows can be most of the memory
    return Lesson(
        Rows(features[:num_rows], labels[:num_rows]),
        Rows(features[num_rows:], labels[num_rows:]),
    )


@dataclass(frozen=True)
class Scaling:
    """Smallest and largest value of each feature, to bring features between zero and one."""

    low: Tensor
    high: Tensor

    @classmethod
    def of(cls, features: Tensor) -> Scaling:
        """The statistics of these rows."""
        return cls(features.amin(0), features.amax(0))

    def apply(self, features: Tensor) -> Tensor:
        """Features between zero and one where they lie within the statistics."""
        return (features - self.low) / (self.high - self.low)
