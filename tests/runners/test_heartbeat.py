"""Heartbeats as the launcher hears them, whatever phases a rank goes through."""

from __future__ import annotations

from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runners.ranks.heartbeat import Beat, Heart, listen

PHASES = st.integers(0, 99).map("phase {}".format)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=st.lists(st.tuples(PHASES, st.integers(-1, 10**12)), max_size=300))
def test_the_last_beat_is_heard(said: list[tuple[str, int]], tmp_path: Path) -> None:
    """Also where a rank names more phases than the file has places for."""
    heart = Heart(tmp_path / "heart")
    assert listen(tmp_path / "heart") == Beat(0, -1, "start")
    for count, (phase, step) in enumerate(said, 1):
        heart.beat(phase, step)
        assert listen(tmp_path / "heart") == Beat(count, step, phase)


def test_a_long_name_is_cut_and_a_file_that_is_not_there_is_the_start(tmp_path: Path) -> None:
    Heart(tmp_path / "heart").beat("ü" * 40, 3)
    heard = listen(tmp_path / "heart")
    assert heard.phase == "ü" * 20
    assert listen(tmp_path / "none") == Beat(0, -1, "start")
