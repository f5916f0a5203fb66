"""Published measurements: whole, consistent, and borne out by what can be computed of them."""

from statistics import median

import pytest

from proofbook.companions.planner.answers.published import (
    MOST_ERROR,
    PEAKS,
    is_stale,
    published_bytes_of,
)
from proofbook.companions.planner.simulated.published_peaks import rows_by_run, workspace_bytes
from proofbook.runners.traces.files import read

MIB = 1 << 20
HELD = {
    row.id: (row, one.bytes)
    for row in rows_by_run().values()
    for one in row.measured
    if one.moment == "between_steps"
}
LOW, WIDE = 2, 4  # bytes of a value
# What the loader of batches keeps beside state and workspaces: at most the tensors of a few
# microbatches; Megatron's own layers keep more. Interleaved ranks also keep some of what they
# passed between stages.
PASSED = 3  # of these tensors for each stage, at most
BESIDE = {"transformer_engine": 20 * MIB, "megatron_local": 64 * MIB}


def parameters_of_last_rank(row):
    """Of the last pipeline stage and one tensor-parallel rank: what Megatron shards is divided."""
    model, axes = row.architecture, row.strategy
    tensor = axes.tensor
    shares = axes.layers_of_stages or [model.num_layers // axes.pipeline]
    # Norms, and the biases that follow a reduction, are on every rank.
    kept = 2 * model.norm_parameters + (2 * model.hidden_size if model.has_bias else 0)
    if model.has_query_key_norm:
        kept += 4 * model.head_size
    layer = kept + (model.layer_parameters - kept) // tensor
    matrix = row.vocabulary * model.hidden_size // tensor
    if axes.pipeline > 1:
        return shares[-1] * layer + model.norm_parameters + matrix
    num_matrices = 1 if model.has_tied_embeddings else 2
    positions = model.context_length * model.hidden_size if model.positions == "learned" else 0
    return shares[-1] * layer + model.norm_parameters + positions + num_matrices * matrix


def state_bytes(row):
    """Parameters, gradients, the master copy and two moments, sharded as the row says."""
    axes, parameters = row.strategy, parameters_of_last_rank(row)
    ranks = axes.data * axes.context
    model = parameters * (LOW + (WIDE if row.has_wide_gradients else LOW))
    optimizer = parameters * 3 * WIDE
    if axes.sharding == "none":
        return model + optimizer
    if axes.sharding == "zero1":
        return model + optimizer / ranks
    return (model + optimizer) / ranks


@pytest.mark.parametrize("name", HELD)
def test_what_is_allocated_between_steps_is_the_state_and_the_libraries_workspaces(name):
    """So the vocabulary, the widths, the axes and the precision of a row are those that ran."""
    row, held = HELD[name]
    beside = held - state_bytes(row)
    most = workspace_bytes(row) + BESIDE[row.framework]
    if row.strategy.chunks > 1:
        passed = row.microbatch * row.sequence * row.architecture.hidden_size * LOW
        most += PASSED * row.strategy.chunks * passed
    assert workspace_bytes(row) <= beside <= most


# --- their committed simulations, against the rows


@pytest.fixture(scope="module")
def committed():
    return read(PEAKS.path)


def test_every_published_peak_is_there_as_published_and_none_is_stale(committed):
    assert not is_stale(committed)
    stated = {
        (name, one.kind, one.bytes)
        for name, row in rows_by_run().items()
        for one in row.measured
        if one.moment == "peak"
    }
    assert stated == {
        (name, *peak) for name, row in committed.runs.items() for peak in published_bytes_of(row)
    }
    for name, row in rows_by_run().items():
        assert row.source.url == committed.runs[name].settings["url"]


def errors(committed, *kinds):
    return {
        (name, kind): row.ranks[0].measures[f"{kind}_bytes"] / measured - 1
        for name, row in committed.runs.items()
        for kind, measured in published_bytes_of(row)
        if kind in kinds
    }


def test_medians_are_as_small_as_the_plan_promises(committed):
    for kinds, most in ((("allocated", "active"), 0.015), (("reserved",), 0.04)):
        assert median(map(abs, errors(committed, *kinds).values())) <= most


def test_each_miss_and_nothing_else_has_an_explanation(committed):
    """A term that a plan can add explains its row to 6 %."""
    missing = {
        key
        for key, error in errors(committed, "allocated", "active", "reserved").items()
        if abs(error) > MOST_ERROR
    }
    explained = {
        (name, kind): (row.ranks[0].measures.get(f"with_term_{kind}_bytes", measured), measured)
        for name, row in committed.runs.items()
        for kind, measured in published_bytes_of(row)
        if f"explained_{kind}" in row.settings
    }
    assert missing == explained.keys()
    assert missing
    for key, (with_term, measured) in explained.items():
        assert with_term == pytest.approx(measured, rel=0.06), key
