"""Runs a watched script again as one process, which is given the batches of all ranks.

In: what each rank's `DataLoader`s yielded, or the inputs of its forward passes where the loss is
one of their outputs. Out: a `Rerun`: the gradients that the optimizer of that process was given, in
each update from the parameters that the watched run had. It sees through any loss, and through a
forward pass that communicates; the script must run with WORLD_SIZE=1, and draw nothing.
"""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree
from torch.utils.data.dataloader import _BaseDataLoaderIter

from runners.system import processes
from runners.verify.case import ROUNDINGS, Case
from runners.verify.exchange import environment, free_port
from runners.verify.layout import Layout
from runners.verify.records import Seen, mapped, tensors_of
from runners.verify.roots import Root
from runners.verify.script import run as run_script
from runners.verify.sums import distance, ratio, scales_of
from runners.verify.verdict import Verdict
from runners.verify.watch import Watch

SECONDS = 120.0
_MOST_BATCHES = 512
_LEAST_TOLERANCE = 1e-3  # relative: one process adds in another order
Batches = dict[tuple[int, int], Any]  # by iterator and position


@dataclass
class Order:
    """What the process is given."""

    batches: Batches  # of all ranks
    inputs: dict[str, list[Any]]  # of forward passes, by module; empty where there are batches
    parameters: dict[str, list[dict[str, Tensor]]]  # of each update, by module
    steps: int  # the number of updates


@dataclass
class Rerun:
    """What the process did."""

    gradients: dict[str, list[dict[str, Tensor]]] = field(default_factory=dict)  # of each update,
    # by module and parameter
    ended: str = ""  # how it failed; empty where it did not


class Loaders:
    """Stands behind all `DataLoader`s: keeps what they yield, or yields other batches.

    Args:
        given: what they yield; None to keep what they do.
        is_on: whether to keep more.
    """

    def __init__(self, given: Batches | None, is_on: Callable[[], bool]) -> None:
        self.batches: Batches = {}
        self._given, self._is_on = given, is_on
        self._numbers: dict[int, tuple[Any, int]] = {}  # of each iterator, which stays alive
        self._at: dict[int, int] = {}

    def install(self) -> None:
        """Begin."""
        original = _BaseDataLoaderIter.__next__

        def call(one: Any) -> Any:
            number = self._numbers.setdefault(id(one), (one, len(self._numbers)))[1]
            at = self._at[number] = self._at.get(number, -1) + 1
            if self._given is not None:
                if (number, at) not in self._given:
                    raise StopIteration
                return self._given[number, at]
            value = original(one)
            if self._is_on() and len(self.batches) < _MOST_BATCHES:
                self.batches[number, at] = mapped(value, lambda tensor: tensor.detach().clone())
            return value

        _BaseDataLoaderIter.__next__ = call  # type: ignore[assignment]


def joined(trees: Sequence[Any]) -> Any:
    """Batches of several ranks as one, along the first axis.

    Raises:
        ValueError: they are of different kinds or shapes.
    """
    flat = [_pytree.tree_flatten(one) for one in trees]
    if any(spec != flat[0][1] for _, spec in flat):
        raise ValueError("batches of ranks are built differently")
    columns = zip(*(leaves for leaves, _ in flat), strict=True)
    try:
        whole = [_joined_leaf(column) for column in columns]
    except RuntimeError as error:
        raise ValueError("batches of ranks have different widths") from error
    return _pytree.tree_unflatten(whole, flat[0][1])


def _joined_leaf(column: Sequence[Any]) -> Any:
    is_batch = isinstance(column[0], Tensor) and column[0].dim() > 0
    return torch.cat(list(column)) if is_batch else column[0]


def order(
    layouts: Sequence[Layout], modules: Mapping[str, nn.Module], posted: Mapping[int, Batches],
    inputs: Mapping[int, Mapping[str, list[Any] | None]], seen: Mapping[int, Seen],
) -> Order | str:  # fmt: skip
    """What one process is given, or why it cannot be given that.

    Args:
        layouts: of all modules.
        modules: of this rank.
        posted: batches of the loaders, by rank.
        inputs: of the forward passes, by rank and module.
        seen: by rank.
    """
    if why := _hindrance(layouts, modules, seen):
        return why
    ranks = layouts[0].leaders
    given: Batches = {}
    try:
        for key in posted[ranks[0]]:
            given[key] = joined([posted[r][key] for r in ranks if key in posted[r]])
        passes = {} if given else _passes(layouts, inputs)
    except ValueError as error:
        return str(error)
    if passes is None:
        return "its batches come from no DataLoader, and its loss is no output of a module"
    parameters: dict[str, list[dict[str, Tensor]]] = {}
    for layout in layouts:
        wholes = (layout.whole(n, layout.view, "parameters") for n in range(layout.num_updates))
        parameters[layout.key] = [
            {name: one for name, one in whole.items() if one is not None} for whole in wholes
        ]
    return Order(given, passes, parameters, max(one.num_updates for one in layouts))


def _hindrance(
    layouts: Sequence[Layout], modules: Mapping[str, nn.Module], seen: Mapping[int, Seen]
) -> str:
    """Why one process would make other numbers, rightly."""
    if any(one.refused or one.broken for one in seen.values()):
        return "the script was not watched to its end"
    for layout in layouts:
        updates = [one for r in layout.records.values() for one in r.updates]
        if layout.key not in modules or not updates:
            return f"{layout.key} has no update on rank 0"
        if any(forward.draws for update in updates for forward in update.forwards):
            return f"the forward pass of {layout.key} draws random numbers"
        norms = [one for one in modules[layout.key].modules() if isinstance(one, _BatchNorm)]
        if any(one.training and not isinstance(one, nn.SyncBatchNorm) for one in norms):
            return f"{layout.key} normalizes over the samples of a rank"
    return ""


def _passes(
    layouts: Sequence[Layout], inputs: Mapping[int, Mapping[str, list[Any] | None]]
) -> dict[str, list[Any]] | None:
    """Inputs of all ranks; None where the loss is computed outside of modules."""
    found = {}
    for layout in layouts:
        columns = [inputs[r][layout.key] for r in layout.leaders]
        if any(one is None for one in columns):
            return None
        found[layout.key] = [joined(one) for one in zip(*columns, strict=False)]
    return found


def inputs_of(seen: Seen) -> dict[str, list[Any] | None]:
    """The inputs of this rank's forward passes; None where a loss is computed from outputs."""
    found: dict[str, list[Any] | None] = {}
    for key, record in seen.roots.items():
        forwards = [one for update in record.updates for one in update.forwards]
        is_loss = all(not g.local.dim() for one in forwards for g in one.gradients.values())
        has_parts = any(one.spec for f in forwards for one in tensors_of(f.arguments))
        plain = [mapped(one.arguments, lambda part: part.local) for one in forwards]
        found[key] = plain if is_loss and not has_parts else None
    return found


def be(file: Path, script: str, arguments: Sequence[str]) -> NoReturn:
    """Be that process; its arguments are those of `run`."""
    processes.end_with(os.getppid())
    order: Order = torch.load(file, weights_only=False)
    watch = Watch(order.steps, lambda _, is_finished: is_finished)
    watch.on_update = functools.partial(_begin_update, order, set())
    if order.batches:
        Loaders(order.batches, lambda: False).install()
    seen = run_script(script, arguments, watch)
    gradients = {
        key: [{name: one.local for name, one in u.used.items() if one} for u in record.updates]
        for key, record in seen.roots.items()
    }
    torch.save(Rerun(gradients, seen.broken or seen.ended), file.with_suffix(".done"))
    os._exit(0)


def _begin_update(order: Order, hooked: set[str], root: Root) -> None:
    """An update begins: from the parameters of the watched run."""
    key, number = root.record.key, len(root.record.updates)
    if number < len(order.parameters.get(key, [])):
        with torch.no_grad():
            for name, whole in order.parameters[key][number].items():
                own = root.names[name]
                own = own._local_tensor if isinstance(own, DTensor) else own
                own.copy_(whole)
    if key in order.inputs and key not in hooked:
        hooked.add(key)
        inputs = iter(order.inputs[key])
        root.module.register_forward_pre_hook(
            lambda _, args, kwargs: next(inputs, (args, kwargs)), with_kwargs=True, prepend=True
        )


def run(file: Path, script: str, arguments: Sequence[str]) -> Rerun:
    """Run the script as one process.

    Args:
        file: of the `Order`; the process puts its `Rerun` beside it.
        script: its path.
        arguments: of the script.
    """
    alone = environment(0, 1, free_port())
    kept = {k: v for k, v in os.environ.items() if not k.startswith("TORCHELASTIC")}
    words = [sys.executable, "-m", "runners.verify", "--as-one", str(file), script, *arguments]
    try:
        done = subprocess.run(
            words, env={**kept, **alone}, capture_output=True, text=True, errors="replace",
            timeout=SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Rerun(ended=f"it did not end in {SECONDS:.0f} s")
    answer = file.with_suffix(".done")
    if answer.exists():
        found: Rerun = torch.load(answer, weights_only=False)
        return found
    last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    return Rerun(ended=last)


def compare(verdict: Verdict, layouts: Sequence[Layout], found: Rerun) -> bool:
    """Compare the gradients that optimizers were given; whether they agree in all modules."""
    if found.ended:
        verdict.skip(f"as one process: {found.ended}")
        return False
    for layout in layouts:
        case = Case(layout, layouts, verdict)
        updates = found.gradients.get(layout.key, [])
        if len(updates) < layout.num_updates:
            case.skip("as one process, the script makes fewer updates with it")
            return False
        for number in range(layout.num_updates):
            if not _agrees(case, number, updates[number]):
                return False
    return True


def _agrees(case: Case, number: int, exact: Mapping[str, Tensor]) -> bool:
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
    if wrong:
        factors = [ratio(held[n], exact[n]) for n in wrong]
        says = (
            f"gradient differs from that of one process ({len(wrong)} of {len(exact)} parameters)"
        )
        cause, place = _cause(layout, number, factors), layout.update(view, number).backward_place
        detail = f"best factor of the first {factors[0]:.4g}"
        case.find(cause, says, place, wrong, view, number, detail)
    return not wrong


def _cause(layout: Layout, number: int, factors: Sequence[float]) -> str:
    ranks = len(layout.groups)
    parts = len({one.backward for one in layout.update(layout.view, number).forwards})
    usual = (
        ("sum over ranks", ranks), ("divided by ranks twice", 1 / ranks),
        ("accumulation not divided", parts), ("divided by microbatches twice", 1 / parts),
    )  # fmt: skip
    for cause, factor in usual:
        if factor != 1 and all(abs(one / factor - 1) < 1e-2 for one in factors):
            return cause
    return "one process differs"
