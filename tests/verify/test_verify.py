"""What the tool says of programs that are right, wrong, or beyond it."""

import os
import re
import subprocess
import sys

import pytest
import torch
import yaml

from runners.__main__ import main
from runners.verify.losses import TOLERANCE, judge_weights
from runners.verify.records import LocalPart, Loss, Spec, UpdateRecord, assembled
from runners.verify.report import causes, read
from tests.conftest import ROOT
from tests.verify.ranks import PROGRAMS, verified

pytestmark = pytest.mark.ranks
STOP = ("--seconds", "0")
SHOWN = ROOT / "content" / "verified" / "norms_twice.py"  # on the page “Verify your program”

RIGHT = [
    ("language.py", 2, "accumulate clip dropout checkpoint scaler"),
    ("language.py", 2, "reentrant ema sgd autocast clip_by_hand chunked"),
    ("language.py", 2, "by_hand inside padded two_optimizers clip_by_hand"),
    ("language.py", 2, "policy accumulate clip dropout"),
    ("language.py", 2, "fsdp accumulate quiet tied inside"),
    ("language.py", 4, "hsdp frozen smooth"),
    ("mesh.py", 2, "sequence loss_parallel clip"),
    ("mesh.py", 2, "pipeline clip"),
    ("modules.py", 2, "adversarial"),
    ("modules.py", 2, "weighted_by_hand"),
    ("modules.py", 2, "tokens"),
    ("modules.py", 2, "hooked"),
    ("modules.py", 2, "zero_norm"),
    ("language.py", 2, "fsdp method"),
    ("modules.py", 2, "retained"),
    ("modules.py", 2, "compiled"),
    ("modules.py", 2, "local_steps"),
]
WRONG = [
    ("language.py", 2, "wrong_bypass", "own gradient"),
    ("language.py", 2, "wrong_last", "not all reduced"),
    ("language.py", 2, "wrong_sum", "sum over ranks"),
    ("language.py", 2, "wrong_twice", "divided by ranks twice"),
    ("language.py", 2, "wrong_undivided", "accumulation not divided"),
    ("language.py", 2, "wrong_means", "mean of means over ranks"),
    ("language.py", 2, "wrong_equal", "equal batches"),
    ("language.py", 2, "wrong_seed", "replicas start apart"),
    ("language.py", 2, "wrong_recompute", "recomputation"),
    ("language.py", 2, "wrong_early fsdp", "optimizer before sharding"),
    ("language.py", 2, "wrong_missing", "outside the optimizer"),
    ("language.py", 2, "wrong_scheduler", "scheduler"),
    ("language.py", 2, "wrong_zeroed", "zeroed between microbatches"),
    ("language.py", 2, "wrong_not_zeroed", "not zeroed"),
    ("language.py", 2, "wrong_clip_first by_hand", "clipped before the reduction"),
    ("language.py", 2, "wrong_shard_norm fsdp", "norm of a part"),
    ("language.py", 2, "half sgd", "does not move"),
    ("mesh.py", 2, "wrong_norms sequence", "norm times ranks"),
    ("mesh.py", 4, "wrong_batches fsdp", "unequal inputs"),
    ("modules.py", 2, "means_wrong", "mean of means over ranks"),
    ("modules.py", 2, "late", "replicas drift apart"),
    ("modules.py", 2, "averaged_on_one", "replicas drift apart"),
    ("modules.py", 2, "seeded_beside", "replicas start apart"),
]
BEYOND = [
    ("columns_wrong", "divided among ranks by hand"),
    ("experts_wrong", "divided among ranks by hand"),
    ("stages_by_hand", "divided among ranks by hand"),
    ("penalty", "outside of any module"),
    ("distilled", "a factor of the script's own"),
    ("without_optimizer", "no optimizer"),
    ("tenth", "a factor of the script's own"),
    ("gathered", "may enter the loss"),
    ("queued", "what its buffers are for: queue differs between ranks"),
    ("rooted", "is not a sum over samples: sqrt of the loss combines them"),
    ("alike", "is not a sum over samples: mm combines them, or other values (`--one`"),
    ("mean_by_hand", ") is no loss function that is known (`--one`"),
    ("hidden", "an error of the tool's own (RuntimeError in modules.py"),
    ("not_finite", "those of one process are not finite either"),
]


@pytest.mark.parametrize(("program", "ranks", "ways"), RIGHT)
def test_a_right_program_agrees_in_all_its_parameters(program, ranks, ways):
    report, code, output = verified(program, ranks, *ways.split(), options=STOP)
    assert (code, report["findings"], report["not_compared"]) == (0, [], []), output
    frozen = 1 if "frozen" in ways else 0
    assert report["compared"]["parameters_compared"] == report["compared"]["parameters"] - frozen
    assert report["compared"]["updates"] == 3


@pytest.mark.parametrize(("program", "ranks", "ways", "cause"), WRONG)
def test_the_first_finding_of_a_wrong_program_has_its_cause(program, ranks, ways, cause):
    report, code, output = verified(program, ranks, *ways.split(), options=STOP)
    assert code == 1, output
    assert report["findings"][0]["cause"] == cause
    assert report["findings"][0]["place"].startswith(program)


@pytest.mark.parametrize(("way", "why"), BEYOND)
def test_what_cannot_be_seen_through_never_counts_as_agreeing(way, why):
    report, code, output = verified("modules.py", 2, way, options=STOP)
    assert (code, report["verdict"], report["findings"]) == (3, "not compared", []), output
    assert why in " ".join(report["not_compared"])


@pytest.mark.parametrize(
    ("program", "ways", "cause"),
    [("loader.py", "", None), ("loader.py", "means_wrong", "one process differs"),
     ("language.py", "inside accumulate", None)],
)  # fmt: skip
def test_as_one_process_any_loss_is_compared(program, ways, cause):
    report, code, output = verified(program, 2, *ways.split(), options=(*STOP, "--one"))
    assert [one["cause"] for one in report["findings"]] == ([cause] if cause else []), output
    assert code == (1 if cause else 0)
    assert cause or "run again as one process" in " ".join(report["notes"])


@pytest.mark.parametrize(
    ("way", "says"),
    [
        ("not_finite", "not finite"),
        ("gathered", "(all_gather) passes no gradient on"),
        ("undivided", "compares the sum over ranks, but not microbatches with each other"),
    ],
)
def test_what_one_process_would_do_as_well_does_not_agree(way, says):
    report, code, output = verified("loader.py", 2, way, options=(*STOP, "--one"))
    assert (code, report["findings"]) == (3, []), output
    assert says in " ".join(report["not_compared"])


AGAINST = ("--against", "whole:Columns", "--split", "qkv.*=0/3")


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_module_divided_by_hand_agrees_with_the_unsharded_one(ranks):
    report, code, output = verified("modules.py", ranks, "columns", options=(*STOP, *AGAINST))
    assert (code, report["findings"], report["not_compared"]) == (0, [], []), output
    assert report["compared"]["parameters_compared"] == 8
    assert "qkv.bias 0/3, out.weight 1, up.weight 0, " in report["notes"][0]
    assert ("over ranks 0-1 and 2-3; 2 whole" in report["notes"][0]) == (ranks == 4)


def test_a_reduction_that_a_division_by_hand_lacks_is_found():
    report, _, output = verified("modules.py", 2, "columns_wrong", options=(*STOP, *AGAINST))
    assert report["findings"][0]["cause"] == "part of the sum", output
    assert report["findings"][0]["parameter"] == "first.weight and 4 more"


@pytest.mark.parametrize(
    ("against", "code", "says"),
    [
        ("whole:Columns", 3, "state the blocks of qkv.weight"),
        ("torch.nn:Identity", 2, "only Columns"),
    ],
)
def test_a_division_that_cannot_be_read_is_said(against, code, says):
    options = (*STOP, "--against", against)
    _, found, output = verified("modules.py", 2, "columns", options=options)
    assert (found, says in output) == (code, True), output


@pytest.mark.parametrize(
    ("options", "ends", "says"),
    [(("--cpu",), 0, ""), ((), 2, ": it needs a GPU (")],
)
def test_a_script_for_gpus_runs_on_cpus_where_the_call_says_so(options, ends, says):
    report, code, output = verified(
        PROGRAMS.parent / "gpu" / "ddp_amp.py", 2, options=(*STOP, *options)
    )
    assert (code, report.get("verdict", "")) == (ends, "" if ends else "agrees"), output
    assert says in output


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


def _plainly(*words, ranks=2):
    """What rank 0 prints of a program that nobody watches."""
    common = {**os.environ, "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
              "MASTER_PORT": "29517", "OMP_NUM_THREADS": "1"}  # fmt: skip
    started = [
        subprocess.Popen([sys.executable, PROGRAMS / "language.py", *words], text=True,
                         stdout=subprocess.PIPE, env={**common, "RANK": str(rank)})
        for rank in range(ranks)
    ]  # fmt: skip
    outputs = [one.communicate()[0] for one in started]
    return outputs[0]


def test_watching_changes_no_bit_of_losses_and_parameters():
    ways = ("dropout", "accumulate", "clip", "checkpoint", "tied")
    watched = verified("language.py", 2, *ways)[2]
    digests = [
        next(line for line in text.splitlines() if line.startswith("digest"))
        for text in (watched, _plainly(*ways))
    ]
    assert digests[0] == digests[1]


def test_the_trace_of_a_wrong_program_names_the_tensor_that_is_wrong_first_as_the_book_shows_it(
    tmp_path,
):
    _, code, output = verified(SHOWN, 2, options=("--seconds", "0"), content=tmp_path)
    assert code == 1
    (path,) = (tmp_path / "tries").iterdir()
    kept, *_ = (one for one in output.splitlines() if path.name in one)
    assert output.index(kept) < output.index('"schema"')
    own, book = read(path), read(SHOWN.with_suffix(".json"))
    assert own.first is not None
    assert own.first.name == "1.norm.weight"  # the first normalization, which the program sums
    assert [one.name for one in own.tensors if one.state == "differs"] == [
        f"{block}.norm.{name}" for block in (1, 2) for name in ("weight", "bias")
    ]
    for one in own.tensors:  # a gradient that is doubled is off by its own norm
        assert one.gradient.error == pytest.approx(float(one.state == "differs"), abs=1e-4)
    assert own.report.compared["updates"] == 1  # the first has a finding, which ends the comparison
    assert own.command == f"verify --ranks 2 --seconds=0.0 --patience=6.0 {SHOWN}"
    assert (own.printed, own.report, own.code) == (book.printed, book.report, book.code)
    assert [one.state for one in own.tensors] == [one.state for one in book.tensors]


def _command(*words, launcher=()):
    done = subprocess.run(
        [sys.executable, "-m", *launcher, *words], cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PROOFBOOK_TRACES": "/no project/traces"},
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_under_torchrun_the_last_line_has_the_word():
    launcher = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
    program = str(PROGRAMS / "language.py")
    code, output, _ = _command("runners.verify", program, "wrong_sum", launcher=launcher)
    assert code == 1
    assert output.splitlines()[-1].startswith("verify: differs")
    first = next(one for one in output.splitlines() if one.startswith("language.py:"))
    assert first.endswith(": off by 2 = ranks (too large by the number of ranks)")
    assert "weight of each token" in output


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


def _update(*losses):
    return UpdateRecord(0, {}, {}, losses=list(losses))


def _loss(count, weight, backward=1):
    return Loss("cross_entropy", "train.py:1", count, torch.tensor(weight).double(), backward)


@pytest.mark.parametrize(
    ("weights", "cause"),
    [
        ((0.1, 0.1), None),
        ((0.0625, 0.25), "mean of means over ranks"),
        ((0.2, 0.2), "sum over ranks"),
        ((0.05, 0.05), "divided by ranks twice"),
        ((0.1, 0.2), "unequal weights over ranks"),
    ],
)
def test_tokens_of_two_ranks_have_one_weight(weights, cause):
    updates = {rank: _update(_loss(count, 2 * weight)) for rank, (count, weight) in
               enumerate(zip((8, 2), weights, strict=True))}  # fmt: skip
    found = judge_weights(updates, {(0, 1): 0.5, (1, 1): 0.5}, TOLERANCE)
    assert (found.finding.cause if found.finding else None) == cause


def test_a_tensor_is_put_together_from_shards_of_two_axes():
    whole = torch.arange(6.0 * 5).view(6, 5)
    mesh = torch.arange(4).view(2, 2)
    spec = Spec((6, 5), mesh, (("strided", 0), ("shard", 0)))
    parts = {
        int(mesh[i, j]): LocalPart(whole.chunk(2, 0)[j].chunk(2, 0)[i], spec)
        for i in range(2) for j in range(2)
    }  # fmt: skip
    assert all(torch.equal(assembled(parts, rank), whole) for rank in range(4))


@pytest.mark.parametrize(
    ("way", "ends", "says"),
    [
        ("half", 3, "the weights of heads.py:48 sum to 0.5: a factor of the script's own"),
        ("counts", 0, ""),
        ("other", 3, "the loss has another term"),
        ("short", 1, "1 of 2 microbatches, and each weighs as one of 2"),
    ],
)
def test_a_loss_of_two_heads_has_two_terms_and_a_short_update_its_own_number(way, ends, says):
    report, code, output = verified("heads.py", 2, way, options=STOP)
    said = [*report["not_compared"], *(one["says"] for one in report["findings"])]
    assert code == ends, output
    assert says in " ".join(said)


def test_every_cause_names_a_section_of_its_page():
    def titles(node):
        inner = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
        own = {node["title"]} if isinstance(node, dict) and "title" in node else set()
        return own.union(*map(titles, inner))

    for one in causes().values():
        lesson = (ROOT / f"content/topics/{one.page}.yml").read_text(encoding="utf-8")
        assert one.section in titles(yaml.safe_load(lesson)), one
        assert "`" not in one.title  # a heading and a label print it as it is
