"""An epoch on four ranks, then on two: these go on behind the last sample that was seen.

torchrun --nproc-per-node 1 fewer_ranks_right.py
"""

import torch

SAMPLES, RANK_BATCH, GLOBAL_BATCH = 64, 4, 16
STEPS, RANKS_BEFORE, RANKS_AFTER = 2, 4, 2

order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(0))  # of the epoch
num_times_seen = torch.zeros(SAMPLES)


def train(step, num_samples, num_ranks):
    """Take steps, all ranks in one process; what a checkpoint would have."""
    position = num_samples
    if GLOBAL_BATCH % (RANK_BATCH * num_ranks):
        raise ValueError(f"{num_ranks} ranks do not divide a batch of {GLOBAL_BATCH} samples")
    for _ in range(STEPS):
        for _ in range(GLOBAL_BATCH // (RANK_BATCH * num_ranks)):  # fewer ranks accumulate
            batch = order[position : position + RANK_BATCH * num_ranks]
            for rank in range(num_ranks):
                num_times_seen[batch[rank::num_ranks]] += 1  # forward and backward
            position += len(batch)
        step += 1  # reduce, and update
    return step, position


saved = train(0, 0, RANKS_BEFORE)
train(*saved, RANKS_AFTER)
twice, never = (num_times_seen > 1).sum().item(), (num_times_seen == 0).sum().item()
print(f"of {SAMPLES} samples, {twice} were seen twice and {never} never")
report = [{"twice": twice, "never": never}]
