"""A small language model with tied embeddings, built on the meta device, then sharded.

Report: verl-project/verl#7834
What is wrong: `model.to_empty(device="cpu")` gives the tied weights separate storage; the values
loaded later are equal, but each copy gets its own part of the gradient.
Expected cause: `tokens.weight` and `head.weight` must be tied and are separate parameters.
Launch: torchrun --nproc-per-node 2 fault_untied_after_to_empty.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.fsdp import fully_shard


class TiedModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(24, 16)
        self.block = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
        self.head = nn.Linear(16, 24, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens):
        hidden = self.tokens(tokens)
        return self.head(hidden + self.block(hidden))


def batch(step):
    g = torch.Generator().manual_seed(step)
    return torch.randint(24, (16, 9), generator=g)


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    weights = TiedModel().state_dict()
    with torch.device("meta"):
        model = TiedModel()
    model.to_empty(device="cpu")
    fully_shard(model.block)
    fully_shard(model)
    set_model_state_dict(model, weights, options=StateDictOptions(full_state_dict=True))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(4):
        tokens = batch(step).chunk(world)[rank]
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0:
            print(f"step {step} loss {loss.item():.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
