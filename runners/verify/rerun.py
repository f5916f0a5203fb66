"""Runs a watched script again as one process, which is given the batches of all ranks.

In: what each rank's `DataLoader`s yielded, or the inputs of its forward passes where the loss is
one of their outputs. Out: the gradients that the optimizer of that process was given, in each
update from the parameters that the watched run had. It sees through any loss, and through a forward
pass that communicates; the script must run with WORLD_SIZE=1, and draw nothing.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from runners.system import processes
from runners.verify.board import environment, free_port
from runners.verify.fit import are_apart, distance, ratio, scales_of
from runners.verify.inputs import ROUNDINGS, Case
from runners.verify.internals import LoaderIterator, pytree
from runners.verify.losses import factors
from runners.verify.records import Layout, Seen, mapped, tensors_of
from runners.verify.report import Verdict
from runners.verify.roots import Root
from runners.verify.watch import Watch, run_script

SECONDS = 120.0
_MOST_BATCHES = 512
_LEAST_TOLERANCE = 1e-3  # relative: one process adds in another order
Batches = dict[tuple[int, int], Any]  # by iterator and position
Gradients = Mapping[str, Sequence[Mapping[str, Tensor]]]  # by module, update and parameter


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
    inputs: dict[str, list[Any]]  # of forward passes, by module; empty where there are batches
    parameters: dict[str, list[dict[str, Tensor]]]  # of each update, by module
    steps: int  # the number of updates


# What ranks keep


def keep_batches(is_on: Callable[[], bool]) -> Batches:
    """What `DataLoader`s will have yielded while `is_on`."""
    kept: Batches = {}

    def keep(key: tuple[int, int], following: Callable[[], Any]) -> Any:
        value = following()
        if is_on() and len(kept) < _MOST_BATCHES:
            kept[key] = mapped(value, lambda tensor: tensor.detach().clone())
        return value

    _stand_behind_loaders(keep)
    return kept


def _stand_behind_loaders(do: Callable[[tuple[int, int], Callable[[], Any]], Any]) -> None:
    """Yield what `do` returns, given the iterator's number, the position, and the original."""
    if LoaderIterator is None:
        return
    original = LoaderIterator.__next__
    numbers: dict[int, tuple[Any, int]] = {}  # of each iterator, which stays alive
    positions: dict[int, int] = {}

    def call(one: Any) -> Any:
        number = numbers.setdefault(id(one), (one, len(numbers)))[1]
        positions[number] = positions.get(number, -1) + 1
        return do((number, positions[number]), lambda: original(one))

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
        key: _joined([posted[r][key] for r in ranks if key in posted[r]])
        for key in posted[ranks[0]]
    }
    passes: dict[str, list[Any]] = {}
    for layout in layouts if not given else ():
        held = [inputs[r][layout.key] for r in layout.leaders]
        if any(one.has_parts or not one.is_loss for one in held):
            why = "its batches come from no DataLoader, and its loss is no output of a module"
            raise NotRerunError(why)
        columns = ([each for some in one.passes for each in some] for one in held)
        passes[layout.key] = [_joined(one) for one in zip(*columns, strict=False)]
    parameters: dict[str, list[dict[str, Tensor]]] = {}
    for layout in layouts:
        wholes = (layout.whole(n, layout.view, "parameters") for n in range(layout.num_updates))
        parameters[layout.key] = [
            {name: one for name, one in whole.items() if one is not None} for whole in wholes
        ]
    return Order(given, passes, parameters, max(one.num_updates for one in layouts))


def _hindrance(layout: Layout, module: nn.Module | None) -> str:
    """Why one process would make other numbers, rightly."""
    updates = [one for r in layout.records.values() for one in r.updates]
    if module is None or not updates:
        return f"{layout.key} has no update on rank 0"
    if any(forward.draws for update in updates for forward in update.forwards):
        return f"the forward pass of {layout.key} draws random numbers"
    kinds = nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
    if any(one.training for one in module.modules() if isinstance(one, kinds)):
        return f"{layout.key} normalizes over the samples of a rank"
    return ""


def _joined(trees: Sequence[Any]) -> Any:
    """Batches of several ranks as one, along the first axis.

    Raises:
        NotRerunError: they are of different kinds or shapes.
    """
    flat = [pytree.tree_flatten(one) for one in trees]
    if any(spec != flat[0][1] for _, spec in flat):
        raise NotRerunError("batches of ranks are built differently")
    try:
        whole = [
            torch.cat(column) if isinstance(column[0], Tensor) and column[0].dim() else column[0]
            for column in zip(*(leaves for leaves, _ in flat), strict=True)
        ]
    except RuntimeError as error:
        raise NotRerunError("batches of ranks have different widths") from error
    return pytree.tree_unflatten(whole, flat[0][1])


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

    def give(key: tuple[int, int], _: Callable[[], Any]) -> Any:
        if key not in given.batches:
            raise StopIteration
        return given.batches[key]

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
    key, number = root.record.key, len(root.record.updates)
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
    for layout in layouts:
        case = Case(layout, layouts, verdict)
        updates = gradients.get(layout.key, [])
        if len(updates) < layout.num_updates:
            case.skip("as one process, the script makes fewer updates with it")
            return False
        for number in range(layout.num_updates):
            held = [inputs[r][layout.key] for r in layout.leaders]
            if not _agrees(case, number, updates[number], held, own[layout.key]):
                return False
        if not any(bool(one.any()) for update in updates for one in update.values()):
            case.skip("gradients: those of one process are zero, too", is_lasting=True)
            return False
    return True


def _are_same(ranks: Sequence[Inputs], own: Inputs, number: int) -> bool:
    """Whether the inputs of one process in an update are those of the ranks together."""
    if any(each.has_parts for each in (own, *ranks)):
        return True
    try:
        columns = zip(*(each.passes[number] for each in ranks), strict=False)
        together = tensors_of([_joined(column) for column in columns])
    except NotRerunError:
        return False
    found = tensors_of(own.passes[number])
    return len(found) == len(together) and not any(map(are_apart, found, together))


def _agrees(
    case: Case, number: int, exact: Mapping[str, Tensor], ranks: Sequence[Inputs], own: Inputs
) -> bool:
    layout, view = case.layout, case.layout.view
    held = {n: one for n, one in layout.whole(number, view, "used").items() if one is not None}
    if held.keys() != exact.keys():
        case.skip("as one process, other parameters have a gradient")
        return False
    if not all(bool(one.isfinite().all()) for one in exact.values()):
        case.skip("gradients: those of one process are not finite either")
        return False
    scales, eps = scales_of(exact), ROUNDINGS * case.eps_of(view, number)
    wrong = []
    for name, one in exact.items():
        if held[name].shape != one.shape:
            case.skip(f"as one process, {name} has another shape")
            return False
        allowed = max(eps * scales[name], _LEAST_TOLERANCE * one.double().norm().item())
        if not distance(held[name], one) <= allowed:
            wrong.append(name)
    if wrong and not _are_same(ranks, own, number):
        case.skip(
            "as one process, its inputs are not those of all ranks together: the script draws "
            "random numbers, or computes them from the samples of one rank"
        )
    elif wrong:
        ratios = [ratio(held[n], exact[n]) for n in wrong]
        says = (
            f"gradient differs from that of one process ({len(wrong)} of {len(exact)} parameters)"
        )
        cause, place = _cause(layout, number, ratios), layout.update(view, number).backward_place
        detail = f"best factor of the first {ratios[0]:.4g}"
        case.find(cause, says, place, wrong, view, number, detail)
    return not wrong


def _cause(layout: Layout, number: int, ratios: Sequence[float]) -> str:
    passes = {one.backward for one in layout.update(layout.view, number).forwards}
    for cause, factor in factors(len(layout.groups), max(len(passes), 1)):
        if all(abs(one / factor - 1) < 1e-2 for one in ratios):
            return cause
    return "one process differs"
