"""Heartbeats as the launcher hears them, whatever phases a rank goes through."""

from __future__ import annotations

from pathlib import Path

from runners.ranks.heartbeat import Beat, Heart, listen


def test_a_long_name_is_cut_and_a_file_that_is_not_there_is_the_start(tmp_path: Path) -> None:
    Heart(tmp_path / "heart").beat("ü" * 40, 3)
    heard = listen(tmp_path / "heart")
    assert heard.phase == "ü" * 20
    assert listen(tmp_path / "none") == Beat(0, -1, "start")
