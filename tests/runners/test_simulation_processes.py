"""Simulations in processes of their own, which no accelerator may disturb."""

import os
from functools import partial

from runners.simulate.processes import Job, results


def test_a_simulation_sees_no_accelerator_and_the_command_still_does(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    jobs = [Job(partial(os.getenv, "CUDA_VISIBLE_DEVICES"), str)]
    assert results(jobs, 1, "looked") == [""]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
