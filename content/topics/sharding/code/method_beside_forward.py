"""A method other than forward computes with shards, until FSDP is told of it.

torchrun --nproc-per-node 2 method_beside_forward.py
"""

import time

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard, register_fsdp_forward_method


class Encoder(nn.Module):
    """A layer with a method beside forward."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)

    def encode(self, samples: Tensor) -> Tensor:
        """The outputs of the layer."""
        return self.layer(samples)

    def forward(self, samples: Tensor) -> Tensor:
        """The same outputs."""
        return self.encode(samples)


dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(0)
model = Encoder()
samples = torch.randn(4, 16)
whole = model(samples).detach()
fully_shard(model, mesh=mesh)

failed = 0
try:
    model.encode(samples)
except RuntimeError as error:
    failed = 1
    if dist.get_rank() == 0:
        print(f"not registered: {str(error)[str(error).find('got mixed') :]}")
register_fsdp_forward_method(model, "encode")
error_after = (model.encode(samples) - whole).abs().max().item()
report = [{}] * dist.get_world_size()
dist.all_gather_object(report, {"failed": failed, "error_after": error_after})
if dist.get_rank() == 0:
    print(f"registered: largest difference from the unsharded model {error_after:.1e}")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
