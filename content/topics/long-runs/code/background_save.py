"""What a save in the background adds to a rank: a thread, and a copy of the state.

torchrun --nproc-per-node 2 background_save.py
"""

import tempfile
import threading
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions

LENGTH = 2_000_000
# state_bytes: 4 * LENGTH


class CountingStager(DefaultStager):
    """Copies as the default does, and counts the bytes that it copies."""

    def stage(self, state):
        copies = super().stage(state)
        differ = [one for name, one in copies.items() if one.data_ptr() != state[name].data_ptr()]
        self.num_bytes = sum(one.nbytes for one in differ)
        return copies


dist.init_process_group("gloo")
rank = dist.get_rank()
folders = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folders)
state = {f"weight_{rank}": torch.randn(LENGTH)}
num_threads = threading.active_count()
stager = CountingStager(StagingOptions(False, False, False, False))  # copies before it returns
group = dist.new_group(backend="gloo")  # of the writing thread alone
saving = dcp.async_save(state, checkpoint_id=folders[0], process_group=group, async_stager=stager)
facts = {"threads": threading.active_count() - num_threads}
saving.result()
facts |= {"copied_bytes": stager.num_bytes, "threads_left": threading.active_count() - num_threads}
stager.close()
report = [{}] * dist.get_world_size()
dist.all_gather_object(report, facts)
if rank == 0:
    print(f"{facts['threads']} thread more, {facts['copied_bytes']} bytes copied")
dist.barrier()
time.sleep(0.1)  # let gloo's threads finish; ending at once can hang
dist.destroy_process_group()
