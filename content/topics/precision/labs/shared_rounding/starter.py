"""SGD on weights in bfloat16, with stochastic rounding, on replicas.

python -m runners lab shared_rounding
"""

from torch import Tensor


def update(
    weights: list[Tensor], gradients: list[Tensor], learning_rate: float, seed: int, step: int
) -> None:
    """Change `weights` in place, by the average of the ranks' `gradients`.

    `weights` are bfloat16, equal on all ranks; `gradients` are float32, and must stay as they are.
    `seed` is the same in all steps, and `step` counts them.
    """
    raise NotImplementedError("write update here")
