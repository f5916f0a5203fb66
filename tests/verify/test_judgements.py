"""What is concluded from records that no rank had to make."""

import re

import pytest
import torch
from torch.nn import functional

from proofbook.companions.verify import inputs, internals, rerun
from proofbook.companions.verify.board import Board, ended, failed
from proofbook.companions.verify.fit import Expected, fit_gradients
from proofbook.companions.verify.inputs import ModuleCase
from proofbook.companions.verify.internals import multiplies
from proofbook.companions.verify.losses import TOLERANCE, LossWatch, judge_weights
from proofbook.companions.verify.records import (
    DistributedModule,
    Forward,
    LocalPart,
    Loss,
    RankRecording,
    RootRecord,
    ScriptFailure,
    UpdateRecord,
)
from proofbook.companions.verify.report import Finding, Verdict, in_words, lines
from proofbook.companions.verify.roots import moment_shapes
from proofbook.companions.verify.update import OptimizerReplay, find_skipped_step

EPS = torch.finfo(torch.float32).eps


def test_a_private_name_that_a_release_lacks_is_said():
    assert set(internals.LACKING.values()) == {""}
    for file, name in (("optim/lr_scheduler.py", "_no_such_name"), ("optim/no_such_file.py", "x")):
        says = internals._lacking(file, [name, "_initial_step"])
        assert says.endswith(f"whose {file} has no {name},")


def _module(*updates):
    """Of a module that each rank trains on its own batch, with one update each."""
    records = {
        rank: RootRecord("Net", [0, 1], None, EPS, EPS, updates=[one])
        for rank, one in enumerate(updates)
    }
    return DistributedModule("Net", records, [[rank] for rank in records])


@pytest.mark.parametrize("held", [None, torch.zeros(3)])
def test_a_gradient_that_is_absent_or_zero_is_no_sum_of_batches(held):
    terms = {(rank, 1): {"w": torch.tensor([1.0, 2.0, rank]).double()} for rank in range(2)}
    exact = {"w": terms[0, 1]["w"] + terms[1, 1]["w"]}
    expected = Expected(terms, exact, {"w": 1e-6}, num_batches=2)
    fit = fit_gradients({rank: {"w": held} for rank in range(2)}, ["w"], expected)
    assert fit.wrong == {0: ["w"], 1: ["w"]}
    assert not fit.agreed


TOGETHER = torch.tensor([[0.0, 0.0], [1.0, 1.0]])


@pytest.mark.parametrize(
    ("inputs_of_one", "gradient", "cause", "why"),
    [
        (TOGETHER, 2.0, None, ""),
        (TOGETHER, 3.0, "one process differs", ""),
        (torch.cat([TOGETHER, torch.full((2, 1), 7.0)], 1), 3.0, "one process differs", ""),
        (TOGETHER + 0.1, 3.0, None, "its inputs are not those of all ranks together"),
        (TOGETHER[:1], 3.0, None, "its inputs are not those of all ranks together"),
    ],
)
def test_one_process_accuses_only_if_its_model_had_the_inputs_of_the_ranks(
    inputs_of_one, gradient, cause, why
):
    def given(tensor):
        return {"Net": rerun.ForwardInputs([[((tensor,), {})]], False, False)}

    own = {"w": LocalPart(torch.tensor([2.0]))}
    module = _module(*(UpdateRecord(0, {}, {}, [Forward("", ())], at_step=own) for _ in range(2)))
    result = rerun.Rerun({"Net": [{"w": torch.tensor([gradient])}]}, given(inputs_of_one))
    ranks, verdict = {rank: given(torch.full((1, 2), 1.0 * rank)) for rank in range(2)}, Verdict()
    assert rerun.compare(verdict, [module], result, ranks) == (not cause and not why)
    assert [finding.cause for finding in verdict.findings] == [cause] * bool(cause)
    assert [why in gap for gap in verdict.not_compared] == [True] * bool(why)


def _weights(reduction, divisors, is_masked=True, class_weights=None, counts=(8, 8)):
    """Weights of a cross-entropy on two ranks, whose loss is divided by a number on each."""
    updates = {}
    for rank, (count, kept) in enumerate(zip(counts, (3, 5), strict=True)):
        watch = LossWatch(lambda: True, lambda: True)
        logits = torch.randn(count, 4, generator=torch.Generator().manual_seed(rank))
        labels = torch.arange(count) % 4 if rank else torch.arange(count) % 3
        value = watch.call(
            "cross_entropy", functional.cross_entropy, logits.requires_grad_(), labels,
            weight=class_weights, reduction=reduction,
        )  # fmt: skip
        mask = (torch.arange(count) < kept).float() if is_masked else torch.ones(count)
        loss = (value * mask).sum() if reduction == "none" else value
        (2 * loss / divisors[rank]).backward()
        one = Forward("", (), shapes=[(count, 4)])
        updates[rank] = UpdateRecord(0, {}, {}, forwards=[one], losses=watch.end_backward(1))
    return judge_weights(updates, {(0, 1): 0.5, (1, 1): 0.5}, TOLERANCE)


CLASSES = torch.tensor([0.2, 1.0, 2.0, 5.0])
SUMS = [float(CLASSES[torch.arange(8) % n].sum()) for n in (3, 4)]


@pytest.mark.parametrize(
    ("reduction", "divisors", "is_masked", "cause"),
    [
        ("none", (8, 8), True, None),
        ("none", (6, 10), True, "mean of means over ranks"),
        ("none", (4, 4), True, "sum over ranks"),
        ("sum", [sum(SUMS)] * 2, False, None),
        ("sum", [16, 16], False, None),  # the number of samples
        ("sum", [2 * size for size in SUMS], False, "mean of means over ranks"),
        ("mean", [2, 2], False, "mean of means over ranks"),
        ("none", [sum(SUMS)] * 2, False, None),
    ],
)
def test_a_sample_counts_as_much_as_its_class_weighs_unless_the_script_masks_it(
    reduction, divisors, is_masked, cause
):
    weights = _weights(reduction, divisors, is_masked, None if is_masked else CLASSES)
    assert (weights.finding.cause if weights.finding else None) == cause, weights
    assert not weights.why_not
    by_class = "weight of each sample over its class weight: "
    assert ("8 are masked" if is_masked else by_class) in weights.line


@pytest.mark.parametrize(
    ("counts", "weights", "causes"),
    [
        ([[6, 10], [2, 2]], (1 / 32, 1 / 8), ["mean of means over ranks"]),
        ([[4, 0]] * 2, (1 / 4, 1 / 4), ["sum over ranks", "accumulation not divided"]),
        ([[4, 0]] * 2, (1 / 8, 1 / 8), []),
        ([[8], [2]], (0.1, 0.1), []),
        ([[8], [2]], (0.0625, 0.25), ["mean of means over ranks"]),
        ([[8], [2]], (0.2, 0.2), ["sum over ranks"]),
        ([[8], [2]], (0.05, 0.05), ["divided by ranks twice"]),
        ([[8], [2]], (0.1, 0.2), ["unequal weights over ranks"]),
    ],
)
def test_weights_of_microbatches_are_told_by_the_tokens_of_each_rank(counts, weights, causes):
    updates = {
        rank: UpdateRecord(0, {}, {}, losses=[
            Loss("cross_entropy", "a.py:1", count, torch.tensor(2 * weight).double(), number)
            for number, count in enumerate(own)
        ])
        for rank, (own, weight) in enumerate(zip(counts, weights, strict=True))
    }  # fmt: skip
    factors = {(rank, number): 0.5 for rank in range(2) for number in range(2)}
    finding = judge_weights(updates, factors, TOLERANCE).finding
    assert ([finding.cause, *finding.others] if finding else []) == causes


def test_batches_of_unequal_widths_are_collated_together():
    values = [torch.zeros(1, width) for width in (2, 3)]
    batches = [rerun.Batch(one, [len(one[0])]) for one in values]
    assert rerun._joined_batch(batches) == (None, [2, 3])
    assert rerun._joined_batch([rerun.Batch(values[0], [])] * 2)[0].shape == (2, 2)
    with pytest.raises(rerun.NotRerunError):
        rerun._joined_batch([one._replace(samples=[]) for one in batches])


def test_what_a_batch_lists_for_each_sample_is_a_longer_list_of_all_ranks():
    batch = torch.zeros(3, 2), [{"box": torch.zeros(n)} for n in range(1, 4)], ["a", "b", "c"]
    x, boxes, names = rerun._joined([batch, batch])
    assert (len(x), len(boxes), names) == (6, 6, ["a", "b", "c"] * 2)
    views, (x, y) = rerun._joined([([torch.zeros(2, 3)] * 2, [torch.zeros(2)] * 2)] * 2)
    assert [len(one) for one in (*views, x, y)] == [4] * 4


FIXED = torch.nn.Linear(4, 4).requires_grad_(False)


@pytest.mark.parametrize(
    ("between", "by"),
    [
        (lambda y: y @ torch.ones(4, 9), "mm"),
        (lambda y: y[None] @ torch.ones(1, 4, 9), "bmm"),
        (lambda y: (y @ y.T)[:, None], "mm"),
        (lambda y: torch.cdist(y, y.detach()), "cdist"),
        (lambda y: y.mean(-2).square(), "mean"),
        (lambda y: y / y.norm(), "linalgvectornorm"),
        (lambda y: functional.normalize(y, dim=-1).softmax(1).sum(-1), ""),
        (lambda y: FIXED(y).relu() @ FIXED.weight.T, ""),
        (lambda y: torch.einsum("nc,nc->n", y, 2 * y), ""),
        (lambda y: torch.cat([y, y])[1:].exp() * torch.rand(4), ""),
    ],
)
def test_a_loss_is_a_sum_over_samples_unless_something_combines_outputs(between, by):
    output = torch.randn(3, 4, requires_grad=True) * 1
    value = between(output)
    edges, ends = [(value.grad_fn, 0)], {id(output.grad_fn)}
    assert internals.combining(edges, ends, is_outside=True) == by


def test_weights_that_are_zero_agree_with_nothing():
    found = _weights("none", (float("inf"), float("inf")))
    assert found.is_zero
    assert not found.agree


@pytest.mark.parametrize("is_put_back", [True, False])
def test_a_loss_that_multiplies_by_gathered_values_lost_their_gradient(is_put_back):
    output = torch.randn(3, 4, requires_grad=True) * 1
    parts = [torch.randn(3, 4), output.detach().clone()]
    joined = torch.cat([parts[0], output] if is_put_back else parts)
    loss = functional.cross_entropy(2 * output @ joined.T, torch.arange(3))
    ends = {id(output.grad_fn)}
    start = [(loss.grad_fn, 0)]
    assert multiplies(start, ends, parts) is not is_put_back
    assert not multiplies(start, ends, [torch.randn(3, 4), parts[1]])


@pytest.mark.parametrize(
    ("targets", "cause"),
    [
        (((1.0,), (2.0,)), "replicas start apart"),
        (((2.0,), (3.0,)), None),
        (((2.0,), (2.0,)), None),
        (((1.0, 1.1), (1.0, 1.2)), "replicas drift apart"),
        (((2.0, 2.1), (2.0, 2.1 + 1e-6)), None),
        (((2.0, 3.0), (3.0, 4.0)), None),
    ],
)
def test_a_target_that_differs_on_ranks_is_wrong_if_one_is_a_copy_or_all_begin_equal(
    targets, cause
):
    parameters = {
        "encoder.weight": LocalPart(torch.ones(2, 2)),
        "head.weight": LocalPart(torch.ones(1, 2)),
    }
    module = _module(*(UpdateRecord(0, parameters, {}) for _ in range(2)))
    seen = {
        rank: RankRecording(no_grad={"Net target": {
            (step, "a.py:7"): [torch.full((2, 2), one)] for step, one in enumerate(held)
        }})
        for rank, held in enumerate(targets)
    }  # fmt: skip
    verdict = Verdict()
    inputs.compare_no_grad_modules(verdict, [module], seen)
    assert [one.cause for one in verdict.findings] == ([cause] if cause else [])
    assert bool(verdict.not_compared) == (cause is None and targets[0][0] != targets[1][0])
    assert cause != "replicas start apart" or "copies of Net: encoder" in verdict.findings[0].says


@pytest.mark.parametrize(
    ("ranks", "is_skipped"),
    [
        (([1, 2, 3], [1, 3, 4]), True),
        (([1, 2, 3], [1, 2, 4]), True),
        (([1, 2, 3], [2, 4, 6]), False),  # two microbatches on rank 1
        (([4, 8, 10], [4, 8, 12]), False),  # a last update of two microbatches on rank 0
        (([2, 4, 6], [2, 4, 6]), False),
    ],
)
def test_a_step_that_one_rank_skips_is_no_accumulation(ranks, is_skipped):
    module = _module(UpdateRecord(0, {}, {}), UpdateRecord(0, {}, {}))
    for record, steps in zip(module.records.values(), ranks, strict=True):
        record.backwards = steps[-1]
        record.updates = [
            UpdateRecord(number, {"w": LocalPart(torch.tensor([number]))}, {}, backwards=step)
            for number, step in enumerate(steps)
        ]
        for before, update in zip([0, *steps], record.updates, strict=False):
            own = range(before + 1, update.backwards + 1)
            kept = own[-1:] if is_skipped else own
            update.forwards = [Forward("", (), backward=one) for one in kept]
    verdict = Verdict()
    assert find_skipped_step(ModuleCase(module, [module], verdict)) is is_skipped
    assert [one.cause for one in verdict.findings] == ["skipped step"] * is_skipped


def test_the_setting_that_differs_between_ranks_is_named():
    settings = ({"lr": 0.1, "weight_decay": one, "foreach": bool(one)} for one in (0.0, 0.01))
    module = _module(*(UpdateRecord(0, {}, {}, settings={"w": ("SGD", one)}) for one in settings))
    verdict = Verdict()
    OptimizerReplay(ModuleCase(module, [module], verdict)).compare_settings(0)
    (finding,) = verdict.findings
    assert finding.cause == "settings differ"
    assert finding.says == "weight_decay of SGD is 0.0 on rank 0 and 0.01 on 1"


@pytest.mark.parametrize("is_used", [True, False])
def test_a_checkpoint_that_holds_an_optimizer_s_state_is_told_by_the_shapes_of_its_moments(is_used):
    layer = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(layer.parameters())
    if is_used:
        layer(torch.ones(1, 3)).sum().backward()
        optimizer.step()
    held = (3, {"model": layer.state_dict(), "optimizer": optimizer.state_dict()})
    assert moment_shapes(held) == ({(2, 3): 1, (2,): 1} if is_used else {})


@pytest.fixture
def boards(tmp_path, monkeypatch):
    """Those of two ranks, which are this process."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return [Board(rank, 2, 1) for rank in range(2)]


def test_of_several_ranks_that_failed_the_first_one_is_named_whose_error_is_no_consequence(boards):
    boards[0].post(
        "failed", ScriptFailure("RuntimeError: Connection closed by peer", "train.py:4", 1.0)
    )
    boards[1].post("failed", ScriptFailure("ValueError: no such file", "train.py:7", 2.0))
    finding = failed(boards[0])
    assert (finding.cause, finding.rank, finding.place) == ("script failed", 1, "train.py:7")


def test_of_a_rank_that_others_did_not_wait_for_the_line_is_named(boards):
    boards[1].write_call("barrier", "0", 0, "train.py:9")
    error = "RuntimeError: [/x.cc:7] Timed out waiting 9ms"
    boards[1].post("failed", ScriptFailure(error, "train.py:9", 1.0))
    boards[0].post("meanwhile", ("train.py:5", False))
    finding = failed(boards[0])
    assert (finding.cause, finding.place, finding.rank) == ("timed out", "train.py:5", 0)
    assert finding.says.splitlines() == [
        "RuntimeError: Timed out waiting 9ms",
        "rank 1 waited in barrier (train.py:9), and gave up",
        "rank 0 was at train.py:5 then",
    ]


@pytest.mark.parametrize(
    ("own", "other", "cause", "says"),  # calls as kind:size@group
    [
        ("broadcast:4 all_reduce:8", "broadcast:4 all_gather:8 backward@", "collectives differ",
         "all_gather of 8 elements (train.py:2)"),
        ("broadcast:4 all_reduce:8", "broadcast:4 all_reduce:4 backward@", "collectives differ",
         "all_reduce of 4 elements (train.py:2)"),
        ("broadcast:4 all_reduce:8", "broadcast:4 all_reduce:8 backward@", "killed",
         "backward (train.py:3)"),
        # in another group, of which nothing follows
        ("broadcast:4 all_reduce:8", "broadcast:4 all_gather:8@1 backward@", "killed",
         "backward (train.py:3)"),
        ("backward all_reduce", "backward backward", "collectives differ", "backward (train.py:2)"),
        ("backward all_reduce", "backward", "killed", "backward (train.py:1)"),  # it comes later
        ("backward", "backward backward", "killed", "backward (train.py:2)"),  # in no collective
        ("backward backward", "backward ends", "collectives differ", "and its script has ended"),
        ("backward backward", "backward backward ends", "killed", "and its script has ended"),
        ("backward backward", "backward fails", "killed", "backward (train.py:1)"),
        ("backward send@", "backward ends", "killed", "and its script has ended"),
    ],
)  # fmt: skip
def test_a_rank_ends_in_a_collective_that_others_do_not_call_or_from_outside(
    boards, own, other, cause, says
):
    for board, calls in zip(boards, (own, other), strict=True):
        for line, call in enumerate(re.sub(" ends| fails", "", calls).split(), 1):
            kind, size, group = re.fullmatch(r"(\w+)(?::(\d+))?(@\d*)?", call).groups()
            board.write_call(kind, (group or "@0")[1:], int(size or 0), f"train.py:{line}")
    if other.endswith("fails"):  # as the connection is closed
        boards[1].post("failed", ScriptFailure("RuntimeError: Connection reset by peer", "", 1.0))
    if other.endswith("s"):
        boards[1].post("seen", None)
    (finding,) = ended(boards[0], {0: "SIGABRT"}).findings
    place = f"train.py:{len(own.split())}"
    assert (finding.cause, finding.place, finding.rank) == (cause, place, 0)
    first, second = finding.says.splitlines()
    assert first.endswith(f"({place}), and was ended by SIGABRT")
    assert says in second


def test_a_rank_that_is_killed_while_it_replays_is_no_fault_of_the_script(boards):
    boards[1].post("seen", None)
    verdict = ended(boards[0], {1: ""})
    assert not verdict.findings
    assert "rank 1 was killed while it replayed" in verdict.not_compared[0]


def test_a_factor_that_ranks_and_microbatches_explain_is_told_with_both():
    assert in_words(2.0, [2], 2) == "2 = ranks = microbatches"
    assert in_words(0.25, [2], 2) == "0.25 = 1 / (ranks × microbatches)"
    assert in_words(1.7, [2], 4) == "1.7"
    others = ["accumulation not divided"]
    found = [Finding("sum over ranks", "seen", "a.py:1", off="2", others=others)]
    report = Verdict(script="a.py", world_size=2, findings=found)
    text = "\n".join(lines(report))
    assert text.startswith("a.py:1: off by 2 (too large by the number of ranks)\n    seen\n")
    assert "Or it is too large by the number of microbatches." in text
    assert "On 3 ranks these factors differ" in text
    assert text.endswith("\nverify: differs (too large by the number of ranks)")
