"""Planned layouts on real ranks over gloo: `python -m tests.runners.planned_ranks FOLDER`.

The folder holds questions as JSON. Beside each is written what its ranks needed: the tensor bytes
at the peak of each, and the bytes that the first gave each collective in a step. The code of the
planned step runs here, but with values, gloo, torch's own reducer, and every microbatch. Ranks are
forked from this process, so that torch is loaded once. Of a file `torch …`, a schedule of torch's
pipelines runs the microbatches.
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

SCHEDULES = {
    "gpipe": pp.ScheduleGPipe,
    "1f1b": pp.Schedule1F1B,
    "interleaved": pp.ScheduleInterleaved1F1B,
}


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
        question, meter, total = self._question, self._meter, self._question.strategy.num_stages
        if not hasattr(self, "schedule"):
            own = zip(question.strategy.stages_of(self._rank), self._chunks, strict=True)
            stages = [
                pp.PipelineStage(one.wrapped, index, total, CPU, group=self._stages)
                for index, one in own
            ]
            kind, many = SCHEDULES[question.strategy.schedule], len(stages) > 1
            self.schedule = kind(
                stages if many else stages[0],
                question.num_microbatches,
                loss_fn=lambda logits, _: self._chunks[-1].loss(logits),
            )
        meter.enter("last backward")
        samples = question.training.microbatch * question.num_microbatches
        tokens = torch.zeros(samples, question.training.sequence, dtype=torch.long)
        ends = [(one.is_first, one.is_last) for one in self._chunks]
        given = (tokens,) if ends[0][0] else ()
        wanted = {"target": tokens, "losses": []} if ends[-1][1] else {}
        self.schedule.step(*given, **wanted, return_outputs=False)
        del tokens, given, wanted
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
