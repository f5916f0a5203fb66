"""The seconds of a pass: its own, without what the launcher loads for all passes."""

import time

import pytest

from runners.measuring import launch
from runners.measuring.forkserver import ForkServer
from runners.measuring.launch import Launcher
from runners.plans.experiment import find

LOADING_SECONDS = 2.0


class _SlowServer(ForkServer):
    """One whose torch takes longer to load."""

    def wait_until_ready(self):
        if not self._is_ready:
            time.sleep(LOADING_SECONDS)
        super().wait_until_ready()


@pytest.mark.ranks
def test_the_seconds_of_the_first_pass_hold_no_loading_of_torch(launcher, monkeypatch):
    monkeypatch.setattr(launch, "ForkServer", _SlowServer)
    with Launcher("cpu") as cold:
        before = time.monotonic()
        result = cold.run_pass(find("hidden"), "honest", "metered")
        whole = time.monotonic() - before
    assert result.root_cause is None
    assert whole - result.seconds >= LOADING_SECONDS
