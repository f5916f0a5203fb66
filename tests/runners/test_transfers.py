"""The fit of α and β, against numpy's."""

from __future__ import annotations

import numpy as np
import pytest

from runners.training.transfers import fit


def test_a_fit_is_numpy_s_with_relative_errors() -> None:
    sizes = np.array([3e3, 5e4, 8e5, 3e6])
    seconds = np.array([5.1e-4, 4.4e-4, 1.3e-3, 3.1e-3])
    slope, start = np.polyfit(sizes, seconds, 1, w=1 / seconds)
    found = fit(list(sizes), list(seconds))
    assert found.alpha == pytest.approx(start)
    assert found.beta == pytest.approx(slope)
