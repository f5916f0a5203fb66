"""The programs that pages show, and the differences that wrong ones are stored as."""

import re
import runpy
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils._python_dispatch import _disable_current_modes

from proofbook.runners.core.declared.experiment import find
from proofbook.runners.system.errors import FixableError
from proofbook.runners.traces.differences import MisfitError, changed, wrong_programs
from proofbook.runners.traces.programs import programs_matching, read
from tests.judged import judged
from tests.processes import ROOT

CONTENT = ROOT / "content"


def losses(run):
    return re.findall(r"loss (?:on the same samples )?([\d.]+)", "\n".join(run.printed))


def test_averaged_gradients_give_what_one_process_computes_on_all_samples(run):
    torch.manual_seed(0)
    model = nn.Linear(20, 1)
    teacher, seen = torch.randn(20, 1), torch.randn(200, 20)
    shards = []
    for rank in range(2):
        torch.manual_seed(1 + rank)
        samples = torch.randn(200, 20)
        shards.append((samples, samples @ teacher + torch.randn(200, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for start in range(0, 200, 20):
        batch = slice(start, start + 20)
        samples = torch.cat([r[batch] for r, _ in shards])
        targets = torch.cat([t[batch] for _, t in shards])
        optimizer.zero_grad()
        nn.functional.mse_loss(model(samples), targets).backward()
        optimizer.step()
    expected = nn.functional.mse_loss(model(seen), seen @ teacher).item()
    right = run("listings", "unsynchronized_right")
    assert [float(x) for x in losses(right)] == [pytest.approx(expected, abs=2e-4)] * 2
    assert len({r.parameter_digest for r in right.ranks}) == 1
    assert len(set(losses(run("listings", "unsynchronized_wrong")))) == 2


def test_ranks_that_skip_different_units_compute_with_rows_of_both(run):
    torch.manual_seed(0)
    blocks = [nn.Linear(64, 64) for _ in range(4)]
    rows = [(b.weight.detach().chunk(2), b.bias.detach().chunk(2)) for b in blocks]
    expected = {}
    for rank, skipped in enumerate((0, 1)):
        torch.manual_seed(1 + rank)
        right = wrong = torch.randn(8, 64)
        kept = [block for block in range(4) if block != skipped]
        other = [block for block in range(4) if block != 1 - skipped]
        for mine, theirs in zip(kept, other, strict=True):  # the calls that meet
            first, last = (mine, theirs) if rank == 0 else (theirs, mine)
            weight, bias = (
                torch.cat([a[0], b[1]]) for a, b in zip(rows[first], rows[last], strict=True)
            )
            wrong = wrong + (wrong @ weight.T + bias).tanh()
            right = right + blocks[mine](right).detach().tanh()
        expected[f"rank_{rank}_difference"] = (wrong - right).abs().max().item()
    (report,) = run("listings", "skipped_units_wrong").prediction
    assert report.facts == pytest.approx(expected, rel=1e-4)
    assert min(expected.values()) > 1


def test_no_program_sends_or_receives_outside_a_batch_without_waiting():
    """On NCCL, such a call may wait for a later one of its own rank."""
    unbatched = re.compile(r"\bdist\.i(?:send|recv)\(")
    programs = [*CONTENT.glob("topics/*/code/*.py"), *CONTENT.glob("code/*.py")]
    assert [path.name for path in programs if unbatched.search(path.read_text())] == []
    assert sum("batch_isend_irecv" in path.read_text() for path in programs) > 1


# --- what a program says about itself


def written(tmp_path, body, name="one.py"):
    path = tmp_path / name
    path.write_text(body)
    return path


HEAD = '"""A program.\n\ntorchrun --nproc-per-node 3 one.py\n"""\n'


def test_what_a_program_declares_is_worked_out_from_its_constants(tmp_path):
    body = (
        "WIDTH, DEPTH = 10, 3\nNAME = 'x'\n\n# layer_bytes: 4 * (WIDTH * WIDTH + WIDTH)\n"
        "# budget_bytes: layer_bytes * DEPTH // 2\n# expected: out_of_memory\n# A remark: no.\n"
    )
    program = read(written(tmp_path, HEAD + body))
    assert program.settings == {"width": 10, "depth": 3, "name": "x", "layer_bytes": 440}
    assert (program.budget_bytes, program.expected) == (660, "out_of_memory")


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import torch\n", r"one\.py:1: the docstring must hold the command that runs it"),
        (HEAD + "# expected: success\n", r"one\.py:5: expected: 'success'; there are completed, "),
        (HEAD + "# expected: died\n", r"one\.py:5: expected: 'died'; there are completed, "),
        (HEAD + "# budget_bytes: 4 * WIDTH\n", r"one\.py:5: budget_bytes: name 'WIDTH' is not"),
        (HEAD + "# size: open('x')\n", r"one\.py:5: size: may hold numbers"),
        (HEAD + "# budget_bytes: '300'\n", r"one\.py:5: budget_bytes: '300' is no number"),
        (HEAD + "def\n", r"one\.py:5: invalid syntax$"),
    ],
)
def test_a_program_that_does_not_say_how_to_run_it_is_located(tmp_path, body, said):
    with pytest.raises(FixableError, match=said):
        read(written(tmp_path, body))


def test_two_programs_of_one_name_are_refused(tmp_path):
    for topic in ("a", "b"):
        (tmp_path / topic).mkdir()
        written(tmp_path / topic, HEAD)
    with pytest.raises(FixableError, match=r"b/one\.py: .*a/one\.py has this name too"):
        programs_matching(tmp_path, "*/*.py")


def test_every_program_of_the_book_has_its_run_and_a_budget_a_second_one(root):
    programs = sorted(root.glob("content/topics/*/code/*.py"))
    runs = find("listings").runs
    assert len(programs) > 5
    for path in programs:
        declaration = runs[path.stem]
        assert declaration.settings.program == path.relative_to(root).as_posix()
        assert (declaration.budget_bytes is not None) == (f"{path.stem}_unlimited" in runs)


PROGRAM = """def total(values):
    result = 0
    for value in values:
        result += value

    return result


def mean(values):
    result = total(values)

    return result / len(values)
"""
STATED = """programs:
  one:
    mistake: A.
    fails: same
    changes: |
      -def mean(values):
      +def mean(lines):
"""


def test_lines_stay_go_and_come_in_and_a_change_may_span_lines():
    changes = """@    for value in values:
-        result += value
+        result -= value

-def mean(values):
-...
-    return result / len(values)
+mean = total
"""
    first, _, _ = PROGRAM.partition("\n\n\n")
    expected = f"{first}\n\n\nmean = total\n".replace("+= value", "-= value")
    assert changed(PROGRAM, changes) == expected
    assert changed(PROGRAM, "-\n-\n-def mean(values):\n-...") == f"{first}\n"
    assert changed(PROGRAM, "") == PROGRAM


@pytest.mark.parametrize(
    ("changes", "line", "says"),
    [
        ("-    result = 1\n", 0, "'result = 1' is no line of the program; copy it from there"),
        ("@def mean(values):\n-  result = total(values)\n", 1, "'result = total(values)' is no"),
        ("-    return result\n-def mean(values):\n", 0, "but not together"),
        ("-        result += value\n-...\n-def total(values):\n", 0, "but not together"),
        ("-    result = 0\n\n@\n+    pass\n", 2, "'' stands in lines 5, 7, 8, 11 of the program"),
        ("+    result = 1\n", 0, "mark lines with @ or -, and behind them those to add with +"),
        ("-    result = 0\n     result = 1\n", 1, "mark lines with"),
        ("-    result = 0\n\n-    result = 0\n", 2, "another change has these lines"),
    ],
)
def test_a_change_that_misfits_is_told_with_its_line(changes, line, says):
    with pytest.raises(MisfitError) as told:
        changed(PROGRAM, changes)
    assert told.value.line == line
    assert says in str(told.value)


def test_a_command_tells_where_a_wrong_program_misfits(tmp_path):
    (tmp_path / "solved.py").write_text(f'"""Right."""\n\n{PROGRAM}')
    file = tmp_path / "wrong.yml"
    file.write_text(f"{STATED}      -    result = 1\n")
    (program,) = wrong_programs(file)
    with pytest.raises(FixableError, match=r"wrong.yml:8:7: 'result = 1' is no line of the"):
        _ = program.text
    file.write_text(f"{STATED}    ends: hung\n")
    (program,) = wrong_programs(file)
    assert program.text.startswith('# fails: same\n# ends: hung\n"""A."""\n\ndef total')
    assert program.path == tmp_path / "wrong" / "one.py"
    for text in (
        "",
        "programs: [1]",
        "programs: {one: {mistake: A.}}",
        STATED.replace("fails", "f"),
    ):
        file.write_text(text)
        with pytest.raises(FixableError, match=r"wrong.yml: it is not as such a file is written"):
            wrong_programs(file)


LINES = ROOT / "content/code/hugging_face.py"
TIED = ["2.weight"]


def built(seed: int) -> nn.Module:
    """An embedding, a layer, and a head that shares the weight of the embedding."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Embedding(7, 5), nn.Linear(5, 5), nn.Linear(5, 7, bias=False))
    model[2].weight = model[0].weight
    return model


def reshaped(_, folder: Path) -> dict[str, torch.Tensor]:
    """Load the given file into shards of other values, and write it again."""
    with _disable_current_modes():
        lines, model = runpy.run_path(str(LINES)), built(seed=1)
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
        with pytest.raises(CheckpointException, match="Missing key in checkpoint"):
            lines["load"](model, str(folder / "given"))
        lines["load"](model, str(folder / "given"), TIED)
        loaded = {name: shard.full_tensor() for name, shard in model.named_parameters()}
        lines["save"](model, str(folder / "written"), TIED)
    return loaded


@pytest.mark.ranks
def test_a_checkpoint_of_hugging_face_is_loaded_into_shards_and_written_again(tmp_path):
    given = dict(built(seed=0).named_parameters())
    (tmp_path / "given").mkdir()
    save_file(given, tmp_path / "given/model.safetensors")
    loaded = judged(reshaped, 2, tmp_path)[0].returned
    [file] = (tmp_path / "written").glob("*.safetensors")
    written = load_file(file)
    assert given.keys() == loaded.keys() == written.keys()
    for name, value in given.items():
        assert torch.equal(value, loaded[name]), name
        assert torch.equal(value, written[name]), name
