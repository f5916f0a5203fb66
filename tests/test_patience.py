"""What keeps a red test from being chance: examples that repeat, and waits without a clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.conftest import wait_until


def _drawn() -> list[float]:
    seen = []

    @given(st.floats())
    def look(number):
        seen.append(repr(number))

    look()
    return seen


def test_property_tests_at_the_gate_draw_the_same_examples_each_time(request):
    assert request.config.getoption("--hypothesis-profile") is None, "a test of the gate"
    first = _drawn()
    assert len(first) > 50
    assert _drawn() == first


def test_a_wait_sees_what_happened_just_before_its_process_ended():
    """It happens, and the process ends, between two looks."""
    looks, lives = iter([False, True]), iter([True, False])
    assert wait_until(lambda: next(looks), meanwhile=lambda: next(lives)) is True


def test_a_wait_for_what_can_no_longer_happen_fails():
    with pytest.raises(AssertionError, match="no longer happen"):
        wait_until(lambda: False, meanwhile=lambda: False)
