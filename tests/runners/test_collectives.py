"""Which global ranks an operation connects, as the meter saw it in a subgroup."""

import pytest

from runners.traces.measured import Transfer

pytestmark = pytest.mark.ranks
BYTES = 1000  # of each tensor


@pytest.fixture
def ranks(run):
    """The collectives of each rank, by operation."""
    found = run("grouped", "grouped")
    assert found.status == "completed"
    return [{c.operation: c for c in rank.collectives} for rank in found.ranks]


@pytest.mark.parametrize(
    ("operation", "source", "destination", "root_bytes"),
    [
        ("broadcast", 3, None, BYTES),
        ("scatter", 3, None, 2 * BYTES),
        ("gather", None, 3, 2 * BYTES),
        ("reduce", None, 3, BYTES),
    ],
)
def test_the_root_of_a_subgroup_is_named_by_its_global_rank(
    ranks, operation, source, destination, root_bytes
):
    for rank, num_bytes in ((1, BYTES), (3, root_bytes)):
        assert ranks[rank][operation].transfers == [
            Transfer(source=source, destination=destination, count=1, bytes=num_bytes)
        ]


def test_what_is_sent_names_both_global_ranks_in_any_group(ranks):
    sent = Transfer(source=1, destination=3, count=4, bytes=4 * BYTES)
    assert ranks[1]["send"].transfers == [sent]


def test_the_source_of_what_is_received_from_any_rank_stays_unknown(ranks):
    assert ranks[3]["recv"].transfers == [
        Transfer(source=None, destination=3, count=1, bytes=BYTES),
        Transfer(source=1, destination=3, count=3, bytes=3 * BYTES),
    ]


def test_a_whole_gradient_that_fsdp_has_yet_to_reduce_is_a_gradient_and_no_activation(run):
    found = run("sharding", "fsdp_2")
    layer = found.settings["layer_bytes"]
    activations = 9 * found.settings["batch_size"] * 512 * 4  # more than all of them, in fp32
    for rank in found.ranks:
        assert rank.memory.largest.gradients_bytes > found.settings["model_bytes"] / 2 + 0.9 * layer
        assert rank.memory.at_peak.activations_bytes < activations
