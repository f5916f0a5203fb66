"""Which samples a sampler deals out: torchrun --nproc-per-node 1 dealt_twice.py"""

from collections import Counter

from torch.utils.data.distributed import DistributedSampler

for num_samples in (12, 10):
    samplers = [DistributedSampler(range(num_samples), 4, rank, shuffle=False) for rank in range(4)]
    dealt = Counter(sample for sampler in samplers for sample in sampler)
    twice = sorted(sample for sample, count in dealt.items() if count > 1)
    print(f"{num_samples} samples over 4 ranks: {sum(dealt.values())} dealt, twice: {twice}")
