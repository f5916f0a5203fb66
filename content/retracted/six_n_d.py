"""Operations of a transformer's layer beside 6ND: torchrun --nproc-per-node 1 six_n_d.py"""

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.0, batch_first=True)
size = sum(p.numel() for p in layer.parameters())
for length in (64, 512, 2048):
    tokens = torch.randn(1, length, 256, requires_grad=True)
    with FlopCounterMode(display=False) as counter, sdpa_kernel(SDPBackend.MATH):
        layer(tokens).sum().backward()
    share = counter.get_total_flops() / (6 * size * length)
    print(f"{length:>5} tokens: {share:.2f} times 6ND")
