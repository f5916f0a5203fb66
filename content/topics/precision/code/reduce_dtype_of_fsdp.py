"""The dtype in which FSDP2 adds gradients: of microbatches on a rank, and over ranks.

torchrun --nproc-per-node 2 reduce_dtype_of_fsdp.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

WIDTH, TOKENS, MICROBATCHES = 64, 16, 64
POLICIES = {
    "none": MixedPrecisionPolicy(param_dtype=torch.bfloat16),
    "fp32": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
}

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))
torch.manual_seed(0)
weight = torch.randn(WIDTH, WIDTH) / WIDTH**0.5
generator = torch.Generator().manual_seed(1 + dist.get_rank())
batches = torch.randn(MICROBATCHES, TOKENS, WIDTH, generator=generator)
batches += 1  # the microbatches' gradients have something in common
true = torch.zeros(WIDTH, WIDTH, dtype=torch.float64)
for batch in batches.bfloat16():  # the same gradients, added in float64
    copy = weight.bfloat16().requires_grad_()
    true += torch.autograd.grad((batch @ copy.T).square().sum(), copy)[0].double()
dist.all_reduce(true)
true /= 2
facts = {}
for name, policy in POLICIES.items():
    for waits in (True, False):
        model = nn.Linear(WIDTH, WIDTH, bias=False)
        model.weight.data.copy_(weight)
        fully_shard(model, mesh=mesh, mp_policy=policy)
        for n, batch in enumerate(batches, 1):
            model.set_requires_gradient_sync(n == MICROBATCHES or not waits)
            model(batch).square().sum().backward()
        gradient = model.weight.grad.full_tensor()
        way = f"{name}_{'at_end' if waits else 'each'}"
        facts[way] = ((gradient.double() - true).norm() / true.norm()).item()
        facts[f"{way}_dtype"] = str(gradient.dtype).removeprefix("torch.")
        if dist.get_rank() == 0:
            print(f"reduce_dtype {name}, reduced {way[5:]:>6}: error {facts[way]:.2g}")
report = [facts] * 2
dist.barrier()
dist.destroy_process_group()
