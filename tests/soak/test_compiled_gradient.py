"""A note beside a published row, against what the compiler writes. It compiles for seconds."""

import math
import re

import pytest
import torch
from torch._inductor.utils import run_and_get_code

pytestmark = pytest.mark.soak


def test_a_compiled_gradient_of_megatrons_loss_is_computed_in_a_copy(tmp_path, monkeypatch):
    """calculate_gradients of megatron/core/fusions/fused_cross_entropy.py, at the rows' commit."""

    def gradients(softmax, grad, mask, targets):
        flat = softmax.view(-1, softmax.size()[-1])
        rows = torch.arange(start=0, end=flat.size()[0], device=flat.device)
        flat[rows, targets] -= 1.0 - mask.view(-1).float()
        softmax.mul_(grad.unsqueeze(dim=-1))
        return softmax.to(torch.bfloat16)

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    softmax, grad, targets = torch.rand(16, 4, 256), torch.ones(16, 4), torch.arange(64)
    given = softmax, grad, torch.zeros(16, 4, dtype=torch.bool), targets
    in_place = gradients(*given)
    assert torch.equal(in_place, softmax.to(torch.bfloat16))  # the eager function needs no copy
    _, generated = run_and_get_code(torch.compile(gradients), *given)
    allocated = re.findall(r"empty_strided_cpu\(\((.+?)\), \(.+?\), (\S+)\)", "".join(generated))
    sizes = {(math.prod(map(int, shape.split(", "))), kind) for shape, kind in allocated}
    assert sizes == {(softmax.numel(), "torch.float32"), (softmax.numel(), "torch.bfloat16")}
