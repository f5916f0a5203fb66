"""What a log shows while experiments run, where nobody looks on."""

from __future__ import annotations

import io

import pytest

from runners.measuring.progress import Progress
from runners.ranks.heartbeat import Beat
from runners.system import count


@pytest.mark.parametrize(("seconds", "num_lines"), [(0.0, 1), (3600.0, 0)])
def test_a_pass_that_takes_long_writes_a_line_now_and_then(monkeypatch, seconds, num_lines):
    monkeypatch.setattr(count, "WORD_SECONDS", seconds)
    stream = io.StringIO()
    watch = Progress(stream).watcher("ddp", "timed")
    watch([Beat(3, 2, "forward")])
    lines = stream.getvalue().splitlines()
    assert len(lines) == num_lines
    assert all("ddp · timed" in line and "rank 0 forward (step 2)" in line for line in lines)
