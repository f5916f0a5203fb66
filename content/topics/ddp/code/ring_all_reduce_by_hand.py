"""Ring all-reduce: a reduce-scatter, then an all-gather, around a ring of ranks.

Each rank cuts its tensor into one chunk for each of the N ranks. In the N - 1 steps of
the reduce-scatter, a rank sends one chunk to its right neighbour and adds the chunk
that arrives from the left; afterwards it holds one chunk of the sum. In the N - 1 steps
of the all-gather, the finished chunks travel once around the ring. Each rank therefore
sends 2 (N - 1) / N times the bytes of the tensor.

torchrun --nproc-per-node 4 ring_all_reduce_by_hand.py
"""

import time

import torch
import torch.distributed as dist

NUM_VALUES = 1_000_000
# tensor_bytes: 4 * NUM_VALUES


def shift(outgoing, incoming):
    """Send to the right neighbour and receive from the left one, at the same time."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    send = dist.P2POp(dist.isend, outgoing, (rank + 1) % world_size)
    receive = dist.P2POp(dist.irecv, incoming, (rank - 1) % world_size)
    for work in dist.batch_isend_irecv([send, receive]):
        work.wait()
    return outgoing.nbytes


def ring_all_reduce(tensor):
    """Sum a contiguous tensor over all ranks, in place. Returns the bytes sent."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    chunks = tensor.view(-1).tensor_split(world_size)  # sizes differ by at most one
    sent_bytes = 0
    # Reduce-scatter: rank r starts with chunk r and ends with chunk r + 1 complete.
    for step in range(world_size - 1):
        outgoing = chunks[(rank - step) % world_size]
        partial_sum = chunks[(rank - step - 1) % world_size]
        received = torch.empty_like(partial_sum)
        sent_bytes += shift(outgoing, received)
        partial_sum += received
    # All-gather: each finished chunk overwrites the partial sums of the other ranks.
    for step in range(world_size - 1):
        outgoing = chunks[(rank + 1 - step) % world_size]
        incoming = chunks[(rank - step) % world_size]
        sent_bytes += shift(outgoing, incoming)
    return sent_bytes


def main():
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)  # each rank has values of its own
    tensor = torch.rand(NUM_VALUES)
    expected = tensor.clone()
    dist.all_reduce(expected)
    sent_bytes = ring_all_reduce(tensor)
    difference = (tensor - expected).abs().max().item()
    if rank == 0:
        print(f"largest difference from dist.all_reduce: {difference:.1e}")
        print(f"bytes of the tensor: {tensor.nbytes:,}")
        print(f"bytes sent by rank 0: {sent_bytes:,}")
        formula = 2 * (world_size - 1) * tensor.nbytes // world_size
        print(f"2 (N - 1) / N times the tensor: {formula:,}")
    dist.barrier()
    time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
    dist.destroy_process_group()
    return [{"difference": difference, "counted_bytes": sent_bytes}]


if __name__ == "__main__":
    report = main()
