"""Runs a watched script again as one process, which is given the batches of all ranks.

In: what each rank's `DataLoader`s yielded, or the inputs of its forward passes where the loss is
one of their outputs; without either, the script reads its own batches. Out: the gradients that the
optimizer was given, in each update from the parameters of the watched run. It sees through any
loss, and through a forward pass that communicates; the script must run with WORLD_SIZE=1, and draw
nothing.
"""

from __future__ import annotations

import copy
import functools
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from runners.core.system import processes
from runners.judging.rounding import NORM, are_apart
from runners.verify.board import environment, free_port
from runners.verify.fit import Expected, compared, fitted, scales_of
from runners.verify.inputs import Case, are_equal_again, has_own_gradients
from runners.verify.internals import LoaderIterator, fetcher, pytree
from runners.verify.losses import factors
from runners.verify.records import Layout, Seen, mapped, tensors_of
from runners.verify.report import Verdict, in_words
from runners.verify.roots import Root
from runners.verify.watch import Watch, run_script

SECONDS = 120.0
DIFFERS = "one process differs"  # a cause that says no more
_MOST_BATCHES = 512
_LEAST_TOLERANCE = 1e-3  # relative: one process adds in another order
Key = tuple[int, int]  # of a batch: iterator and position
Gradients = Mapping[str, Sequence[Mapping[str, Tensor]]]  # by module, update and parameter


class Batch(NamedTuple):
    """What a loader yields."""

    value: Any
    samples: list[Any]  # that the script's collator was given; empty where that is not known


Batches = dict[Key, Batch]


class Inputs(NamedTuple):
    """The arguments of a module's forward passes on one rank."""

    passes: list[list[Any]]  # of each update
    is_loss: bool  # whether an output is the loss; else the script computes it from outputs
    has_parts: bool  # whether other ranks hold the rest of them


Made = tuple[Gradients, Mapping[str, Inputs]]  # by one process, and from which inputs


class NotRerunError(Exception):
    """One process cannot run the script, and why."""


@dataclass
class Order:
    """What the process is given."""

    batches: Batches  # of all ranks
    inputs: dict[str, list[Any]]  # of forward passes, by module, where there are no batches
    parameters: dict[str, list[dict[str, Tensor]]]  # of each update, by module
    steps: int  # the number of updates


# What ranks keep


def keep_batches(is_on: Callable[[], bool]) -> Batches:
    """What `DataLoader`s will have yielded while `is_on`."""
    kept: Batches = {}

    def keep(key: Key, iterator: Any, following: Callable[[], Any]) -> Any:
        if not is_on() or len(kept) >= _MOST_BATCHES:
            return following()
        samples: list[Any] = []
        source = fetcher(iterator)
        collate = source and source.collate_fn

        def collated(given: Any) -> Any:
            samples.extend(copy.deepcopy(given) if isinstance(given, list) else [])
            return collate(given)  # which may change the samples

        if source:
            source.collate_fn = collated
        value = following()
        if source:
            source.collate_fn = collate
        kept[key] = Batch(mapped(value, lambda tensor: tensor.detach().clone()), samples)
        return value

    _stand_behind_loaders(keep)
    return kept


def _stand_behind_loaders(do: Callable[[Key, Any, Callable[[], Any]], Any]) -> None:
    """Yield what `do` returns, given the key, the iterator, and the original."""
    if LoaderIterator is None:
        return
    original = LoaderIterator.__next__
    numbers: dict[int, tuple[Any, int]] = {}  # of each iterator, which stays alive
    positions = Counter[int]()

    def call(one: Any) -> Any:
        number = numbers.setdefault(id(one), (one, len(numbers)))[1]
        positions[number] += 1
        return do((number, positions[number]), one, lambda: original(one))

    LoaderIterator.__next__ = call


def inputs_of(seen: Seen) -> dict[str, Inputs]:
    """The inputs of this rank's forward passes, by module."""
    found = {}
    for key, record in seen.roots.items():
        forwards = [one for update in record.updates for one in update.forwards]
        is_loss = all(not g.local.dim() for one in forwards for g in one.gradients.values())
        has_parts = any(one.spec for f in forwards for one in tensors_of(f.arguments))
        plain = [
            mapped([f.arguments for f in u.forwards], lambda p: p.local) for u in record.updates
        ]
        found[key] = Inputs(plain, is_loss, has_parts)
    return found


# What one process is given


def order(
    layouts: Sequence[Layout], modules: Mapping[str, nn.Module], posted: Mapping[int, Batches],
    inputs: Mapping[int, Mapping[str, Inputs]], seen: Mapping[int, Seen],
) -> Order:  # fmt: skip
    """What one process is given.

    Args:
        layouts: of all modules.
        modules: of this rank.
        posted: batches of the loaders, by rank.
        inputs: of the forward passes, by rank and module.
        seen: by rank.

    Raises:
        NotRerunError: it would rightly make other numbers, or what it needs is not known.
    """
    if any(one.refused or one.broken for one in seen.values()):
        raise NotRerunError("the script was not watched to its end")
    for layout in layouts:
        if why := _hindrance(layout, modules.get(layout.key)):
            raise NotRerunError(why)
    ranks = layouts[0].leaders
    given = {
        key: _together([posted[r][key] for r in ranks if key in posted[r]])
        for key in posted[ranks[0]]
    }
    passes: dict[str, list[Any]] = {}
    for layout in layouts if not given else ():
        held = [inputs[r][layout.key] for r in layout.leaders]
        if all(one.is_loss and not one.has_parts for one in held):  # else it reads its own batches
            columns = ([each for some in one.passes for each in some] for one in held)
            passes[layout.key] = [_joined(one) for one in zip(*columns, strict=False)]
    parameters = {
        layout.key: [
            _known(layout.whole(n, layout.view, "parameters")) for n in range(layout.num_updates)
        ]
        for layout in layouts
    }
    return Order(given, passes, parameters, max(one.num_updates for one in layouts))


def _known(tensors: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    return {name: one for name, one in tensors.items() if one is not None}


def _hindrance(layout: Layout, module: nn.Module | None) -> str:
    """Why one process would make other numbers, rightly."""
    updates = [one for r in layout.records.values() for one in r.updates]
    if module is None or not updates:
        return f"{layout.key} has no update on rank 0"
    if any(forward.draws for update in updates for forward in update.forwards):
        return f"the forward pass of {layout.key}, or its loss, draws random numbers"
    kinds = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
    if any(one.training for one in module.modules() if isinstance(one, kinds)):
        return f"{layout.key} normalizes over the samples of a rank"
    return ""


def _together(batches: Sequence[Batch]) -> Batch:
    """The batch of all ranks, or its samples, which the script's collator pads to one width."""
    try:
        return Batch(_joined([one.value for one in batches]), [])
    except NotRerunError:
        samples = [one for each in batches for one in each.samples]
        if not all(one.samples for one in batches):
            raise
        return Batch(None, samples)


def _joined(trees: Sequence[Any]) -> Any:
    """Batches of several ranks as one, along the first axis, or as longer lists of samples.

    Raises:
        NotRerunError: they are of different kinds or shapes.
    """
    flat = [pytree.tree_flatten(one, functools.partial(_is_listed, one)) for one in trees]
    if any(spec != flat[0][1] for _, spec in flat):
        raise NotRerunError("batches of ranks are built differently")
    whole: list[Any] = []
    for first, *others in zip(*(leaves for leaves, _ in flat), strict=True):
        if isinstance(first, Tensor) and first.dim():
            if any(one.shape[1:] != first.shape[1:] for one in others):
                raise NotRerunError("batches of ranks have different widths")
            whole.append(torch.cat([first, *others]))
        else:
            whole.append(sum(others, first) if isinstance(first, list | tuple) else first)
    return pytree.tree_unflatten(whole, flat[0][1])


def _is_listed(batch: Any, part: Any) -> bool:
    """Whether a part of a batch lists something for each sample, and no columns of all samples."""
    size = next((len(one) for one in tensors_of(batch) if one.dim()), 0)
    if part is batch or not isinstance(part, list | tuple) or len(part) != size:
        return False
    columns = [one.shape[:1] == (size,) for one in tensors_of(part)]
    is_column = any(isinstance(one, Tensor) and one.shape[:1] == (size,) for one in part)
    return not is_column and not (columns and all(columns))


# The process


def run(given: Order, folder: Path, words: Sequence[str]) -> Made:
    """Run the script as one process.

    Args:
        given: to that process.
        folder: for the files that are passed to it and back.
        words: `--cpu` if the script needs it, the script, and its arguments.

    Raises:
        NotRerunError: it fails, or does not end.
    """
    file = folder / "order.pt"
    torch.save(given, file)
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TORCHELASTIC")}
    command = [sys.executable, "-m", "runners.verify", "--as-one", str(file), *words]
    try:
        done = subprocess.run(
            command, env=kept | environment(0, 1, free_port()), capture_output=True, text=True,
            errors="replace", timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired as error:
        raise NotRerunError(f"it did not end in {SECONDS:.0f} s") from error
    made: Made = {}, {}
    ended = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    if (answer := file.with_suffix(".done")).exists():
        made, ended = torch.load(answer, weights_only=False)
    if ended:
        raise NotRerunError(ended)
    return made


def be(file: Path, script: str, arguments: Sequence[str]) -> NoReturn:
    """Be that process; `file` has the `Order`."""
    processes.end_with(os.getppid())
    given: Order = torch.load(file, weights_only=False)
    watch = Watch(given.steps, lambda _, is_finished: is_finished)
    watch.on_update = functools.partial(_begin_update, given, set())

    def give(key: Key, iterator: Any, _: Callable[[], Any]) -> Any:
        if key not in given.batches:
            raise StopIteration
        value, samples = given.batches[key]
        return fetcher(iterator).collate_fn(samples) if samples else value

    if given.batches:
        _stand_behind_loaders(give)
    seen = run_script(script, arguments, watch)
    gradients = {
        key: [{name: one.local for name, one in u.used.items() if one} for u in record.updates]
        for key, record in seen.roots.items()
    }
    made = gradients, inputs_of(seen)
    torch.save((made, seen.broken or seen.ended), file.with_suffix(".done"))
    os._exit(0)


def _begin_update(given: Order, hooked: set[str], root: Root) -> None:
    """An update begins: from the parameters of the watched run."""
    key, number = root.record.key, root.num_stepped
    if number < len(given.parameters.get(key, [])):
        with torch.no_grad():
            for name, whole in given.parameters[key][number].items():
                own = root.names[name]
                own = own.to_local() if isinstance(own, DTensor) else own
                own.copy_(whole)
    if key in given.inputs and key not in hooked:
        hooked.add(key)
        inputs = iter(given.inputs[key])
        root.module.register_forward_pre_hook(
            lambda _, args, kwargs: next(inputs, (args, kwargs)), with_kwargs=True, prepend=True
        )


# The comparison


def compare(
    verdict: Verdict, layouts: Sequence[Layout], made: Made,
    inputs: Mapping[int, Mapping[str, Inputs]],
) -> bool:  # fmt: skip
    """Compare the gradients that optimizers were given; whether they agree in all modules."""
    gradients, own = made
    count = 0
    for layout in layouts:
        case = Case(layout, layouts, verdict)
        updates = gradients.get(layout.key, [])
        if len(updates) < layout.num_updates:
            case.skip("as one process, the script makes fewer updates with it")
            return False
        held = [inputs[r][layout.key] for r in layout.leaders]
        for number in range(layout.num_updates):
            if not _agrees(case, number, updates[number], held, own[layout.key]):
                return False
        if not any(bool(one.any()) for update in updates for one in update.values()):
            case.skip("gradients: those of one process are zero, too", is_lasting=True)
            return False
        count += len(set[str]().union(*updates[: layout.num_updates]))
    numbers = max(one.num_updates for one in layouts)
    verdict.compared |= {"parameters_compared": count, "updates": numbers}
    return True


def _are_same(ranks: Sequence[Inputs], own: Inputs, number: int) -> bool:
    """Whether inputs of one process in an update hold the values that those of the ranks hold.

    They may be in any order, as samples are that ranks read alternately, or equal on all ranks, as
    positions are; rows may be longer by padding, which is one value.
    """
    if any(each.has_parts for each in (own, *ranks)):
        return False
    found, *others = (_columns(each.passes[number]) for each in (own, *ranks))
    return all(len(one) == len(found) for one in others) and all(
        all(one.shape == column.shape and not are_apart(column, one) for one in each)
        or _hold_same(column, torch.cat(each))
        for column, *each in zip(found, *others, strict=True)
    )


def _columns(passes: Sequence[Any]) -> list[Tensor]:
    """The values of each tensor that a module is given, over several passes."""
    columns = zip(*map(tensors_of, passes), strict=False)
    return [torch.cat([one.double().flatten() for one in column]) for column in columns]


def _hold_same(own: Tensor, ranks: Tensor) -> bool:
    if own.shape == ranks.shape:
        return not are_apart(own.sort().values, ranks.sort().values)
    values, at = torch.cat([own, ranks]).unique(return_inverse=True)
    counts = [one.bincount(minlength=len(values)) for one in at.split([len(own), len(ranks)])]
    return len(own) > len(ranks) and int((counts[0] != counts[1]).sum()) == 1


def _agrees(
    case: Case, number: int, exact: Mapping[str, Tensor], ranks: Sequence[Inputs], own: Inputs
) -> bool:
    layout, view = case.layout, case.layout.view
    held = _known(layout.whole(number, view, "used"))
    if has_own_gradients(layout, number) and are_equal_again(layout):
        case.skip("gradients: each rank uses its own, and one process that of all batches")
        return False
    if {n: one.shape for n, one in held.items()} != {n: one.shape for n, one in exact.items()}:
        case.skip("as one process, other parameters have a gradient, or have other shapes")
        return False
    if not all(bool(one.isfinite().all()) for one in exact.values()):
        case.skip("gradients: those of one process are not finite either")
        return False
    eps = NORM * case.eps_of(view, number)
    tolerance = {
        name: max(eps * scale, _LEAST_TOLERANCE * exact[name].double().norm().item())
        for name, scale in scales_of(exact).items()
    }
    expected = Expected({(view, None): exact}, exact, tolerance)
    fit = compared({view: held}, list(exact), {view: {(view, None): 1.0}}, expected)
    case.verdict.keep(layout.key, number, "gradient", fit.errors)
    wrong = fit.wrong.get(view, [])
    if wrong and not _are_same(ranks, own, number):
        case.skip(
            "as one process, its inputs are not those of all ranks together: the script draws "
            "random numbers, or computes them from the samples of one rank"
        )
    elif wrong:
        near = fitted({view: held}, wrong, expected)
        _find(case, number, wrong, near.common if near.is_good else 0.0, len(exact))
    return not wrong


def _find(case: Case, number: int, wrong: Sequence[str], factor: float, total: int) -> None:
    layout, update = case.layout, case.layout.update(case.layout.view, number)
    ranks, parts = len(layout.groups), len({one.backward for one in update.forwards}) or 1
    known = [cause for cause, one in factors(ranks, parts) if abs(factor / one - 1) < 1e-2]
    says = f"gradient differs from that of one process ({len(wrong)} of {total} parameters)"
    terms = [*update.other_terms, *(f"{one.combining} ({one.place})" for one in update.losses)]
    combined = next((one for one in terms if " of " in one), "")
    if combined and not known and not update.by_hand:
        case.skip(f"{says}: {combined} is not a sum over samples; each rank has its own")
        return
    cause, *others = known or [DIFFERS]
    off = in_words(factor, [ranks], parts) if factor else ""
    case.find(cause, says, update.backward_place, wrong, layout.view, number, off, others)
