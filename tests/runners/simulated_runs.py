"""Runs of experiments as one rank of many, by the engine under the planner.

Strategies are executed as in a metered pass, with two steps where that takes three. Of the objects
that ranks send each other, all have what this one has gathered; one that is sent to another rank,
as stages of a pipeline send the shapes that they expect, is kept for the simulation of that rank.
"""

import tempfile
import warnings
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import torch
import torch.distributed as dist
from torch.distributed.pipelining import schedules

from runners.declared.experiment import find, runs_named
from runners.meters.collectives import NAMESPACES
from runners.meters.memory import CPU
from runners.ranks.rank import Rank
from runners.simulate.fake_mode import ValuelessMode, array_of
from runners.simulate.meter import Meter
from runners.simulate.processes import Job, results
from runners.simulate.reducer import Reducer
from runners.simulate.stand_ins import stand_ins

NUM_STEPS = 2


def simulated(*names):
    """Each run that is named → the logs of its ranks."""
    runs = [(name, run) for name, runs in runs_named(names).items() for run in runs]
    jobs = [Job(partial(_logs, *one), str) for one in runs]
    found = results(jobs, 2, "runs simulated")
    return {".".join(one): logs for one, logs in zip(runs, found, strict=True)}


def _logs(experiment, run):
    """In a process of its own: a rank that waits for an object is simulated after the others."""
    warnings.simplefilter("ignore")
    experiment = find(experiment)
    declaration, sent, logs = experiment.runs[run], {}, {}
    while missing := set(range(declaration.world_size)) - logs.keys():
        known = len(logs), len(sent)
        for rank in sorted(missing):
            with suppress(NotSentError):
                logs[rank] = _log(experiment, declaration, rank, sent)
        assert (len(logs), len(sent)) != known, "ranks wait for objects of each other"
    return [logs[rank] for rank in sorted(logs)]


class NotSentError(BaseException):
    """A rank waits for an object that nobody has sent; no program may take it for its failure."""


class RecordedError(BaseException):
    """The counted step is over: what a strategy does then to compare or to grade is not wanted."""


class RunMode(ValuelessMode):
    """An array of a tensor without data is one of nothing, also where a digest is made of it."""

    def answer(self, func, args):
        return SimpleNamespace(tobytes=bytes) if func is array_of else super().answer(func, args)


class RunMeter(Meter):
    """Counts as meters of real ranks do, which see the arguments of a collective alone."""

    def _count(self, func, args, kwargs, result):
        super()._count(func, args, kwargs, None if func.namespace in NAMESPACES else result)


class SimulatedRank(Rank):
    """A rank whose meter is always that of fake tensors."""

    def __init__(self, rank, declaration, meshes):
        silence = SimpleNamespace(beat=lambda phase, step: None)
        super().__init__(rank, replace(declaration, has_timeline=False), "metered", CPU, silence)
        self._meshes = meshes

    def start_memory(self, meter=None):
        """Whichever meter is asked for; a program has no steps that are known, and all counts."""
        self.meter = RunMeter(self._meshes, is_gloo=True)
        self.meter.counting = self.declaration.strategy == "program"
        super().start_memory(self.meter)

    def steps(self, count):
        """The first creates state; before the second, which counts, DDP rebuilds its buckets."""
        for index in range(NUM_STEPS):
            self.step_index += 1
            self.meter.counting = index == NUM_STEPS - 1
            yield index % count
            self._of_step.close()
        self.stop_memory()

    def stop_memory(self):
        """Once the meter has counted a step, the simulation is over."""
        was_counting = self._memory is not None and self.meter.counting
        super().stop_memory()
        if was_counting:
            raise RecordedError


class HookedReducer(Reducer):
    """A reducer with communication hooks, which get gradients as they are."""

    hook = None

    def _reduce(self, bucket):
        if self.hook is None:
            super()._reduce(bucket)
            return
        state, hook = self.hook
        seen = SimpleNamespace(
            index=lambda: self._buckets.index(bucket),
            buffer=lambda: bucket.whole,
            parameters=lambda: bucket.own,
            is_last=lambda: bucket is self._buckets[-1],
        )
        hook(state, seen)


def _register(reducer, state, hook):
    reducer.hook, reducer._divisor = (state, hook), 1


class Objects:
    """What stands for the functions of torch that pass objects; `sent` are those of all ranks."""

    def __init__(self, rank, sent):
        self._rank, self._sent, self._counts = rank, sent, Counter()
        self.stand_ins = {
            "send_object_list": self._send,
            "recv_object_list": self._receive,
            "all_gather_object": self._gather,
            "broadcast_object_list": lambda *_, **__: None,  # each keeps its own
        }

    def _key(self, source, destination):
        self._counts[source, destination] += 1
        return source, destination, self._counts[source, destination]

    def _send(self, object_list, dst, *_, **__):
        self._sent[self._key(self._rank, dst)] = list(object_list)

    def _receive(self, object_list, src, *_, **__):
        if (wanted := self._key(src, self._rank)) not in self._sent:
            raise NotSentError
        object_list[:] = self._sent[wanted]

    def _gather(self, object_list, obj, group=None):
        object_list[:] = [obj] * dist.get_world_size(group)


def _transfers(ops, desc=None, own=schedules._batch_p2p):
    """Transfers under way, which hold what they transfer, as those of gloo do."""
    pairs = zip(own(ops, desc), ops, strict=True)
    return [SimpleNamespace(wait=work.wait, tensor=one.tensor) for work, one in pairs]


def _log(experiment, declaration, rank, sent):
    """What a rank records."""
    meshes, objects = [], Objects(rank, sent).stand_ins
    with (
        tempfile.TemporaryDirectory(prefix="simulated-") as scratch,
        stand_ins(rank, declaration.world_size, meshes),
        patch.multiple(dist, Reducer=HookedReducer, _register_comm_hook=_register, **objects),
        patch.multiple(dist.distributed_c10d, **objects),
        patch.object(schedules, "_batch_p2p", _transfers),
    ):
        if declaration.needs_group and declaration.world_size > 1:
            dist.init_process_group()
        own = SimulatedRank(rank, declaration, meshes)
        own.scratch = Path(scratch)
        with RunMode():
            own.start_memory()
            torch.manual_seed(declaration.seed)
            try:
                with suppress(RecordedError):
                    experiment.strategies[declaration.strategy](own)
                    own.finish()
            finally:
                if own._memory is not None:  # it ended amid its strategy; another rank follows
                    own._memory.__exit__(None, None, None)
        return SimpleNamespace(
            peak_bytes=own.outcome.memory.peak_bytes,
            payload_bytes={one.operation: one.bytes for one in own.outcome.collectives},
            calls=own.meter.calls(),
            flops=+own.meter.flops,
        )
