"""A large batch whole and in parts, on one device: torchrun --nproc-per-node 1 microbatches.py"""

from resource import RUSAGE_SELF, getrusage

import torch

torch.manual_seed(0)
layers = [part for _ in range(6) for part in (torch.nn.Linear(256, 256), torch.nn.ReLU())]
model, samples = torch.nn.Sequential(*layers), torch.randn(20000, 256)
gradients, before = [], getrusage(RUSAGE_SELF).ru_maxrss
for num_parts in (8, 1):  # the peak of a process only ever grows: small parts first
    model.zero_grad()
    for part in samples.chunk(num_parts):
        (model(part).square().mean() / num_parts).backward()
    gradients.append(model[0].weight.grad.clone())
    peak = (getrusage(RUSAGE_SELF).ru_maxrss - before) // 1024
    print(f"in {num_parts} parts: peak grew by {peak} MiB")
print(f"gradients differ by {(gradients[0] - gradients[1]).norm() / gradients[1].norm():.0e}")
