"""The committed grid of plans: how files are made, confirmed and refused, and what they hold."""

from __future__ import annotations

import json

import pytest

from runners.planning import grid, processes
from runners.planning.command import main
from runners.planning.question import PlanError
from runners.plans.architecture import Architecture
from runners.plans.model_presets import model_presets
from runners.traces import plan_grid
from runners.traces.files import TraceError, read_grid
from runners.traces.plan_grid import State, as_trace, run_name

TINY = Architecture(
    num_layers=2, hidden_size=32, num_heads=4, num_kv_heads=2, ffn_size=64, vocabulary=64,
    context_length=16, positions="rotary", activation="swiglu", norm="rmsnorm", has_bias=False,
    has_tied_embeddings=False,
)  # fmt: skip
USUAL = State(devices=4, sequence=16)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A grid of a tiny model, made into a folder of its own; returns how to make it."""
    preset = model_presets()["llama-1b"].model_copy(update={"id": "tiny", "architecture": TINY})
    states = (USUAL, USUAL.model_copy(update={"checkpointing": "all"}))
    monkeypatch.setattr(grid, "model_presets", lambda: {"tiny": preset})
    monkeypatch.setattr(grid, "GRIDS", {"tiny": grid.Plan(1, states)})
    monkeypatch.setattr(grid, "STRATEGIES", {4: ("single", "fsdp", "tp-sp")})

    simulated = []
    start = processes._Answers.__init__

    def listed(self, questions, num_workers):
        simulated.extend(questions)
        start(self, questions, num_workers)

    monkeypatch.setattr(processes._Answers, "__init__", listed)

    def made(how=grid.make, **options):
        simulated.clear()
        options = {"folder": tmp_path / "plans", "cache": tmp_path / "cache"} | options
        found = how("tiny", 1, **options)
        return found, list(simulated), tmp_path / "plans" / "tiny.json"

    return made


def test_a_file_holds_every_row_of_every_state_and_what_cannot_be_is_left_out_with_its_reason(tiny):
    found, simulated, path = tiny()
    assert read_grid(path) == found
    assert [(row.strategy, row.state.checkpointing) for row in found.rows] == [
        ("single", "none"), ("fsdp", "none"), ("single", "all"), ("fsdp", "all"),
    ]  # fmt: skip
    assert len(simulated) == 4
    assert {one.reason for one in found.left_out} == {
        "4 tensor-parallel ranks do not divide 2 heads of keys and values"
    }
    plain, checkpointed = (
        next(r for r in found.rows if (r.strategy, r.state.checkpointing) == ("single", which))
        for which in ("none", "all")
    )
    assert checkpointed.ranks[0].peak_bytes < plain.ranks[0].peak_bytes
    assert checkpointed.ranks[0].flops > plain.ranks[0].flops


def test_an_interrupted_grid_goes_on_where_it_was_and_writes_no_half_file(tiny, monkeypatch):
    whole = processes._Answers.__next__
    calls = []

    def interrupted(self):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(self)

    with monkeypatch.context() as patched:
        patched.setattr(processes._Answers, "__next__", interrupted)
        with pytest.raises(KeyboardInterrupt):
            tiny()
    _, simulated, path = tiny()
    assert len(simulated) == 2
    assert read_grid(path)


def test_rows_of_changed_code_that_come_out_equal_are_confirmed_and_others_refused(
    tiny, monkeypatch
):
    first, _, path = tiny()
    before = path.read_text()
    monkeypatch.setattr(plan_grid, "engine_digest", lambda: "another")
    monkeypatch.setattr(processes, "engine_digest", lambda: "another")
    assert plan_grid.code_digest("tiny") != first.code
    again, simulated, _ = tiny(grid.confirm)
    assert len(simulated) == len(first.rows[:: grid.EACH]) == 1
    assert again.code == plan_grid.code_digest("tiny")
    assert [one.code_was for one in again.confirmed] == [first.code]
    assert read_grid(path).rows == first.rows
    rank = first.rows[0].ranks[0]
    other = rank.model_copy(update={"peak_bytes": rank.peak_bytes + 1})
    rows = [first.rows[0].model_copy(update={"ranks": [other]}), *first.rows[1:]]
    path.write_text(before)
    altered = first.model_copy(update={"rows": rows, "values": plan_grid.values_digest(rows)})
    grid.write_rows(path, altered)
    with pytest.raises(PlanError, match="single on 4 came out otherwise; make it again"):
        tiny(grid.confirm)
    assert read_grid(path) == altered


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[: len(text) // 2], "not a whole JSON file"),
        (lambda text: "\n".join([*text.splitlines()[:-4], " ]", "}"]).replace("},\n ]", "}\n ]"),
         "rows: cut or edited"),
        (lambda text: text.replace('"peak_bytes":', '"peak_bytes":1', 1), "rows: cut or edited"),
        (lambda text: text.replace('"torch"', '"torches"', 1), "torch: field required"),
        (lambda text: text.replace('"tiny"', '"large"', 1), "preset: is 'large'"),
    ],
)  # fmt: skip
def test_a_cut_or_edited_file_is_refused_in_one_line_that_names_it(tiny, change, said):
    _, _, path = tiny()
    path.write_text(change(path.read_text()))
    with pytest.raises(TraceError) as refused:
        read_grid(path)
    assert said in str(refused.value)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


def test_another_engine_or_another_architecture_makes_a_grid_stale(monkeypatch):
    names = {path.name for path in plan_grid.engine_files()}
    assert {"one_rank.py", "transformer.py", "stand_ins.py", "caching_allocator.py"} <= names
    assert not {"command.py", "table.py", "processes.py", "grid.py", "suite.py"} & names
    before = plan_grid.code_digest("llama-8b")
    assert before != plan_grid.code_digest("llama-70b")
    monkeypatch.setattr(plan_grid, "engine_digest", lambda: "another")
    assert plan_grid.code_digest("llama-8b") != before


def test_a_name_says_where_a_state_is_not_the_usual_one():
    other = State(devices=64, precision="fp32", optimizer="sgd", sequence=8192, checkpointing="all")
    assert run_name("fsdp.8+tp-sp.8", State(devices=64, sequence=4096), 4096) == (
        "fsdp_8_tp_sp_8_on_64"
    )
    assert run_name("ddp", other, 4096) == "ddp_on_64_fp32_sgd_sequence_8192_checkpointed"


def test_a_grid_of_no_preset_is_one_line(capsys):
    assert main(["gpt2-2b", "--grid"]) == 2
    assert capsys.readouterr().err.startswith(
        "python -m runners plan: no grid of 'gpt2-2b'; there are: gpt2-124m"
    )


# --- what is committed


COMMITTED = sorted(grid.PLANS.glob("*.json"))


@pytest.fixture(params=COMMITTED, ids=lambda path: path.stem)
def committed(request):
    return read_grid(request.param)


def rows_by(found):
    return {(row.strategy, row.state): row for row in found.rows}


def test_presets_with_a_grid_have_its_file():
    assert {path.stem for path in COMMITTED} == set(grid.GRIDS)


def test_a_file_is_fresh_and_has_every_row_that_is_asked_for(committed):
    assert not plan_grid.is_stale(as_trace(committed))
    asked = {
        (q.strategy.name, state) for state, q in grid.questions(model_presets()[committed.preset])
    }
    left_out = {(one.strategy, one.state) for one in committed.left_out}
    assert set(rows_by(committed)) | left_out == asked
    names = [run_name(r.strategy, r.state, committed.base_sequence) for r in committed.rows]
    assert len(set(names)) == len(names)


EACH = {
    ("bf16-mixed", "adam"): 16, ("autocast", "adam"): 16, ("fp32", "adam"): 16,
    ("bf16-mixed", "sgd"): 8, ("bf16-mixed", "adam8bit"): 10 + 2 * 4 / 256,
}  # fmt: skip


def test_between_steps_ranks_hold_the_bytes_a_parameter_that_the_closed_form_says(committed):
    """A copy of the parameters, gradients, fp32 masters and moments; FSDP has a share of all."""
    for row in committed.rows:
        each, state = EACH[row.state.precision, row.state.optimizer], row.state
        if row.strategy in ("single", "fsdp", "fsdp-keep"):
            ranks = 1 if row.strategy == "single" else state.devices
            exact = each * committed.num_parameters / ranks
            held = row.ranks[0].between_steps_bytes
            assert exact * 0.999 <= held <= exact * 1.06, (row.strategy, state)


def test_ranks_that_divide_a_batch_divide_its_operations(committed):
    for (strategy, state), row in rows_by(committed).items():
        if strategy == "ddp" and ("single", state) in rows_by(committed):
            whole = rows_by(committed)["single", state].ranks[0].flops
            assert row.ranks[0].flops * state.devices == whole


def test_the_operations_of_a_token_are_six_for_each_parameter_and_those_of_attention(committed):
    """Products of layers and logits: 2 forward and 4 backward; attention is counted unmasked."""
    shape = committed.architecture
    if shape["num_experts"] > 1:
        pytest.skip("a token passes through some experts only")
    embedding = shape["vocabulary"] * shape["hidden_size"]
    positions = shape["context_length"] * shape["hidden_size"]
    looked_up = (0 if shape["has_tied_embeddings"] else embedding) + (
        positions if shape["positions"] == "learned" else 0
    )
    for row in committed.rows:
        if row.strategy == "fsdp" and row.state.checkpointing == "none":
            tokens = committed.microbatch * row.state.sequence
            products = 6 * (committed.num_parameters - looked_up) * tokens
            attention = 4 * 3.5 * shape["num_layers"] * shape["hidden_size"] * row.state.sequence
            closed_form = products + attention * tokens
            assert row.ranks[0].flops == pytest.approx(closed_form, rel=0.03), row.state


def test_ddp_sums_every_gradient_once_and_reserves_at_least_what_it_allocates(committed):
    for row in committed.rows:
        for rank in row.ranks:
            assert rank.peak_bytes <= rank.allocated_bytes <= rank.reserved_bytes
            assert sum(rank.at_peak.model_dump().values()) == rank.peak_bytes
        if row.strategy == "ddp":
            width = 2 if row.state.precision == "bf16-mixed" else 4
            # Beside it DDP broadcasts buffers: the angles of rotary positions.
            (call,) = (one for one in row.ranks[0].calls if one.operation == "all_reduce")
            assert call.axis == "data"
            assert call.bytes == width * committed.num_parameters


def test_a_committed_row_comes_out_the_same_today():
    found = read_grid(grid.PLANS / "gpt2-124m.json")
    name = run_name("single", found.rows[0].state, found.base_sequence)
    again = grid.again("plan_gpt2_124m", [name])
    assert again[name].ranks == as_trace(found).runs[name].ranks


def test_files_are_as_small_as_a_page_may_load():
    for path in COMMITTED:
        assert len(path.read_bytes()) < 200_000, path
        assert json.loads(path.read_text())["preset"] == path.stem
