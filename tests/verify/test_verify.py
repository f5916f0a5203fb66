"""What the tool says of programs that are right, wrong, or beyond it."""

import re
from pathlib import Path

import pytest
import torch
import yaml

from proofbook.companions.verify.records import LocalPart, Spec, assembled
from proofbook.companions.verify.report import causes, read
from proofbook.runners.__main__ import main
from tests.conftest import ROOT
from tests.processes import python
from tests.verify.ranks import PROGRAMS, unwatched, verified

pytestmark = pytest.mark.ranks
STOP = ("--seconds", "0")
OF_A_LAUNCH = {"OMP_NUM_THREADS": "1", "PROOFBOOK_TRACES": "/no project/traces"}
SHOWN = ROOT / "content" / "verified" / "norms_twice.py"  # on the page “Verify your program”

RIGHT = [
    ("language.py", 2, "accumulate clip dropout checkpoint scaler"),
    ("language.py", 2, "reentrant ema sgd autocast clip_by_hand chunked"),
    ("language.py", 2, "by_hand inside padded two_optimizers clip_by_hand"),
    ("language.py", 2, "policy accumulate clip dropout"),
    ("language.py", 2, "fsdp accumulate quiet tied inside"),
    ("language.py", 4, "hsdp frozen smooth"),
    ("language.py", 2, "fsdp method"),
    ("mesh.py", 2, "sequence loss_parallel clip"),
    ("mesh.py", 2, "pipeline clip"),
    *(("modules.py", 2, way) for way in
      ("adversarial", "weighted_by_hand", "tokens", "hooked", "zero_norm", "retained", "compiled",
       "local_steps")),
]  # fmt: skip
WRONG = [
    ("language.py", "wrong_bypass", "own gradient"),
    ("language.py", "wrong_last", "not all reduced"),
    ("language.py", "wrong_twice", "divided by ranks twice"),
    ("language.py", "wrong_undivided", "accumulation not divided"),
    ("language.py", "wrong_means", "mean of means over ranks"),
    ("language.py", "wrong_equal", "equal batches"),
    ("language.py", "wrong_seed", "replicas start apart"),
    ("language.py", "wrong_recompute", "recomputation"),
    ("language.py", "wrong_early fsdp", "optimizer before sharding"),
    ("language.py", "wrong_missing", "outside the optimizer"),
    ("language.py", "wrong_scheduler", "scheduler"),
    ("language.py", "wrong_zeroed", "zeroed between microbatches"),
    ("language.py", "wrong_not_zeroed", "not zeroed"),
    ("language.py", "wrong_clip_first by_hand", "clipped before the reduction"),
    ("language.py", "wrong_shard_norm fsdp", "norm of a part"),
    ("language.py", "half sgd", "does not move"),
    ("mesh.py", "wrong_norms sequence", "norm times ranks"),
    ("mesh.py", "wrong_batches fsdp", "unequal inputs"),
    ("modules.py", "means_wrong", "mean of means over ranks"),
    ("modules.py", "late", "replicas drift apart"),
    ("modules.py", "averaged_on_one", "replicas drift apart"),
    ("modules.py", "seeded_beside", "replicas start apart"),
]
BEYOND = {
    "columns_wrong": "divided among ranks by hand",
    "stages_by_hand": "divided among ranks by hand",
    "penalty": "outside of any module",
    "distilled": "a factor of the script's own",
    "without_optimizer": "no optimizer",
    "tenth": "a factor of the script's own",
    "gathered": "may enter the loss",
    "queued": "what its buffers are for: queue differs between ranks",
    "rooted": "is not a sum over samples: sqrt of the loss combines them",
    "alike": "is not a sum over samples: mm combines them, or other values (`--one`",
    "mean_by_hand": ") is no loss function that is known (`--one`",
    "hidden": "an error of the tool's own (RuntimeError in modules.py",
    "not_finite": "those of one process are not finite either",
}
CONTEXT = ("--against", "divided:attention", "--split", "inputs=1")
AGAINST = ("--against", "whole:Columns", "--split", "qkv.*=0/3")
# Program, ways, options, exit code, cause of the first finding, and a part of the report.
JUDGED = [
    *((program, ways, (), 1, cause, "") for program, ways, cause in WRONG),
    *(("modules.py", way, (), 3, None, why) for way, why in BEYOND.items()),
    ("loader.py", "", ("--one",), 0, None, "run again as one process"),
    ("loader.py", "means_wrong", ("--one",), 1, "one process differs", ""),
    ("loader.py", "not_finite", ("--one",), 3, None, "not finite"),
    ("loader.py", "gathered", ("--one",), 3, None, "(all_gather) passes no gradient on"),
    ("loader.py", "undivided", ("--one",), 3, None,
     "compares the sum over ranks, but not microbatches with each other"),
    ("language.py", "inside accumulate", ("--one",), 0, None, "run again as one process"),
    ("modules.py", "columns_wrong", AGAINST, 1, "part of the sum", "first.weight and 4 more"),
    ("modules.py", "columns", AGAINST[:2], 3, None, "state the blocks of qkv.weight"),
    ("modules.py", "columns", ("--against", "torch.nn:Identity"), 2, None, "only Columns"),
    ("../gpu/ddp_amp.py", "", ("--cpu",), 0, None, ""),
    ("../gpu/ddp_amp.py", "", (), 2, None, ": it needs a GPU ("),
    ("../held_out/faulty.py", "experts_doubled", (), 3, None, "divided among ranks by hand"),
    ("heads.py", "half", (), 3, None,
     "the weights of heads.py:48 sum to 0.5: a factor of the script's own"),
    ("heads.py", "counts", (), 0, None, ""),
    ("heads.py", "other", (), 3, None, "the loss has another term"),
    ("heads.py", "short", (), 1, "short update", "1 of 2 microbatches, and each weighs as one"),
    ("divided.py", "stages", (), 0, None, ""),
    ("divided.py", "stages wrong", (), 1, "accumulation not divided", "sum 4"),
    ("divided.py", "experts", ("--against", "divided:experts"), 0, None, ""),
    ("divided.py", "experts_global", ("--against", "divided:experts"), 0, None, ""),
    ("divided.py", "experts wrong", ("--against", "divided:experts"), 1, "expert times ranks", ""),
    ("divided.py", "experts averaged", ("--against", "divided:experts"), 1,
     "parts reduced as one", ""),
    ("divided.py", "context", CONTEXT, 0, None, ""),
    ("divided.py", "context wrong", CONTEXT, 1, "mean of means over ranks", ""),
    ("divided.py", "context cut", CONTEXT, 1, "gather cuts", ""),
    ("divided.py", "context_ring", CONTEXT, 0, None, ""),
    ("divided.py", "context_ring wrong", CONTEXT, 1, "mean of means over ranks", ""),
    ("divided.py", "context_heads", CONTEXT, 0, None, ""),
    ("faults.py", "masks", (), 1, "unequal random numbers", ""),
    ("faults.py", "own_norm", (), 1, "norm of a part", "ranks scale their gradients by"),
    ("faults.py", "shards_summed", (), 1, "parts reduced as one", ""),
    ("language.py", "dropout one_seed", (), 3, None, "ranks 0 and 1 draw the same ones"),
]  # fmt: skip


def assert_judged(program, ranks, ways, options, code, cause, says):
    """Run a program, and compare what is said of it."""
    is_real = (program, ways) == ("loader.py", "")
    how = {"options": options, "forks_one": not is_real}
    report, ended, output = verified(program, ranks, *ways.split(), **how)
    findings = report.get("findings", [])
    assert (ended, [finding["cause"] for finding in findings][:1]) == (
        code,
        [cause] * bool(cause),
    ), output
    assert not findings or findings[0]["place"].startswith(Path(program).name)
    assert says in output


@pytest.mark.parametrize(("program", "ranks", "ways"), RIGHT)
def test_a_right_program_agrees_in_all_its_parameters(program, ranks, ways):
    report, code, output = verified(program, ranks, *ways.split(), options=STOP)
    assert (code, report["findings"], report["not_compared"]) == (0, [], []), output
    frozen = 1 if "frozen" in ways else 0
    assert report["compared"]["parameters_compared"] == report["compared"]["parameters"] - frozen
    assert report["compared"]["updates"] == 3


@pytest.mark.parametrize(("program", "ways", "options", "code", "cause", "says"), JUDGED)
def test_a_program_is_judged_and_what_cannot_be_compared_never_agrees(
    program, ways, options, code, cause, says
):
    ranks = 4 if program == "mesh.py" and "fsdp" in ways else 2
    assert_judged(program, ranks, ways, (*STOP, *options), code, cause, says)


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_module_divided_by_hand_agrees_with_the_unsharded_one(ranks):
    report, code, output = verified("modules.py", ranks, "columns", options=(*STOP, *AGAINST))
    assert (code, report["findings"], report["not_compared"]) == (0, [], []), output
    assert report["compared"]["parameters_compared"] == 8
    assert "qkv.bias 0/3, out.weight 1, up.weight 0, " in report["notes"][0]
    assert ("over ranks 0-1 and 2-3; 2 whole" in report["notes"][0]) == (ranks == 4)


def test_a_hang_names_where_each_rank_waits():
    report, code, _ = verified("language.py", 2, "wrong_rank0", options=("--patience", "3"))
    assert (code, report["findings"][0]["cause"]) == (1, "hang")
    assert "rank 0 waits: language.py" in report["findings"][0]["says"]
    assert "in barrier" in report["findings"][0]["says"]
    assert "in backward" in report["findings"][0]["says"]


def test_what_each_rank_called_is_reported_where_gloo_ends_one():
    report, code, output = verified("language.py", 2, "fsdp", "wrong_saved")
    (finding,) = report["findings"]
    assert (code, finding["cause"]) == (1, "collectives differ"), output
    calls = [re.search(r"called (all_gather\w+) of (\d+) elements \(language.py:(\d+)\)", one)
             for one in finding["says"].splitlines()]  # fmt: skip
    assert len({one[2] for one in calls}) == len({one[3] for one in calls}) == 2


def test_watching_changes_no_bit_of_losses_and_parameters():
    ways = ("dropout", "accumulate", "clip", "checkpoint", "tied")
    outputs = [verified("language.py", 2, *ways)[2], unwatched("language.py", 2, *ways)]
    watched, plain = (re.findall(r"^digest .+$", one, re.MULTILINE) for one in outputs)
    assert len(plain) == 1
    assert watched == plain


def test_the_trace_of_a_wrong_program_names_the_tensor_that_is_wrong_first_as_the_book_shows_it(
    tmp_path,
):
    _, code, output = verified(SHOWN, 2, options=("--seconds", "0"), content=tmp_path)
    assert code == 1
    (path,) = (tmp_path / "tries").iterdir()
    kept, *_ = (line for line in output.splitlines() if path.name in line)
    assert output.index(kept) < output.index('"schema"')
    own, book = read(path), read(SHOWN.with_suffix(".json"))
    assert own.first is not None
    assert own.first.name == "1.norm.weight"  # the first normalization, which the program sums
    assert [tensor.name for tensor in own.tensors if tensor.state == "differs"] == [
        f"{block}.norm.{name}" for block in (1, 2) for name in ("weight", "bias")
    ]
    for tensor in own.tensors:  # a gradient that is doubled is off by its own norm
        assert tensor.gradient.error == pytest.approx(float(tensor.state == "differs"), abs=1e-4)
    assert own.report.compared["updates"] == 1  # the first has a finding, which ends the comparison
    assert own.command == f"verify --ranks 2 --seconds=0.0 --patience=6.0 {SHOWN}"
    assert (own.printed, own.report, own.code) == (book.printed, book.report, book.code)
    assert [t.state for t in own.tensors] == [t.state for t in book.tensors]


def test_under_torchrun_the_last_line_has_the_word():
    launcher = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
    program = str(PROGRAMS / "language.py")
    done = python("-m", *launcher, "runners.verify", program, "wrong_sum", **OF_A_LAUNCH)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("verify: differs")
    first = next(line for line in done.stdout.splitlines() if line.startswith("language.py:"))
    assert first.endswith(": off by 2 = ranks (too large by the number of ranks)")
    assert "weight of each token" in done.stdout


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--ranks", "2", "nowhere.py"], "there is no script nowhere.py"),
        (["--ranks", "2", "--split", "up.weight=0", "README.md"], "--split needs --against"),
        (["--ranks", "2", "--against", "nowhere:f", "README.md"], "no module nowhere beside"),
        (["README.md"], "--ranks must be from 2 to 64"),
        (["--ranks", "2", "--steps", "0", "README.md"], "--steps must be at least 1"),
    ],
)
def test_a_wrong_call_is_one_line(words, says, capsys):
    assert main(["verify", *words]) == 2
    errors = capsys.readouterr().err
    assert says in errors
    assert len(errors.strip().splitlines()) == 1


def test_a_tensor_is_put_together_from_shards_of_two_axes():
    whole = torch.arange(6.0 * 5).view(6, 5)
    mesh = torch.arange(4).view(2, 2)
    spec = Spec((6, 5), mesh, (("strided", 0), ("shard", 0)))
    parts = {
        int(mesh[i, j]): LocalPart(whole.chunk(2, 0)[j].chunk(2, 0)[i], spec)
        for i in range(2) for j in range(2)
    }  # fmt: skip
    assert all(torch.equal(assembled(parts, rank), whole) for rank in range(4))


def test_every_cause_names_a_section_of_its_page():
    def titles(node):
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        own = {node["title"]} if isinstance(node, dict) and "title" in node else set()
        return own.union(*map(titles, inner))

    for cause in causes().values():
        lesson = (ROOT / f"content/topics/{cause.page}.yml").read_text(encoding="utf-8")
        assert cause.section in titles(yaml.safe_load(lesson)), cause
        assert "`" not in cause.title  # a heading and a label print it as it is
