"""Runs of experiments as one rank of many, by the engine under the planner."""

import os
import warnings
from contextlib import suppress
from functools import partial

from runners.declared.experiment import find, runs_named
from runners.simulate.log import UnsimulatedError
from runners.simulate.one_rank import simulate_rank
from runners.simulate.processes import Job, results
from runners.simulate.stand_ins import NotSentError, Sent


def simulated(*names):
    """Each run that is named → the logs of its ranks, or the reason why there are none."""
    runs = [(name, run) for name, runs in runs_named(names).items() for run in runs]
    jobs = [Job(partial(_logs, *one), str) for one in runs]
    found = results(jobs, 2, "runs simulated")
    return {".".join(one): logs for one, logs in zip(runs, found, strict=True)}


def _logs(experiment, run):
    """In a process of its own: a rank that waits for an object is simulated after the others."""
    warnings.simplefilter("ignore")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    experiment = find(experiment)
    declaration, sent, logs = experiment.runs[run], Sent(), {}
    try:
        while missing := set(range(declaration.world_size)) - logs.keys():
            known = len(logs), len(sent)
            for rank in sorted(missing):
                with suppress(NotSentError):
                    logs[rank] = simulate_rank(experiment, declaration, rank, sent)
            if (len(logs), len(sent)) == known:
                return "its ranks wait for objects of each other"
    except UnsimulatedError as error:
        return str(error)
    return [logs[rank] for rank in sorted(logs)]
