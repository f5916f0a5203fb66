"""Planned layouts on real ranks over gloo, by the step that is planned or by a schedule of torch's.

The code of the planned step runs here, but with values, gloo, torch's own reducer, and every
microbatch.
"""

import torch
import torch.distributed as dist
import torch.distributed.pipelining as pp
from torch.distributed.device_mesh import init_device_mesh

from proofbook.runners.core.meters.memory import CPU
from proofbook.runners.planner.simulated import one_rank
from proofbook.runners.planner.simulated.step import Repeats, Step
from tests.runners.vision_transformer import is_memory


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
        self._update.zero_grad()


def needed(rank, question, step=Step):
    """The bytes that a rank gives each collective in the second of two steps."""
    rank.meter._is_tracked = is_memory
    rank.meter._look_around = lambda: None  # a simulation counts what operations show
    strategy, sends = question.strategy, Sends()
    one_rank.Step = step
    one_rank.repeats = lambda one: Repeats(one.num_microbatches, one.num_microbatches)
    dist.send = sends.send
    sizes = (strategy.pipeline, strategy.num_summing, strategy.tensor)
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=one_rank.AXES)
    one_rank.take_steps(question, mesh, rank.rank, rank.meter)
    sends.wait()
    return {one.operation: one.bytes for one in rank.meter.collective_list()}
