"""How DDP packs gradients into buckets, and when it sends them: during backward, or after it.

Two ranks train a stack of equal layers under DDP. A communication hook looks at every bucket as it
leaves: its bytes, whose gradients it holds, and how many gradients backward had finished by then.
The bucket's cap is changed from run to run; in `after_backward` nothing leaves before backward has
ended, and then everything at once.

    python -m runners run buckets
"""

from __future__ import annotations

from functools import cached_property

from runners.plans.experiment import RunPlan
from runners.plans.settings import Count, CountOrZero, Factor
from runners.training.settings import StackSettings

QUESTION = "Does a gradient wait for the end of backward before it is sent?"

BYTES_PER_VALUE = 4


class Settings(StackSettings):
    """A stack of equal layers under DDP, and how its gradients travel."""

    num_layers: Count = 12
    width: Count = 512
    batch_size: Count = 64
    num_steps: Count = 30
    bucket_cap_mib: CountOrZero = 0  # zero: DDP's default
    learning_rate: Factor = 0.1
    overlaps: bool = True

    @cached_property
    def num_gradients(self) -> int:
        """Of a weight and a bias in each layer."""
        return 2 * self.num_layers

    @cached_property
    def bytes_per_value(self) -> int:
        """Of a gradient."""
        return BYTES_PER_VALUE

    @cached_property
    def layer_bytes(self) -> int:
        """Weights and biases of one layer."""
        return BYTES_PER_VALUE * (self.width * self.width + self.width)


RUNS = {
    "as_it_comes": RunPlan("train", 2, Settings()),
    "small": RunPlan("train", 2, Settings(bucket_cap_mib=1)),
    "middling": RunPlan("train", 2, Settings(bucket_cap_mib=4)),
    "one_bucket": RunPlan("train", 2, Settings(bucket_cap_mib=1000)),
    "after_backward": RunPlan("train", 2, Settings(overlaps=False)),
}
