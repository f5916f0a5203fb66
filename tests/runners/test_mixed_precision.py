"""The narrow Adam against PyTorch's own."""

import pytest
import torch
from torch import nn

from proofbook.runners.experiments.mixed_precision import LowAdam


def trained(make):
    """A parameter after five updates with gradients that are the same each time."""
    source = torch.Generator().manual_seed(1)
    parameter = nn.Parameter(torch.randn(50, generator=source))
    optimizer = make([parameter])
    for _ in range(5):
        parameter.grad = torch.randn(50, generator=source)
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("keeps_master", [True, False])
def test_the_narrow_adam_is_adam_where_nothing_is_narrow(keeps_master):
    own = trained(lambda parameters: LowAdam(parameters, 0.01, keeps_master))
    theirs = trained(lambda parameters: torch.optim.Adam(parameters, lr=0.01))
    torch.testing.assert_close(own, theirs)
