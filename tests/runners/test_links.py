"""Links of ranks: what passes them, what shapes them, and that none is left behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from proofbook.runners.core.declared.experiment import find
from proofbook.runners.core.measuring import measure
from proofbook.runners.core.system import links, processes

REFUSAL = "RTNETLINK answers: Operation not permitted"
NUM_BYTES = 4 << 20  # what the tests' own experiment reduces
can_link = pytest.mark.skipif(links.cannot_link() is not None, reason=str(links.cannot_link()))


@pytest.fixture
def asked_anew():
    """Whether this machine can link is asked once; here it is asked again, and again after."""
    links.cannot_link.cache_clear()
    yield
    links.cannot_link.cache_clear()


@can_link
def test_a_shaped_link_is_counted_without_headers_and_lets_no_more_through_than_its_rate(run):
    slow = run("linked", "slow")
    for rank in slow.ranks:
        counted = rank.measures
        assert counted["sent_payload_bytes"] == pytest.approx(NUM_BYTES, rel=0.001)
        # Frames that only resolve addresses are smaller than the headers that a count takes off.
        assert counted["idle_payload_bytes"] <= 0 < counted["barrier_payload_bytes"]
    (seconds,) = slow.timing.measures["all_reduce"].samples
    # A late rank finds the other's half here already; the sum of its own half is yet to come.
    assert seconds >= (NUM_BYTES / 2 - 2 * links.MIN_BURST_BYTES) * 8 / 100_000_000


@can_link
def test_each_rank_lives_in_a_network_of_its_own(run):
    ranks = run("linked", "free").ranks
    spaces = {str(r.measures["namespace"]) for r in ranks}
    assert len(spaces | {str(Path("/proc/self/ns/net").readlink())}) == 3
    assert [r.measures["interfaces"] for r in ranks] == [["link0"]] * 2


@pytest.mark.usefixtures("asked_anew")
def test_where_the_kernel_refuses_a_run_is_skipped_with_what_it_said(
    monkeypatch, tmp_path, launcher
):
    for name in ("ip", "tc"):
        program = tmp_path / name
        program.write_text(
            "#!/bin/sh\necho 'RTNETLINK answers: Operation not permitted' >&2\nexit 2\n"
        )
        program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    skipped = measure.measure_run(launcher, find("linked"), "free")
    assert skipped.status == "skipped"
    assert skipped.reason == f"`ip` cannot make links here: {REFUSAL}"
    assert not skipped.is_surprise


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_namespace_s_owner_is_a_process_with_its_id_and_its_start():
    """An id is given again, and a process that ended keeps its id until its parent asks."""
    with subprocess.Popen(["sleep", "60"]) as process:
        start = processes.start_ticks(process.pid)
        assert processes.lives(process.pid, start)
        assert not processes.lives(process.pid, start + 1)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not processes.lives(process.pid, start)
