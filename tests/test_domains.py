"""Laws say where they hold: none is false on the committed machines, one of which has a GPU."""

from pathlib import Path

import pytest

import proofbook.generator.items.kinds  # noqa: F401 completes the model of a quiz
from proofbook.generator.content.reading import load
from proofbook.generator.values.evaluation import Evidence

# What these machines measured before a change of the meter, which then counted it otherwise.
MEASURED_BEFORE = ("hy-hsdp-gradients",)  # whole gradients of FSDP were activations


@pytest.mark.parametrize("machine", ["cpu-1c-ea2ab3", "1x-h200-af8bca"])
def test_no_law_is_false_on_another_committed_machine(machine):
    """Of the reference machine, `test_committed.py` asks more."""
    book = load(Path("content"), machine, is_stale=lambda _: False)
    found = [one for one in Evidence(book).judged_claims.values() if one.claim.kind == "law"]
    assert sum(one.verdict == "holds" for one in found) > 20
    false = {one.claim.id for one in found if one.verdict == "does_not_hold"}
    assert false.difference(MEASURED_BEFORE) == set()
