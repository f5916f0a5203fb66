"""Functions of Python as JavaScript: what has no counterpart there."""

import pytest

from proofbook.companions.planner.pages import javascript
from proofbook.companions.planner.pages.javascript import script_of


def _waits(number):
    while number > 1:
        number /= 2
    return number


def test_a_construct_without_a_counterpart_is_refused_at_its_line(monkeypatch):
    monkeypatch.setattr(javascript, "_OURS", __name__)
    line = _waits.__code__.co_firstlineno + 1
    with pytest.raises(ValueError, match=rf"test_javascript.py:{line}: no page computes 'while"):
        script_of("law", [_waits])
