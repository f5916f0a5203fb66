"""Samples from a seeded teacher: learnable, but not perfectly, with validation samples apart.

Every rank draws the same samples from the same seed and takes its own part, so no data travels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Samples:
    """Features of shape (samples, features) and class labels of shape (samples,)."""

    features: Tensor
    labels: Tensor

    def take(self, index: Tensor | slice) -> Samples:
        """A part of the samples."""
        return Samples(self.features[index], self.labels[index])

    def to(self, device: torch.device) -> Samples:
        """The same samples on a device."""
        return Samples(self.features.to(device), self.labels.to(device))


@dataclass(frozen=True)
class Lesson:
    """What the teacher hands out: samples to train on and samples never trained on."""

    training: Samples
    validation: Samples


def teach(
    seed: int,
    *,
    num_samples: int,
    num_validation_samples: int,
    num_features: int,
    num_classes: int,
    temperature: float,
    dtype: torch.dtype = torch.float32,
) -> Lesson:
    """Draw a `Lesson` from the seed: samples that a hidden network labels, noise in its scores.

    Features have their own offset and spread each, as measured quantities have. Labels are the
    largest of the teacher's standardised scores plus Gumbel noise times `temperature`, so that zero
    is a teacher without doubt. `dtype` is that of the features.
    """
    source = torch.Generator().manual_seed(seed)
    total = num_samples + num_validation_samples
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
    # In place: samples can be most of the memory.
    features = raw.mul_(spread).add_(offset).to(dtype)
    return Lesson(
        Samples(features[:num_samples], labels[:num_samples]),
        Samples(features[num_samples:], labels[num_samples:]),
    )


def largest_feature(num_features: int, num_classes: int, num_samples: int, seed: int) -> Samples:
    """`Samples` in [-1, 1), labelled by which of the first `num_classes` features is the largest.

    Drawn cheaply: `teach` would need more memory than a quarter of the activations of a large
    batch.
    """
    source = torch.Generator().manual_seed(seed)
    features = 2 * torch.rand(num_samples, num_features, generator=source) - 1
    return Samples(features, features[:, :num_classes].argmax(1))


def scaled(samples: Samples, like: Tensor) -> Samples:
    """Samples with each feature between zero and one, as far as the features of `like` reach."""
    low, high = like.amin(0), like.amax(0)
    return Samples((samples.features - low) / (high - low), samples.labels)
