"""Experiments against plain PyTorch in one process, which knows of no rank."""

from itertools import repeat
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector
from torch.utils.flop_counter import FlopCounterMode

from proofbook.runners.core.declared.experiment import find
from proofbook.runners.experiments import batch_split, pipeline_schedules, sharding
from proofbook.runners.experiments.mixed_precision import LowAdam
from proofbook.runners.experiments.pipeline_schedules import Diary
from proofbook.runners.experiments.primitives import LayerSettings, _layer
from proofbook.runners.training import composed, steps
from proofbook.runners.training.networks import mlp
from proofbook.runners.training.teacher import Samples, scaled, teach
from proofbook.runners.training.text import Text, windows
from proofbook.runners.training.transformer_model import SmallGPT, TransformerShape


def taught(num_samples, dtype=torch.float64, *, num_features=10, num_classes=4, temperature=0.15):
    """Samples of the teacher and its validation samples, scaled as experiments scale them."""
    lesson = teach(
        42,
        num_samples=num_samples,
        num_validation_samples=1000,
        num_features=num_features,
        num_classes=num_classes,
        temperature=temperature,
        dtype=dtype,
    )
    return [scaled(one, lesson.training.features) for one in (lesson.training, lesson.validation)]


def model(dtype=torch.float64):
    """The model of every rank before its first step."""
    torch.manual_seed(42)
    return mlp((10, 64, 4), dtype=dtype)


def loss_of(model, samples):
    return cross_entropy(model(samples.features), samples.labels)


def train(model, batches, rates, momentum=0.0):
    """SGD on one batch after the other; the loss of each."""
    update, losses = torch.optim.SGD(model.parameters(), momentum=momentum), []
    for batch, rate in zip(batches, rates, strict=False):
        update.param_groups[0]["lr"] = rate
        update.zero_grad()
        loss = loss_of(model, batch)
        loss.backward()
        update.step()
        losses.append(loss.item())
    return losses


def batches_of(shard, size, num):
    """Batches in the order of the samples, again from the first one after the last."""
    starts = [index * size % len(shard.labels) for index in range(num)]
    return [shard.take(slice(start, start + size)) for start in starts]


def shards(samples, ranks):
    size = len(samples.labels) // ranks
    return [samples.take(slice(rank * size, (rank + 1) * size)) for rank in range(ranks)]


@pytest.mark.parametrize("num_parts", [1, 4])
def test_gradients_of_equal_parts_add_up_to_that_of_the_mean_loss(num_parts):
    samples, own = taught(64)[0], model()
    log_shares = own(samples.features).log_softmax(1)
    loss = -log_shares[torch.arange(64), samples.labels].mean()
    expected = torch.autograd.grad(loss, list(own.parameters()))
    losses = []
    for part in range(num_parts):
        size = 64 // num_parts
        _, of_part = steps.forward_backward(own, steps.batch_of(samples, part, size), num_parts)
        losses.append(of_part.item())
    assert sum(losses) / num_parts == pytest.approx(loss.item(), rel=1e-12)
    found = [one.grad for one in own.parameters()]
    torch.testing.assert_close(found, list(expected), rtol=1e-10, atol=1e-14)


def test_a_warm_up_over_ranks_is_one_process_with_rising_rates(run):
    warmed, (training, validation) = run("batch_and_rate", "warmed"), taught(6400)
    rates = [0.05 + (0.2 - 0.05) * min(1.0, index / 32) for index in range(128)]
    each = zip(*(batches_of(shard, 25, 128) for shard in shards(training, 4)), strict=True)
    whole = [
        Samples(torch.cat([b.features for b in of]), torch.cat([b.labels for b in of]))
        for of in each
    ]
    alone = model()
    train(alone, whole, rates, momentum=0.9)
    assert warmed.validation.loss == pytest.approx(loss_of(alone, validation).item(), rel=1e-7)
    measures = warmed.ranks[0].measures
    assert (measures["first_rate"], measures["last_rate"]) == (0.05, pytest.approx(0.2))
    assert measures["validation_losses"][-1] == pytest.approx(warmed.validation.loss)
    assert len(measures["validation_losses"]) == 8


def test_local_sgd_over_ranks_is_local_sgd_in_one_process(run):
    own = [batches_of(shard, 50, 128) for shard in shards(taught(6400)[0], 2)]
    replicas, losses = [model(), model()], []
    for start in range(0, 128, 8):
        seen = [
            train(replica, batches[start : start + 8], repeat(0.2))
            for replica, batches in zip(replicas, own, strict=True)
        ]
        losses += [sum(both) / 2 for both in zip(*seen, strict=True)]
        mean = sum(parameters_to_vector(replica.parameters()) for replica in replicas) / 2
        for replica in replicas:
            nn.utils.vector_to_parameters(mean.detach().clone(), replica.parameters())
    measured = run("synchronization", "local_8")
    assert measured.step_losses == pytest.approx(losses, rel=1e-9)
    assert measured.epochs[0].loss == pytest.approx(sum(losses) / len(losses))


def test_a_gradient_that_comes_late_is_that_of_so_many_steps_before(run):
    one, losses = model(), []  # one model, for all replicas are equal
    old = []
    own = [batches_of(shard, 50, 128) for shard in shards(taught(6400)[0], 2)]
    for both in zip(*own, strict=True):
        loss = sum(loss_of(one, batch) for batch in both) / 2
        losses.append(loss.item())
        old.append(parameters_to_vector(torch.autograd.grad(loss, list(one.parameters()))))
        if len(old) > 4:
            now = parameters_to_vector(one.parameters()).detach()
            nn.utils.vector_to_parameters(now - 0.2 * old.pop(0), one.parameters())
    assert run("synchronization", "stale_4").step_losses == pytest.approx(losses, rel=1e-9)


def test_parts_that_weigh_alike_give_the_mean_of_their_means(run):
    temperature = batch_split.PartSettings().teacher_temperature
    training, _ = taught(
        10000, torch.float32, num_features=20, num_classes=10, temperature=temperature
    )
    batch = training.take(slice(0, 100))
    order = batch.labels.argsort(stable=True)
    torch.manual_seed(42)
    alone = mlp((20, 128, 10))
    for part in (order[:80], order[80:]):
        (loss_of(alone, batch.take(part)) / 2).backward()
    expected = next(alone.parameters()).grad
    shown = run("batch_parts", "unequal_by_rank").prediction[0].values
    assert shown == pytest.approx(expected.flatten()[: len(shown)].tolist(), rel=1e-4)


def test_validation_samples_are_never_trained_on():
    assert len(torch.unique(torch.cat([s.features for s in taught(500)]), dim=0)) == 1500


# --- sharding


def test_whole_parameters_are_dealt_out_the_largest_first():
    assert sorted(sharding.parts([7, 5, 4, 3, 1], 2)) == [10, 10]
    assert sorted(sharding.parts([9, 1, 1], 2)) == [2, 9]


def test_sharded_ranks_train_as_a_plain_loop_over_all_samples_does(run):
    """The other ways have the same loss, by a law; here rank 0's at the third step."""
    model, source = mlp([512] * 9), torch.Generator().manual_seed(42)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-(512**-0.5), 512**-0.5, generator=source)
    batches = []
    for rank in range(2):
        own = torch.Generator().manual_seed(43 + rank)
        features = torch.randn((4, 512), generator=own)
        batches.append(Samples(features, torch.randint(0, 512, (4,), generator=own)))
    update = torch.optim.Adam(model.parameters(), lr=sharding.Settings().learning_rate)
    for _ in range(2):
        for batch in batches:
            (loss_of(model, batch) / 2).backward()
        update.step()
        update.zero_grad()
    shown = run("sharding", "fsdp_2").ranks[0].measures["loss_at_third_step"]
    assert shown == pytest.approx(loss_of(model, batches[0]).item(), rel=1e-4)


def test_a_whole_gradient_that_fsdp_has_yet_to_reduce_is_a_gradient_and_no_activation(run):
    found = run("sharding", "fsdp_2")
    layer = found.settings["layer_bytes"]
    activations = 9 * found.settings["batch_size"] * 512 * 4  # more than all of them, in fp32
    for rank in found.ranks:
        assert rank.memory.largest.gradients_bytes > found.settings["model_bytes"] / 2 + 0.9 * layer
        assert rank.memory.at_peak.activations_bytes < activations


def test_the_scalar_loss_does_not_keep_a_tensor_as_large_as_its_input():
    samples = torch.zeros(64, 8)
    assert pipeline_schedules._mean_loss(samples, samples).untyped_storage().nbytes() == 4


def test_what_a_rank_does_in_no_forward_and_no_backward_is_idle(monkeypatch):
    """By a clock of the test's own: two seconds in a forward, three in a backward."""
    now = 100.0

    def pass_seconds(seconds):
        nonlocal now
        now += seconds

    clock = SimpleNamespace(perf_counter=lambda: now, sleep=pass_seconds)
    monkeypatch.setattr(pipeline_schedules, "time", clock)
    diary = Diary(forward_seconds=2.0, half_backward_seconds=0.0, _last=now)
    with diary.action(2.0):
        pass_seconds(0.5)  # what it computes; the rest of its pace is slept
    pass_seconds(0.25)  # too short for a wait: the machine sends
    with diary.action(1.0):
        pass_seconds(3.0)  # longer than its pace
    assert (diary.busy_seconds, diary.sending_seconds) == (5.0, 0.25)


SMALL = TransformerShape(vocabulary=256, context=16, width=8, num_heads=2, num_layers=2, hidden=32)


def test_no_sentence_of_the_held_out_text_is_trained_on():
    text = Text.read()
    assert not set(text.held_out.splitlines()) & set(text.training.splitlines())


def test_targets_are_the_bytes_that_follow():
    tokens, targets = windows(b"abcdefgh", [0, 3], 4)
    assert [bytes(row.tolist()) for row in tokens] == [b"abcd", b"defg"]
    assert [bytes(row.tolist()) for row in targets] == [b"bcde", b"efgh"]


def test_no_byte_sees_what_comes_after_it():
    torch.manual_seed(0)
    model = SmallGPT(SMALL)
    tokens = torch.randint(0, 256, (1, 16))
    changed = tokens.clone()
    changed[0, 10:] = 0
    torch.testing.assert_close(model(tokens)[0, :10], model(changed)[0, :10])
    assert not torch.allclose(model(tokens)[0, 10:], model(changed)[0, 10:])


def test_the_products_of_a_layer_are_counted(launcher):
    result = launcher.run_pass(find("primitives"), "compute_1", "timed")
    with FlopCounterMode(display=False) as counter:
        _layer(SimpleNamespace(device="cpu"), LayerSettings())()
    assert result.outcomes[0].measures["num_flops"] == counter.get_total_flops()


def test_a_gradient_over_three_axes_is_clipped_as_torch_clips_it_in_one_process(launcher):
    result = launcher.run_pass(find("mesh"), "cube", "timed")
    settings, losses, norms = find("mesh").runs["cube"].settings, [], []
    model = SmallGPT(settings.shape).double()
    composed._fill(SimpleNamespace(seed=42, device="cpu"), model)
    update = torch.optim.SGD(model.parameters(), settings.learning_rate, momentum=0.9)
    source = torch.Generator().manual_seed(42)
    shape = (settings.batch_size, settings.context + 1)
    drawn = torch.randint(settings.vocabulary, shape, generator=source)
    for _ in range(settings.num_steps):
        loss = cross_entropy(model(drawn[:, :-1]).flatten(0, 1), drawn[:, 1:].flatten())
        loss.backward()
        losses.append(loss.item())
        norm = nn.utils.clip_grad_norm_(model.parameters(), settings.most_norm)
        norms.append(norm.item())
        update.step()
        update.zero_grad()
    assert min(norms) > settings.most_norm
    for outcome in result.outcomes:
        assert outcome.measures["losses"] == pytest.approx(losses, rel=1e-12)
        assert outcome.measures["norms"] == pytest.approx(norms, rel=1e-12)


@pytest.mark.parametrize(("name", "between"), [("sometimes", 1), ("sometimes_local", 8)])
def test_a_training_should_take_the_sum_of_what_each_stretch_waits_for(name, between):
    settings = find("stragglers").runs[name].settings
    stretches = torch.tensor(settings.lengths()).unflatten(1, (-1, between)).sum(2)  # by rank
    total = stretches.amax(0).sum().item()
    assert settings.closed_forms()["expected_seconds"] == pytest.approx(total)


@pytest.mark.parametrize("keeps_master", [True, False])
def test_the_narrow_adam_is_adam_where_nothing_is_narrow(keeps_master):
    start, *gradients = torch.randn(6, 50, generator=torch.Generator().manual_seed(1))
    own, public = (nn.Parameter(start.clone()) for _ in range(2))
    optimizers = LowAdam([own], 0.01, keeps_master), torch.optim.Adam([public], lr=0.01)
    for gradient in gradients:
        own.grad = public.grad = gradient
        for optimizer in optimizers:
            optimizer.step()
    torch.testing.assert_close(own, public)
