"""The committed grid of plans: how files are made, confirmed and refused, and what they hold."""

import pytest

from proofbook.companions.planner.answers import plan_grid, published
from proofbook.companions.planner.answers.architecture import model_presets
from proofbook.companions.planner.answers.plan_grid import as_trace, read_grid
from proofbook.companions.planner.simulated import grid
from proofbook.companions.planner.simulated.cache import answers
from proofbook.runners.__main__ import main
from proofbook.runners.system.book import ROOT
from proofbook.runners.traces.digest import covered_files
from tests.runners.questions import LLAMA, changed

TINY = changed(LLAMA, hidden_size=32, num_kv_heads=2, ffn_size=64, vocabulary=64, context_length=16)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """A grid of a tiny model, made into a folder of its own; returns how to make it."""
    preset = model_presets()["llama-1b"].model_copy(update={"id": "tiny", "architecture": TINY})
    monkeypatch.setattr(grid, "model_presets", lambda: {"tiny": preset})
    monkeypatch.setattr(grid, "GRIDS", {"tiny": grid.GridSpec(1, 16, ({"devices": 4},))})
    monkeypatch.setattr(grid, "STRATEGIES", {4: ("single", "fsdp", "tp-sp")})
    monkeypatch.setattr(grid, "PLANS", tmp_path / "plans")
    simulated, known = [], {}

    def once(questions, num_workers):
        """Each question is simulated once."""
        keys = [one.model_dump_json() for one in questions]
        new = {key: one for key, one in zip(keys, questions, strict=True) if key not in known}
        known.update(zip(new, answers([*new.values()], num_workers), strict=True))
        simulated.extend(keys)
        return [known[key] for key in keys]

    monkeypatch.setattr(grid, "answers", once)

    def checked(*, is_writing):
        simulated.clear()
        return grid.check("tiny", is_writing=is_writing), len(simulated)

    path = tmp_path / "plans" / "tiny.json"
    return checked, path


def test_a_file_holds_every_row_and_other_code_confirms_it_or_makes_it_anew(tiny, monkeypatch):
    checked, path = tiny
    assert checked(is_writing=False) == ("differs; --write makes it anew", 0)
    assert checked(is_writing=True) == ("written", 4)
    found = read_grid(path)
    assert [(row.strategy, row.state.checkpointing) for row in found.rows] == [
        ("single", "none"), ("fsdp", "none"), ("single", "all"), ("fsdp", "all"),
    ]  # fmt: skip
    plain, checkpointed = found.rows[0], found.rows[2]
    assert checkpointed.ranks[0].peak_bytes < plain.ranks[0].peak_bytes
    assert checkpointed.ranks[0].flops > plain.ranks[0].flops
    assert checked(is_writing=False) == (grid.SAME, len(found.rows[:: grid.EACH]))

    monkeypatch.setattr(plan_grid, "engine_digest", lambda: "another")
    assert plan_grid.code_digest("plan_tiny") != found.code
    assert checked(is_writing=False) == ("differs; --write makes it anew", 1)
    assert checked(is_writing=True) == ("written", 1)
    again = read_grid(path)
    assert (again.code, again.rows) == (plan_grid.code_digest("plan_tiny"), found.rows)

    rank = found.rows[0].ranks[0]
    other = rank.model_copy(update={"peak_bytes": rank.peak_bytes + 1})
    rows = [found.rows[0].model_copy(update={"ranks": [other]}), *found.rows[1:]]
    grid.write(path, found.model_copy(update={"rows": rows}))
    assert checked(is_writing=False) == ("differs; --write makes it anew", 1)
    assert read_grid(path).rows == rows
    assert checked(is_writing=True) == ("written", 5)
    assert [row.ranks for row in read_grid(path).rows] == [row.ranks for row in found.rows]
    monkeypatch.setattr(grid, "STRATEGIES", {4: ("single", "fsdp", "zero1")})
    assert checked(is_writing=False) == ("differs; --write makes it anew", 1)
    assert checked(is_writing=True) == ("written", 3)  # one again, and the two that are missing
    assert [row.strategy for row in read_grid(path).rows] == 2 * ["single", "fsdp", "zero1"]


def test_another_engine_or_another_architecture_makes_a_grid_stale(monkeypatch):
    names = {path.name for path in covered_files(ROOT / plan_grid._ENTRY)}
    assert {"one_rank.py", "transformer.py", "stand_ins.py", "steps.py"} <= names
    assert not {"command.py", "answer.py", "law_of_time.py", "cache.py", "grid.py"} & names
    before = plan_grid.code_digest("plan_llama_8b")
    assert before != plan_grid.code_digest("plan_llama_70b")
    monkeypatch.setattr(plan_grid, "engine_digest", lambda: "another")
    assert plan_grid.code_digest("plan_llama_8b") != before


# --- what is committed


COMMITTED = sorted(grid.PLANS.glob("*.json"))


@pytest.fixture(params=COMMITTED, ids=lambda path: path.stem)
def committed(request):
    return read_grid(request.param)


def rows_by(found):
    return {(row.strategy, row.state): row for row in found.rows}


def test_a_file_is_fresh_and_has_every_row_that_is_asked_for(committed):
    trace = as_trace(committed)
    assert not published.is_stale(trace)
    asked = dict(grid.questions(model_presets()[committed.preset]))
    assert rows_by(committed).keys() == asked.keys()
    rows = plan_grid.named_rows(committed)
    assert len(rows) == len(committed.rows)
    for name, row in rows.items():
        assert [one.rank for one in trace.runs[name].ranks] == [one.rank for one in row.ranks]


# Bytes of the optimizer for each parameter in bf16, with its copy.
STATE = {"adam": 12, "adam8bit": 6 + 2 * 4 / 256, "sgd": 4}
HELD = {
    "single": lambda state, _: 4 + state,
    "ddp": lambda state, _: 6 + state,  # and buckets
    "ddp-view": lambda state, _: 4 + state,
    "zero1": lambda state, ranks: 4 + state / ranks,
    "fsdp": lambda state, ranks: (4 + state) / ranks,
    "fsdp-keep": lambda state, ranks: (4 + state) / ranks,
    "tp-sp": lambda state, ranks: (4 + state) / ranks,
    "hsdp": lambda state, _: (4 + state) / 8,  # ranks of a node
}


def test_a_rank_holds_its_share_between_steps(committed):
    """What it sends is compared with closed forms in `test_closed_forms.py`."""
    num = committed.num_parameters
    for row in committed.rows:
        for rank in row.ranks:
            assert rank.peak_bytes <= rank.allocated_bytes <= rank.reserved_bytes
            assert sum(rank.at_peak.model_dump().values()) == rank.peak_bytes
        name = row.strategy.partition(".")[0] if "+" not in row.strategy else row.strategy
        if name in HELD:
            exact = HELD[name](STATE[row.state.optimizer], row.state.devices) * num
            held = row.ranks[0].between_steps_bytes
            assert exact <= held <= 1.08 * exact, (row.strategy, row.state)


def test_a_committed_row_comes_out_the_same_today(capsys):
    rows = plan_grid.named_rows(read_grid(grid.PLANS / "gpt2-124m.json"))
    name = next(name for name in rows if name.startswith("fsdp"))
    fields = ("memory.peak_bytes", "measures.reserved_bytes", "measures.sent_bytes")
    assert main(["reproduce", *(f"plan_gpt2_124m.{name}.ranks[0].{one}" for one in fields)]) == 0
    assert capsys.readouterr().out.endswith("3 of 3 are the same\n")
