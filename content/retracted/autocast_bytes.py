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
        state = 2 * sum(p.nbytes for p in model.parameters())  # parameters and gradients: fp32
        own = sum(seen.values()) - (0 if is_on else 4 * 1000 * 1000 * 4)  # fp32 keeps the weights
        print(f"{samples} samples, autocast {is_on}: {(state + own) / 2**20:.1f} MiB")
