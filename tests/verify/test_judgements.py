"""What is concluded from records that no rank had to make."""

import pytest
import torch
from torch.nn import functional

from runners.verify import inputs, internals, rerun
from runners.verify.board import Board, ScriptFailure, ended, failed
from runners.verify.fit import Expected, fitted
from runners.verify.inputs import Case
from runners.verify.internals import multiplies
from runners.verify.losses import TOLERANCE, LossWatch, judged_weights
from runners.verify.records import Forward, Layout, Loss, Part, RootRecord, Seen, Update
from runners.verify.report import Finding, Verdict, in_words, lines
from runners.verify.roots import moments
from runners.verify.update import Steps, find_skipped

EPS = torch.finfo(torch.float32).eps


def test_a_private_name_that_a_release_lacks_is_said():
    assert set(internals.LACKING.values()) == {""}
    for file, name in (("optim/lr_scheduler.py", "_no_such_name"), ("optim/no_such_file.py", "x")):
        says = internals._lacking(file, [name, "_initial_step"])
        assert says.endswith(f"whose {file} has no {name},")


def _layout(*updates):
    """Of a module that each rank trains on its own batch, with one update each."""
    records = {
        rank: RootRecord("Net", [0, 1], None, EPS, EPS, updates=[one])
        for rank, one in enumerate(updates)
    }
    return Layout("Net", records, [[rank] for rank in records])


@pytest.mark.parametrize("held", [None, torch.zeros(3)])
def test_a_gradient_that_is_absent_or_zero_is_no_sum_of_batches(held):
    terms = {(rank, 1): {"w": torch.tensor([1.0, 2.0, rank]).double()} for rank in range(2)}
    exact = {"w": terms[0, 1]["w"] + terms[1, 1]["w"]}
    expected = Expected(terms, exact, {"w": 1e-6}, num_batches=2)
    fit = fitted({rank: {"w": held} for rank in range(2)}, ["w"], expected)
    assert fit.wrong == {0: ["w"], 1: ["w"]}
    assert not fit.agreed


def _one_process(inputs_of_one, gradient):
    """The verdict where ranks hold 2.0, from the inputs 0 and 1."""
    held = {
        rank: {"Net": rerun.Inputs([[((torch.full((1, 2), float(rank)),), {})]], False, False)}
        for rank in range(2)
    }
    own = {"w": Part(torch.tensor([2.0]))}
    layout = _layout(*(Update(0, {}, {}, [Forward("", ())], at_step=own) for _ in range(2)))
    one = rerun.Inputs([[((inputs_of_one,), {})]], False, False)
    verdict = Verdict()
    made = {"Net": [{"w": torch.tensor([gradient])}]}, {"Net": one}
    return rerun.compare(verdict, [layout], made, held), verdict


TOGETHER = torch.tensor([[0.0, 0.0], [1.0, 1.0]])


def test_one_process_accuses_only_if_its_model_had_the_inputs_of_the_ranks():
    agrees, verdict = _one_process(TOGETHER, 2.0)
    assert (agrees, verdict.findings, verdict.not_compared) == (True, [], [])
    padded = torch.cat([TOGETHER, torch.full((2, 1), 7.0)], 1)
    assert _one_process(padded, 3.0)[1].findings
    agrees, verdict = _one_process(TOGETHER, 3.0)
    assert (agrees, [one.cause for one in verdict.findings]) == (False, ["one process differs"])
    for other in (TOGETHER + 0.1, TOGETHER[:1]):
        agrees, verdict = _one_process(other, 3.0)
        assert (agrees, verdict.findings) == (False, [])
        assert "its inputs are not those of all ranks together" in verdict.not_compared[0]


def _weights(reduction, divisors, is_masked=True, class_weights=None, counts=(8, 8)):
    """Weights of a cross-entropy on two ranks, whose loss is divided by a number on each."""
    updates = {}
    for rank, (count, kept) in enumerate(zip(counts, (3, 5), strict=True)):
        watch = LossWatch(lambda: True, lambda: True)
        logits = torch.randn(count, 4, generator=torch.Generator().manual_seed(rank))
        labels = torch.arange(count) % 4 if rank else torch.arange(count) % 3
        value = watch.called(
            "cross_entropy", functional.cross_entropy, logits.requires_grad_(), labels,
            weight=class_weights, reduction=reduction,
        )  # fmt: skip
        mask = (torch.arange(count) < kept).float() if is_masked else torch.ones(count)
        loss = (value * mask).sum() if reduction == "none" else value
        (2 * loss / divisors[rank]).backward()
        one = Forward("", (), shapes=[(count, 4)])
        updates[rank] = Update(0, {}, {}, forwards=[one], losses=watch.ended(1))
    return judged_weights(updates, {(0, 1): 0.5, (1, 1): 0.5}, TOLERANCE)


@pytest.mark.parametrize(
    ("divisors", "cause"),
    [((8, 8), None), ((6, 10), "mean of means over ranks"), ((4, 4), "sum over ranks")],
)
def test_a_loss_that_the_script_masks_is_judged_by_what_the_mask_leaves(divisors, cause):
    found = _weights("none", divisors)
    assert (found.finding.cause if found.finding else None) == cause
    assert not found.why_not
    assert "8 are masked" in found.line


CLASSES = torch.tensor([0.2, 1.0, 2.0, 5.0])
SUMS = [float(CLASSES[torch.arange(8) % n].sum()) for n in (3, 4)]


@pytest.mark.parametrize(
    ("reduction", "divisors", "cause"),
    [
        ("sum", [sum(SUMS)] * 2, None),
        ("sum", [16, 16], None),  # the number of samples
        ("sum", [2 * one for one in SUMS], "mean of means over ranks"),
        ("mean", [2, 2], "mean of means over ranks"),
        ("none", [sum(SUMS)] * 2, None),
    ],
)
def test_a_sample_counts_as_much_as_its_class_weighs(reduction, divisors, cause):
    found = _weights(reduction, divisors, is_masked=False, class_weights=CLASSES)
    assert (found.finding.cause if found.finding else None) == cause, found
    assert not found.why_not
    assert found.line.startswith("weight of each sample over its class weight: ")


def _accumulated(counts, weight_of):
    """Losses of ranks, each of microbatches with so many tokens, and what one of them weighs."""
    return {
        rank: Update(0, {}, {}, losses=[
            Loss("cross_entropy", "a.py:1", count, torch.tensor(weight_of(own)).double(), number)
            for number, count in enumerate(own)
        ])
        for rank, own in enumerate(counts)
    }  # fmt: skip


@pytest.mark.parametrize(
    ("counts", "weight_of", "causes"),
    [
        ([[6, 10], [2, 2]], lambda own: 1 / (2 * sum(own)), ["mean of means over ranks"]),
        ([[4, 0]] * 2, lambda _: 1 / 4, ["sum over ranks", "accumulation not divided"]),
        ([[4, 0]] * 2, lambda _: 1 / 8, []),
    ],
)
def test_weights_of_microbatches_are_told_by_what_each_rank_has(counts, weight_of, causes):
    updates = _accumulated(counts, weight_of)
    factors = {(rank, number): 1.0 for rank in range(2) for number in range(2)}
    found = judged_weights(updates, factors, TOLERANCE).finding
    assert (found.cause if found else None) == next(iter(causes), None)
    assert not found or found.others == list(causes[1:])


def test_batches_of_unequal_widths_are_collated_together():
    values = [torch.zeros(1, width) for width in (2, 3)]
    batches = [rerun.Batch(one, [len(one[0])]) for one in values]
    assert rerun._together(batches) == (None, [2, 3])
    assert rerun._together([rerun.Batch(values[0], [])] * 2)[0].shape == (2, 2)
    with pytest.raises(rerun.NotRerunError):
        rerun._together([one._replace(samples=[]) for one in batches])


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
    parameters = {"encoder.weight": Part(torch.ones(2, 2)), "head.weight": Part(torch.ones(1, 2))}
    layout = _layout(*(Update(0, parameters, {}) for _ in range(2)))
    seen = {
        rank: Seen(quiet={"Net target": {
            (step, "a.py:7"): [torch.full((2, 2), one)] for step, one in enumerate(held)
        }})
        for rank, held in enumerate(targets)
    }  # fmt: skip
    verdict = Verdict()
    inputs.compare_quiet(verdict, [layout], seen)
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
    layout = _layout(Update(0, {}, {}), Update(0, {}, {}))
    for record, steps in zip(layout.records.values(), ranks, strict=True):
        record.backwards = steps[-1]
        record.updates = [
            Update(number, {"w": Part(torch.tensor([number]))}, {}, backwards=step)
            for number, step in enumerate(steps)
        ]
        for before, update in zip([0, *steps], record.updates, strict=False):
            own = range(before + 1, update.backwards + 1)
            kept = own[-1:] if is_skipped else own
            update.forwards = [Forward("", (), backward=one) for one in kept]
    verdict = Verdict()
    assert find_skipped(Case(layout, [layout], verdict)) is is_skipped
    assert [one.cause for one in verdict.findings] == ["skipped step"] * is_skipped


def test_the_setting_that_differs_between_ranks_is_named():
    settings = ({"lr": 0.1, "weight_decay": one, "foreach": bool(one)} for one in (0.0, 0.01))
    layout = _layout(*(Update(0, {}, {}, settings={"w": ("SGD", one)}) for one in settings))
    verdict = Verdict()
    Steps(Case(layout, [layout], verdict)).compare_settings(0)
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
    assert moments(held) == ({(2, 3): 1, (2,): 1} if is_used else {})


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
    boards[1].begins("barrier", "0", 0, "train.py:9")
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
    ("kind", "size", "group", "cause"),
    [
        ("all_gather", 8, "0", "collectives differ"),
        ("all_reduce", 4, "0", "collectives differ"),
        ("all_reduce", 8, "0", "killed"),
        ("all_gather", 8, "1", "killed"),  # in another group, of which nothing follows
    ],
)
def test_calls_of_one_number_in_one_group_that_are_not_alike_are_the_cause_of_an_end(
    boards, kind, size, group, cause
):
    for one in boards:
        one.begins("broadcast", "0", 4, "train.py:1")
    boards[0].begins("all_reduce", "0", 8, "train.py:2")
    boards[1].begins(kind, group, size, "train.py:3")
    boards[1].begins("backward", "", 0, "train.py:4")
    (finding,) = ended(boards[0], {0: "SIGABRT"}).findings
    assert (finding.cause, finding.place, finding.rank) == (cause, "train.py:2", 0)
    is_unlike = cause == "collectives differ"
    last = f"{kind} of {size} elements (train.py:3)" if is_unlike else "backward (train.py:4)"
    assert finding.says.splitlines() == [
        "rank 0 called all_reduce of 8 elements (train.py:2), and was ended by SIGABRT",
        f"rank 1 called {last}",
    ]


@pytest.mark.parametrize(
    ("own", "other", "cause"),
    [
        ("backward all_reduce", "backward backward", "collectives differ"),
        ("backward all_reduce", "backward", "killed"),  # the other comes later
        ("backward", "backward backward", "killed"),  # outside of any collective
        ("backward backward", "backward ends", "collectives differ"),
        ("backward backward", "backward backward ends", "killed"),
        ("backward backward", "backward fails", "killed"),  # as the connection is closed
        ("backward send", "backward ends", "killed"),
    ],
)
def test_a_rank_ends_in_a_collective_that_others_do_not_call_or_from_outside(
    boards, own, other, cause
):
    for board, kinds in zip(boards, (own, other), strict=True):
        for kind in kinds.replace(" ends", "").replace(" fails", "").split():
            board.begins(kind, "0" * (kind != "send"), 0, "train.py:7")
    if other.endswith("fails"):
        boards[1].post("failed", ScriptFailure("RuntimeError: Connection reset by peer", "", 1.0))
    if other.endswith("s"):
        boards[1].post("seen", None)
    (finding,) = ended(boards[0], {0: ""}).findings
    assert finding.cause == cause
    assert ("its script has ended" in finding.says) == other.endswith("ends")


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
