# fault: the gradients are clipped while they are still multiplied by the loss scale
# cause: clipping of scaled gradients
"""Mixed precision with GradScaler. After milesial/Pytorch-UNet#468, pytorch/examples#1196."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(
        nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 1, 3, padding=1))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(4):
        images = torch.rand(4, 1, 8, 8, generator=generator)
        masks = (images > 0.5).float()
        loss = nn.functional.binary_cross_entropy_with_logits(model(images), masks)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
