"""When the first bucket leaves: torchrun --nproc-per-node 2 sent_early.py"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
layers, order = [torch.nn.Linear(600, 600, bias=False) for _ in range(6)], []
model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1)
for number, layer in enumerate(layers, start=1):
    layer.register_full_backward_pre_hook(lambda *_, n=number: order.append(f"layer {n} begins"))


def leave(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    order.append(f"bucket {bucket.index() + 1} leaves")
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda f: f.value()[0])


model.register_comm_hook(None, leave)
for _ in range(2):  # the first step only finds out in which order gradients come
    order.clear()
    model(torch.ones(4, 600, requires_grad=True)).sum().backward()
dist.get_rank() == 0 and print(", ".join(order))
dist.barrier()
