"""What a log shows while experiments run, where nobody looks on."""

import pytest

from proofbook.runners.core.ranks.heartbeat import Beat
from proofbook.runners.session.progress import Progress
from proofbook.runners.system import progress_lines


@pytest.mark.parametrize(("seconds", "num_lines"), [(0.0, 1), (3600.0, 0)])
def test_a_pass_that_takes_long_writes_a_line_now_and_then(monkeypatch, capsys, seconds, num_lines):
    monkeypatch.setattr(progress_lines, "WORD_SECONDS", seconds)
    watch = Progress().watcher("ddp", "timed")
    watch([Beat(3, 2, "forward")])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == num_lines
    assert all("ddp · timed" in line and "rank 0 forward (step 2)" in line for line in lines)
