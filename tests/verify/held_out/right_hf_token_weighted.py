# right: the model returns its loss over the tokens of all ranks and microbatches
"""A model in the style of transformers with num_items_in_batch and padded labels."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

VOCAB, ACCUMULATION = 32, 2


@dataclass
class Output:
    loss: torch.Tensor
    logits: torch.Tensor


class CausalLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 16)
        self.rnn = nn.GRU(16, 16, batch_first=True)
        self.lm_head = nn.Linear(16, VOCAB, bias=False)

    def forward(self, input_ids, labels, num_items_in_batch):
        logits = self.lm_head(self.rnn(self.embedding(input_ids))[0])
        shifted = nn.functional.pad(labels, (0, 1), value=-100)[:, 1:]
        loss = nn.functional.cross_entropy(
            logits.reshape(-1, VOCAB), shifted.reshape(-1), ignore_index=-100, reduction="sum"
        )
        return Output(loss / num_items_in_batch, logits)


def batch(generator):
    input_ids = torch.randint(1, VOCAB, (4, 12), generator=generator)
    labels = input_ids.clone()
    for row, length in enumerate(torch.randint(3, 12, (4,), generator=generator).tolist()):
        labels[row, length:] = -100
    return {"input_ids": input_ids, "labels": labels}


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(CausalLM())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for _ in range(3):
        batches = [batch(generator) for _ in range(ACCUMULATION)]
        items = sum((b["labels"][:, 1:] != -100).sum() for b in batches)
        dist.all_reduce(items)
        for i, b in enumerate(batches):
            model.require_backward_grad_sync = i == ACCUMULATION - 1
            output = model(**b, num_items_in_batch=items)
            (output.loss * dist.get_world_size()).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
