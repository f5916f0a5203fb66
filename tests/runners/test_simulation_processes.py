"""Simulations in processes of their own, which no accelerator may disturb."""

import os
import time

from runners.simulate.processes import results


def test_results_are_in_the_order_of_the_jobs():
    assert results(_slept, [0.3, 0.0, 0.1], max, 3, "slept") == [0.3, 0.0, 0.1]


def _slept(seconds):
    time.sleep(seconds)
    return seconds


def test_a_simulation_sees_no_accelerator_and_the_command_still_does(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert results(os.getenv, ["CUDA_VISIBLE_DEVICES"], max, 1, "looked") == [""]
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "0"
