# fault: parameters in bf16 with a small learning rate: most updates round away
# cause: updates lost in bf16
"""The whole model cast to bf16. After meta-pytorch/torchtune#2254, vllm-project/speculators#765."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(32, 32), nn.LayerNorm(32), nn.GELU(), nn.Linear(32, 8))
model = DistributedDataParallel(model.to(torch.bfloat16))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
torch.manual_seed(1 + dist.get_rank())
for _ in range(6):
    x = torch.randn(16, 32, dtype=torch.bfloat16)
    y = x[:, :8].float().argmax(1)
    loss = nn.functional.cross_entropy(model(x).float(), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
