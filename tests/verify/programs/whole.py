"""The attention and MLP that `modules.py` divides among ranks by hand, unsharded."""

from torch import nn
from torch.nn import functional

WIDTH = 16


class Columns(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.qkv = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 32), nn.Linear(32, WIDTH, bias=False)

    def enters(self, x):
        return x

    leaves = enters

    def forward(self, x):
        x = self.first(x)
        q, k, v = (
            one.unflatten(-1, (-1, 4)).transpose(1, 2)
            for one in self.qkv(self.enters(x)).chunk(3, -1)
        )
        y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = x + self.leaves(self.out(y))
        return x + self.leaves(self.down(functional.gelu(self.up(self.enters(x)))))
