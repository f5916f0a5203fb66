# fault: each rank takes the mean over its own tokens without padding, and DDP averages the means
# cause: mean of means
"""Language model with padded batches of unequal length. After huggingface/transformers#24725,
meta-pytorch/torchtune#1875."""

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils.rnn import pad_sequence

VOCAB, PAD = 50, 0


def collate(generator, size):
    lengths = torch.randint(3, 20, (size,), generator=generator).tolist()
    texts = [torch.randint(1, VOCAB, (n,), generator=generator) for n in lengths]
    return pad_sequence(texts, batch_first=True, padding_value=PAD)


class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(VOCAB, 16)
        self.rnn = nn.GRU(16, 32, batch_first=True)
        self.head = nn.Linear(32, VOCAB)

    def forward(self, tokens):
        return self.head(self.rnn(self.embedding(tokens))[0])


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(LM())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(100 + dist.get_rank())
    for _ in range(4):
        tokens = collate(generator, 4)
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(
            logits.reshape(-1, VOCAB), tokens[:, 1:].reshape(-1), ignore_index=PAD
        )
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
