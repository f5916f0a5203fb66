"""The bench of each lab: what a reader's code is called with, and the laws that it has to obey."""

from proofbook.companions.labs.benches import (
    accum_nosync,
    balance_of_batch,
    carried_state,
    chunked_loss,
    chunked_pair,
    clipped_stages,
    dealt_sentences,
    early_pointer,
    edges_of_shards,
    exchanged_heads,
    expert_layer,
    experts_doubled,
    four_write_two_read,
    fsdp_unit,
    later_weights,
    lost_updates,
    mean,
    norms_by_tokens,
    pushed_from_shard,
    recompute,
    resumed_run,
    ring,
    ring_attention,
    seeds_by_axis,
    shared_rounding,
    slow_head,
    straddled_blocks,
    stuck_save,
    tensor_mlp,
    tokens,
    two_tiers,
    vocabulary_loss,
    zero1,
)
from proofbook.companions.labs.grading import Bench

_MODULES: tuple[Bench, ...] = (
    mean, ring, tokens, zero1, fsdp_unit, tensor_mlp, recompute, accum_nosync, dealt_sentences,
    stuck_save, clipped_stages, slow_head, vocabulary_loss, chunked_pair, norms_by_tokens,
    seeds_by_axis, expert_layer, two_tiers, experts_doubled, balance_of_batch, pushed_from_shard,
    resumed_run, four_write_two_read, later_weights, early_pointer, ring_attention,
    exchanged_heads, edges_of_shards, carried_state, chunked_loss,
    shared_rounding, lost_updates, straddled_blocks,
)  # fmt: skip
BENCHES = {bench.__name__.rpartition(".")[2]: bench for bench in _MODULES}
