"""A checkpoint in the background, while the next update begins before its copy is complete.

torchrun --nproc-per-node 1 later_weights_wrong.py
"""

import tempfile
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

NUM_TENSORS, LENGTH = 12, 1_000_000

dist.init_process_group("gloo")
folder = tempfile.mkdtemp()
state = {str(number): torch.zeros(LENGTH) for number in range(NUM_TENSORS)}
# Copied by a thread of its own: neither pinned nor shared memory, which a CPU does not need.
stager = DefaultStager(StagingOptions(False, False, True, False))

saving = dcp.async_save(state, checkpoint_id=folder, async_stager=stager)
for value in reversed(state.values()):
    value.add_(1)  # the next update
saving.staging_completion.result()
saving.upload_completion.result()
stager.close()

found = {name: torch.empty(LENGTH) for name in state}
dcp.load(found, checkpoint_id=folder)
num_later = sum(bool((value != 0).any()) for value in found.values())
report = [{"num_later": num_later, "num_tensors": NUM_TENSORS}]
print(f"{num_later} of {NUM_TENSORS} tensors on disk hold later weights")
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
