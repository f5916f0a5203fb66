"""The judge as a plugin of pytest, which loads it where a wheel of this project is installed.

    def test_the_gradient_is_sent_once(judge):
        ranks = judge(averaged, 4)
        ranks.assert_sends({"all_reduce": 16})

It loads torch when a test first asks for the fixture.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from proofbook.runners.judging.judged import JudgedProgram


@pytest.fixture(scope="session")
def judge() -> type[JudgedProgram]:
    """`judge(program, world_size, *arguments)` runs a program on ranks: a `JudgedProgram`."""
    from proofbook.runners.judging.judged import JudgedProgram

    return JudgedProgram
