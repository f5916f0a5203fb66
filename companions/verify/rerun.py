"""Runs a watched script again as one process, with the batches of all ranks.

In: the batches that each rank's `DataLoader`s yielded, or the inputs of its forward passes where
the loss is one of their outputs; without either, the script reads its own batches. Out: the
gradients that the optimizer was given, in each update from the parameters of the watched run. This
compares any loss, and a forward pass that communicates; the script must run with WORLD_SIZE=1, and
draw nothing.
"""

from __future__ import annotations

import copy
import functools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from proofbook.companions.verify import records
from proofbook.companions.verify.fit import Expected, compare_with_sum, fit_gradients, scales_of
from proofbook.companions.verify.inputs import ModuleCase, are_equal_again, has_own_gradients
from proofbook.companions.verify.internals import LoaderIterator, fetcher, pytree
from proofbook.companions.verify.launch import environment, free_port
from proofbook.companions.verify.losses import factors
from proofbook.companions.verify.records import DistributedModule, Modules, Recordings, tensors_of
from proofbook.companions.verify.report import Verdict, in_words
from proofbook.companions.verify.roots import Root
from proofbook.companions.verify.script import run_script
from proofbook.companions.verify.watch import Watch
from proofbook.runners.core.system import processes
from proofbook.runners.judging.rounding import NORM, are_apart
from proofbook.runners.system.private import PrivateFolder

SECONDS = 120.0
INPUTS, RESULT = "one.inputs", "one.result"  # files, pickled: batches have the script's own classes
DIFFERS = "one process differs"  # a cause that says no more
_MOST_BATCHES = 512
_LEAST_TOLERANCE = 1e-3  # relative: one process adds in another order
Key = tuple[int, int]  # of a batch: iterator and position


class Batch(NamedTuple):
    """A batch of a loader."""

    value: Any
    samples: list[Any]  # that the script's collator was given; empty where they are not known


Batches = dict[Key, Batch]


class ForwardInputs(NamedTuple):
    """The arguments of a module's forward passes on one rank."""

    passes: list[list[Any]]  # of each update
    is_loss: bool  # whether an output is the loss; else the script computes it from outputs
    has_parts: bool  # whether other ranks hold the rest of them


Inputs = Mapping[str, ForwardInputs]  # by module


class Rerun(NamedTuple):
    """The gradients that one process computed, and its inputs."""

    gradients: Mapping[str, Sequence[Mapping[str, Tensor]]]  # by module, update and parameter
    inputs: Inputs


class NotRerunError(Exception):
    """One process cannot run the script, and why."""


@dataclass
class RerunInputs:
    """The data that one process computes from."""

    batches: Batches  # of all ranks
    inputs: dict[str, list[Any]]  # of forward passes, by module, where there are no batches
    parameters: dict[str, list[dict[str, Tensor]]]  # of each update, by module
    steps: int  # the number of updates


# Recorded on each rank


def record_batches(is_recording: Callable[[], bool]) -> Batches:
    """A dict that fills with at most 512 `Batch`es, by iterator and position, if `is_recording`."""
    batches: Batches = {}

    def record(key: Key, iterator: Any, following: Callable[[], Any]) -> Any:
        if not is_recording() or len(batches) >= _MOST_BATCHES:
            return following()
        samples: list[Any] = []
        source = fetcher(iterator)
        collate = source and source.collate_fn

        def recording_collate(listed: Any) -> Any:
            samples.extend(copy.deepcopy(listed) if isinstance(listed, list) else [])
            return collate(listed)  # which may change the samples

        if source:
            source.collate_fn = recording_collate
        value = following()
        if source:
            source.collate_fn = collate
        batches[key] = Batch(records.mapped(value, lambda tensor: tensor.detach().clone()), samples)
        return value

    _replace_next_batch(record)
    return batches


def _replace_next_batch(do: Callable[[Key, Any, Callable[[], Any]], Any]) -> None:
    """Route every batch of a `DataLoader` through `do(key, iterator, original)`."""
    if LoaderIterator is None:
        return
    original = LoaderIterator.__next__
    numbers: dict[int, tuple[Any, int]] = {}  # of each iterator, which stays alive
    positions = Counter[int]()

    def call(iterator: Any) -> Any:
        number = numbers.setdefault(id(iterator), (iterator, len(numbers)))[1]
        positions[number] += 1
        return do((number, positions[number]), iterator, lambda: original(iterator))

    LoaderIterator.__next__ = call


def inputs_of(recording: records.RankRecording) -> dict[str, ForwardInputs]:
    """By module, `ForwardInputs`: local arguments of each update's passes; if they are parts."""
    inputs = {}
    for key, record in recording.roots.items():
        forwards = [forward for update in record.updates for forward in update.forwards]
        gradients = (gradient for forward in forwards for gradient in forward.gradients.values())
        is_loss = not any(gradient.local.dim() for gradient in gradients)
        has_parts = any(part.spec for f in forwards for part in tensors_of(f.arguments))
        passes = [[f.arguments for f in update.forwards] for update in record.updates]
        plain = [records.mapped(own, lambda part: part.local) for own in passes]
        inputs[key] = ForwardInputs(plain, is_loss, has_parts)
    return inputs


# Passed to one process


def rerun_inputs(
    modules: Modules, own: Mapping[str, nn.Module],
    batches: Mapping[int, Batches], inputs: Mapping[int, Inputs], recordings: Recordings,
) -> RerunInputs:  # fmt: skip
    """`RerunInputs`: all ranks' batches, else their inputs, joined; `own` are this rank's modules.

    Raises:
        NotRerunError: it would rightly make other numbers, or a part of the data is not known.
    """
    for recording in recordings.values():
        if recording.refused or recording.broken:
            raise NotRerunError("the script was not watched to its end")
    for module in modules:
        if why := _hindrance(module, own.get(module.key)):
            raise NotRerunError(why)
    ranks = modules[0].leaders
    joined = {
        key: _joined_batch([batches[r][key] for r in ranks if key in batches[r]])
        for key in batches[ranks[0]]
    }
    passes: dict[str, list[Any]] = {}
    for module in modules if not joined else ():
        held = [inputs[r][module.key] for r in module.leaders]
        if all(i.is_loss and not i.has_parts for i in held):  # else it reads its own batches
            columns = ([arguments for update in i.passes for arguments in update] for i in held)
            passes[module.key] = [_joined(column) for column in zip(*columns, strict=False)]
    parameters = {
        m.key: [m.present(n, m.first_rank, "parameters") for n in range(m.num_updates)]
        for m in modules
    }
    return RerunInputs(joined, passes, parameters, max(m.num_updates for m in modules))


def _hindrance(module: DistributedModule, own: nn.Module | None) -> str:
    """Why one process would make other numbers, rightly; empty where it would not."""
    if own is None or not module.updates:
        return f"{module.key} has no update on rank 0"
    if any(forward.draws for update in module.updates for forward in update.forwards):
        return f"the forward pass of {module.key}, or its loss, draws random numbers"
    kinds = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
    if any(child.training for child in own.modules() if isinstance(child, kinds)):
        return f"{module.key} normalizes over the samples of a rank"
    return ""


def _joined_batch(batches: Sequence[Batch]) -> Batch:
    """The batch of all ranks, or its samples, which the script's collator pads to one width."""
    try:
        return Batch(_joined([batch.value for batch in batches]), [])
    except NotRerunError:
        if not all(batch.samples for batch in batches):
            raise
        return Batch(None, [sample for batch in batches for sample in batch.samples])


def _joined(trees: Sequence[Any]) -> Any:
    """Batches of several ranks as one, along the first axis, or as longer lists of samples."""
    flat = [pytree.tree_flatten(tree, functools.partial(_is_sample_list, tree)) for tree in trees]
    if any(spec != flat[0][1] for _, spec in flat):
        raise NotRerunError("batches of ranks are built differently")
    whole: list[Any] = []
    for first, *others in zip(*(leaves for leaves, _ in flat), strict=True):
        if isinstance(first, Tensor) and first.dim():
            if any(other.shape[1:] != first.shape[1:] for other in others):
                raise NotRerunError("batches of ranks have different widths")
            whole.append(torch.cat([first, *others]))
        else:
            whole.append(sum(others, first) if isinstance(first, list | tuple) else first)
    return pytree.tree_unflatten(whole, flat[0][1])


def _is_sample_list(batch: Any, part: Any) -> bool:
    """Whether a part of a batch lists a value for each sample, and no columns of all samples."""
    size = next((len(tensor) for tensor in tensors_of(batch) if tensor.dim()), 0)
    if part is batch or not isinstance(part, list | tuple) or len(part) != size:
        return False
    columns = [tensor.shape[:1] == (size,) for tensor in tensors_of(part)]
    is_column = any(isinstance(value, Tensor) and value.shape[:1] == (size,) for value in part)
    return not is_column and not (columns and all(columns))


# The process


def rerun(inputs: RerunInputs, folder: PrivateFolder, words: Sequence[str]) -> Rerun:
    """The `Rerun` (gradients, inputs) of a process that runs `words`: options, script, arguments.

    Raises:
        NotRerunError: it fails, or does not end.
    """
    with folder.open(INPUTS, "wb") as file:
        torch.save(inputs, file)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TORCHELASTIC")}
    command = [sys.executable, "-m", "proofbook.companions.verify", "--as-one", str(folder.path)]
    try:
        done = subprocess.run(
            [*command, *words], env=kept | environment(0, 1, free_port()), text=True,
            capture_output=True, errors="replace", timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise NotRerunError(f"it did not end in {SECONDS:.0f} s") from error
    result = Rerun({}, {})
    failure = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    with suppress(FileNotFoundError), folder.open(RESULT) as file:
        result, failure = torch.load(file, weights_only=False)
    if failure:
        raise NotRerunError(failure)
    return result


def run_as_one(path: Path, script: str, arguments: Sequence[str]) -> NoReturn:
    """Run the script on a folder's `RerunInputs`, save gradients and inputs there, and exit."""
    processes.end_with(os.getppid())
    folder = PrivateFolder(path, PrivateFolder(path.parent))
    with folder.open(INPUTS) as file:
        inputs: RerunInputs = torch.load(file, weights_only=False)
    watch = Watch(inputs.steps, lambda _, is_finished: is_finished)
    watch.on_update = functools.partial(_begin_update, inputs, set())

    def replay_batch(key: Key, iterator: Any, _: Callable[[], Any]) -> Any:
        if key not in inputs.batches:
            raise StopIteration
        value, samples = inputs.batches[key]
        return fetcher(iterator).collate_fn(samples) if samples else value

    if inputs.batches:
        _replace_next_batch(replay_batch)
    recording = run_script(script, arguments, watch)
    gradients = {
        key: [{n: part.local for n, part in u.used.items() if part} for u in record.updates]
        for key, record in recording.roots.items()
    }
    failure = recording.broken or (recording.failure.error if recording.failure else "")
    with folder.open(RESULT, "wb") as file:
        torch.save((Rerun(gradients, inputs_of(recording)), failure), file)
    os._exit(0)


def _begin_update(inputs: RerunInputs, hooked: set[str], root: Root) -> None:
    """Begin an update from the parameters of the watched run, and its inputs without batches."""
    key, number = root.record.key, root.num_stepped
    if number < len(inputs.parameters.get(key, [])):
        with torch.no_grad():
            for name, whole in inputs.parameters[key][number].items():
                own = root.parameters[name]
                own = own.to_local() if isinstance(own, DTensor) else own
                if own.shape == whole.shape:  # else the comparison says so
                    own.copy_(whole)
    if key in inputs.inputs and key not in hooked:
        hooked.add(key)
        passes = iter(inputs.inputs[key])
        root.module.register_forward_pre_hook(
            lambda _, args, kwargs: next(passes, (args, kwargs)), with_kwargs=True, prepend=True
        )


# The comparison


def compare(
    verdict: Verdict, modules: Modules, result: Rerun, inputs: Mapping[int, Inputs]
) -> bool:
    """Whether the gradients of all updates agree with those of one process; adds what differs."""
    count = 0
    for module in modules:
        case = ModuleCase(module, modules, verdict)
        updates = result.gradients.get(module.key, [])
        if len(updates) < module.num_updates:
            case.skip("as one process, the script makes fewer updates with it")
            return False
        own, ranks = result.inputs[module.key], [inputs[r][module.key] for r in module.leaders]
        for number in range(module.num_updates):
            if not _update_agrees(case, number, updates[number], ranks, own):
                return False
        if not any(bool(gradient.any()) for update in updates for gradient in update.values()):
            case.skip("gradients: those of one process are zero, too", is_lasting=True)
            return False
        count += len(set[str]().union(*updates[: module.num_updates]))
    numbers = max(module.num_updates for module in modules)
    verdict.compared |= {"parameters_compared": count, "updates": numbers}
    return True


def _are_same(ranks: Sequence[ForwardInputs], own: ForwardInputs, number: int) -> bool:
    """Whether inputs of one process in an update hold the values that those of the ranks hold.

    They may be in any order, as samples are that ranks read alternately, or equal on all ranks, as
    positions are; rows may be longer by padding, which is one value.
    """
    if any(inputs.has_parts for inputs in (own, *ranks)):
        return False
    columns, *others = (_columns(inputs.passes[number]) for inputs in (own, *ranks))
    return all(len(other) == len(columns) for other in others) and all(
        all(value.shape == column.shape and not are_apart(column, value) for value in values)
        or _hold_same(column, torch.cat(values))
        for column, *values in zip(columns, *others, strict=True)
    )


def _columns(passes: Sequence[Any]) -> list[Tensor]:
    """The values of each tensor that a module is given, over several passes."""
    columns = zip(*map(tensors_of, passes), strict=False)
    return [torch.cat([tensor.double().flatten() for tensor in column]) for column in columns]


def _hold_same(own: Tensor, ranks: Tensor) -> bool:
    if own.shape == ranks.shape:
        return not are_apart(own.sort().values, ranks.sort().values)
    values, at = torch.cat([own, ranks]).unique(return_inverse=True)
    a, b = (part.bincount(minlength=len(values)) for part in at.split([len(own), len(ranks)]))
    return len(own) > len(ranks) and int((a != b).sum()) == 1


def _update_agrees(
    case: ModuleCase, number: int, exact: Mapping[str, Tensor], ranks: Sequence[ForwardInputs],
    own: ForwardInputs,
) -> bool:  # fmt: skip
    module, rank = case.module, case.module.first_rank
    held = module.present(number, rank, "used")
    if has_own_gradients(module, number) and are_equal_again(module):
        case.skip("gradients: each rank uses its own, and one process that of all batches")
        return False
    shapes, should = ({n: t.shape for n, t in some.items()} for some in (held, exact))
    if shapes != should:
        case.skip(
            "as one process, other parameters have a gradient, or have other shapes: name the "
            "module of one process with `--against`"
        )
        return False
    if not all(bool(gradient.isfinite().all()) for gradient in exact.values()):
        case.skip("gradients: those of one process are not finite either")
        return False
    eps = NORM * case.eps_of(rank, number)
    tolerance = {
        name: max(eps * scale, _LEAST_TOLERANCE * exact[name].double().norm().item())
        for name, scale in scales_of(exact).items()
    }
    expected = Expected({(rank, None): exact}, exact, tolerance)
    fit = compare_with_sum({rank: held}, list(exact), {rank: {(rank, None): 1.0}}, expected)
    case.verdict.keep_largest(module.key, number, "gradient", fit.errors)
    wrong = fit.wrong.get(rank, [])
    if wrong and not _are_same(ranks, own, number):
        case.skip(
            "as one process, its inputs are not those of all ranks together: they follow from the "
            "rank, from random numbers, or from the samples of one rank"
        )
    elif wrong:
        near = fit_gradients({rank: held}, wrong, expected)
        _find_cause(case, number, wrong, near.common if near.is_good else 0.0, len(exact))
    return not wrong


def _find_cause(
    case: ModuleCase, number: int, wrong: Sequence[str], factor: float, total: int
) -> None:
    module, rank = case.module, case.module.first_rank
    update, ranks = module.update(rank, number), len(module.groups)
    parts = len({forward.backward for forward in update.forwards}) or 1
    known = [cause for cause, size in factors(ranks, parts) if abs(factor / size - 1) < 1e-2]
    says = f"gradient differs from that of one process ({len(wrong)} of {total} parameters)"
    combined = (f"{loss.combining} ({loss.place})" for loss in update.losses)
    term = next((term for term in (*update.other_terms, *combined) if " of " in term), "")
    if term and not known and not update.by_hand:
        case.skip(f"{says}: {term} is not a sum over samples; each rank has its own")
        return
    cause, *others = known or [DIFFERS]
    off = in_words(factor, [ranks], parts) if factor else ""
    case.find(cause, says, update.backward_place, wrong, rank, number, off, others)
