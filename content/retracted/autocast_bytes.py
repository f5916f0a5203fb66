"""What a step keeps under autocast: torchrun --nproc-per-node 1 autocast_bytes.py"""

import torch

model = torch.nn.Sequential(*[torch.nn.Linear(1000, 1000) for _ in range(4)])
for samples in (64, 4096):
    batch = torch.randn(samples, 1000)
    for is_on in (False, True):
        seen: dict[int, int] = {}

        def keep(tensor: torch.Tensor, seen: dict[int, int] = seen) -> torch.Tensor:
            seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        hooks = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
        with hooks, torch.autocast("cpu", torch.bfloat16, enabled=is_on):
            loss = model(batch).square().mean()
        for p in model.parameters():  # in fp32, with a gradient in fp32
            seen[p.untyped_storage().data_ptr()] = 2 * p.nbytes
        print(f"{samples} samples, autocast {is_on}: {sum(seen.values()) / 2**20:.1f} MiB")
