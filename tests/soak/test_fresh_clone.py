"""A newcomer's first `make site`, at the sizes that the book declares; the gate shortens them."""

import pytest

from tests.clones import cloned, pasted

pytestmark = pytest.mark.soak


def test_a_fresh_clone_measures_every_experiment_without_a_surprise(tmp_path):
    done = pasted("make site", cloned(tmp_path / "clone"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert ", 0 surprises" in done.stdout
