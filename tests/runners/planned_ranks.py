"""Planned layouts on real ranks over gloo: `python -m tests.runners.planned_ranks FOLDER`.

The folder holds questions as JSON. Beside each is written what its ranks needed: the tensor bytes
at the peak of each, and the bytes that the first gave each collective in a step. The code of the
planned step runs here, but with values, gloo, torch's own reducer, and every microbatch. Ranks are
forked from this process, so that torch is loaded once. Torch's schedules run a file `torch ….json`.
"""

import json
import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.pipelining as pp
from torch.distributed.device_mesh import init_device_mesh
from torch.multiprocessing.spawn import start_processes

from runners.meters.memory import CPU
from runners.planner.answers.question import Question
from runners.planner.simulated import one_rank
from runners.planner.simulated.step import Repeats, Step
from tests.runners.vision_transformer import Meter


class Sends:
    """Sends that go on while the rank does, each from a copy that no meter sees.

    A send over gloo ends once it is received, so neighbours that send to each other first would
    both wait for ever. A stream of a device takes a send over from the program.
    """

    def __init__(self):
        self._send, self._under_way = dist.isend, []

    def send(self, tensor, **named):
        with torch._C._DisableTorchDispatch():
            copy = tensor.clone()
        self._under_way.append(self._send(copy, **named))

    def wait(self):
        for one in self._under_way:
            one.wait()


class ScheduledStep(Step):
    """The same step, by a schedule and stages of torch's."""

    def run(self, _):
        training, strategy, chunks = self._question.training, self._question.strategy, self._chunks
        count = self._question.num_microbatches
        if not hasattr(self, "schedule"):
            stages = [
                pp.PipelineStage(one.wrapped, index, strategy.num_stages, CPU, group=self._stages)
                for one, index in zip(chunks, strategy.stages_of(self._rank), strict=True)
            ]
            name = strategy.schedule.replace("interleaved", "interleaved1f1b")
            kind, given = pp.schedules.get_schedule_class(name), stages[1:] and stages
            self.schedule = kind(given or stages[0], count, lambda out, _: chunks[-1].loss(out))
        tokens = torch.zeros(count * training.microbatch, training.sequence, dtype=torch.long)
        target = tokens if chunks[-1].is_last else None
        self.schedule.step(*[tokens] * chunks[0].is_first, target=target, return_outputs=False)
        self._update.step()
        self._update.forget_gradients()


def needed(question, is_scheduled):
    """What this rank needs for two steps, of which the second has all microbatches."""
    one_rank.Step = ScheduledStep if is_scheduled else Step
    strategy, sends = question.strategy, Sends()
    one_rank.repeats = lambda one: Repeats(one.num_microbatches, one.num_microbatches)
    dist.send = sends.send
    sizes = (strategy.pipeline, strategy.num_summing, strategy.tensor)
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=one_rank.AXES)
    with Meter() as meter:
        one_rank.take_steps(question, mesh, dist.get_rank(), CPU, meter)
        sends.wait()
    payloads = {one.operation: one.bytes for one in meter.collective_list()}
    return meter.memory(None).peak_bytes, payloads


def be_rank(rank, path):
    torch.set_num_threads(1)
    question = Question.model_validate_json(path.read_text(encoding="utf-8"))
    ranks = question.strategy.num_devices
    store = dist.FileStore(str(path.with_suffix(".store")), ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    found = [None] * ranks
    dist.all_gather_object(found, needed(question, path.stem.startswith("torch ")))
    if rank == 0:
        text = json.dumps({"peaks": [peak for peak, _ in found], "payloads": found[0][1]})
        path.with_suffix(".needed").write_text(text, encoding="utf-8")
    dist.barrier()
    os._exit(0)  # a group of FSDP's may abort as it is destroyed


if __name__ == "__main__":
    METHOD = "fork" if sys.platform == "linux" else "spawn"
    for file in sorted(Path(sys.argv[1]).glob("*.json")):
        asked = Question.model_validate_json(file.read_text(encoding="utf-8"))
        start_processes(be_rank, (file,), asked.strategy.num_devices, start_method=METHOD)
