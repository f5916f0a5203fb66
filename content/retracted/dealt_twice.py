"""Which rows a sampler deals out: torchrun --nproc-per-node 1 dealt_twice.py"""

from collections import Counter

from torch.utils.data.distributed import DistributedSampler

for num_rows in (12, 10):
    samplers = [DistributedSampler(range(num_rows), 4, rank, shuffle=False) for rank in range(4)]
    dealt = Counter(row for sampler in samplers for row in sampler)
    twice = sorted(row for row, count in dealt.items() if count > 1)
    print(f"{num_rows} rows over 4 ranks: {sum(dealt.values())} dealt, twice: {twice}")
