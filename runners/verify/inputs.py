"""Compares what ranks start an update from: batches, parameters of replicas, and outputs.

In: what ranks recorded, and replays of their forward passes. Out: findings of a `Case`, which is
one module of the script. A `Tie` is a pair of matrices that start equal, as an embedding and a head
on two stages do: exactly one pair in a module, or in all stages; more of them are copies.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from runners.judging.rounding import NORM, are_apart, distance, relative
from runners.verify.records import Layout, Part, Seen, Update
from runners.verify.replay import Replayed
from runners.verify.report import Finding, Verdict
from runners.verify.roots import digest


@dataclass
class Case:
    """What is compared."""

    layout: Layout
    layouts: Sequence[Layout]  # of all modules
    verdict: Verdict
    unpreserved: str = ""  # the line of a checkpoint that draws anew
    ties: Sequence[Tie] = ()  # of weights in all layouts
    is_replayed: bool = False  # the module of one process computes what this one does, in shape

    @property
    def eps(self) -> float:
        """The step of the coarsest dtype of the module."""
        return max(one.eps for one in self.layout.records.values())

    @property
    def sum_eps(self) -> float:
        """The step of the coarsest dtype in which gradients are kept and added up."""
        return max(one.sum_eps for one in self.layout.records.values())

    def eps_of(self, rank: int, number: int) -> float:
        """The same, of the precision in which a rank's forward passes computed."""
        is_cast = any(one.autocast[0] for one in self.layout.update(rank, number).forwards)
        return max(self.eps, torch.finfo(torch.bfloat16).eps) if is_cast else self.eps

    def skip(self, why: str, *, is_lasting: bool = False) -> None:
        """Say what of this module was not compared, once; see `Verdict.skip`."""
        self.verdict.skip(f"{self.layout.key}: {why}", is_lasting=is_lasting)

    def note(self, what: str) -> None:
        """Say what is no finding, once."""
        said = f"{self.layout.key}: {what}"
        if said not in self.verdict.notes:
            self.verdict.notes.append(said)

    def find(
        self, cause: str, says: str, place: str, names: Sequence[str], rank: int | None,
        step: int | None, off: str = "", others: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Add a `Finding`; of `names` the first is shown, and `step` counts updates from 0."""
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        shown = [self.layout.key] * (len(self.layouts) > 1) + [f"{one}{more}" for one in names[:1]]
        at = None if step is None else step + 1
        self.verdict.find(
            Finding(cause, says, place, ": ".join(shown), rank, at, off, list(others))
        )


@dataclass
class Tie:
    """Two parameters, and whether they stay equal in all updates."""

    layouts: tuple[Layout, Layout]
    names: tuple[str, str]
    is_kept: bool

    def partners(self, key: str) -> Iterator[tuple[str, Layout, str]]:
        """Parameters of a module, each with the layout and the name of what it is tied to."""
        for end in (0, 1):
            if self.layouts[end].key == key:
                yield self.names[end], self.layouts[1 - end], self.names[1 - end]


def ties(layouts: Sequence[Layout]) -> Iterator[Tie]:
    """All ties."""
    known = [one for one in layouts if one.num_updates]
    stages = [one for one in known if one.first.stage is not None]
    for scope in [*([one] for one in known if one.first.stage is None), stages]:
        same: dict[str, list[tuple[Layout, str]]] = {}
        for layout in scope:
            for name, one in layout.whole(0, layout.view, "parameters").items():
                if one is not None and one.dim() > 1 and bool((one != one.flatten()[0]).any()):
                    same.setdefault(digest(one), []).append((layout, name))
        groups = [ends for ends in same.values() if len(ends) > 1]
        if len(groups) == 1 and len(groups[0]) == 2:
            (first, a), (second, b) = groups[0]
            held = (
                [one.whole(n, one.view, "parameters").get(name) for one, name in groups[0]]
                for n in range(1, min(first.num_updates, second.num_updates))
            )
            yield Tie((first, second), (a, b), not any(are_apart(*one) for one in held))


_OUTPUT_ERROR = 1e-5  # relative, in fp32; scaled with eps
_SAME_GRADIENTS = 1e-2  # of the largest one: by which equal ones on two ranks may differ, since
# one that is zero has no scale
_SAME_MOVES = 1e-2  # of a move: by which it may differ on two ranks
_SAME_OUTPUTS = 1e-3  # of two replays, relative, in fp32: more is no rounding


def compare_batches(case: Case, number: int) -> bool:
    """Ranks that share a batch have equal inputs, all others different ones.

    Returns:
        Whether those that share a batch do; else gradients have nothing to be compared with.
    """
    layout = case.layout
    forwards = {rank: layout.update(rank, number).forwards for rank in layout.records}
    digests = {rank: [one.digests for one in passes] for rank, passes in forwards.items()}
    place = next((one.place for one in forwards[layout.leaders[0]]), "")
    for first, *others in layout.groups:
        for rank in others:
            has_parts = any(one.spec for f in forwards[rank] for one in f.outputs if one)
            if digests[rank] == digests[first] or has_parts:
                continue
            says = f"ranks {first} and {rank} share a batch, but their inputs differ"
            if layout.first.takes_parts:
                case.skip(
                    f"{says}: other batches, or parts of a sequence, which `--against` and "
                    "`--split inputs=1` compare"
                )
            else:
                case.find("unequal inputs", says, place, [], rank, number)
            return False
    for rank, other in itertools.combinations(layout.leaders, 2):
        same = [one for one in digests[other] if any(one) and one in digests[rank]]
        share = f"{len(same)} of {len(digests[other])}"
        says = f"ranks {rank} and {other} train on the same inputs in {share} forward passes"
        if same and _is_varied(layout.records[other].updates):
            case.find("equal batches", says, place, [], other, number)
        elif same and not case.verdict.notes:
            case.verdict.notes.append(f"{says}, in every update")
    return True


def _is_varied(updates: Sequence[Update]) -> bool:
    """Whether no batch comes twice: a script that has one batch for all updates may mean it."""
    passes = [str(one.digests) for update in updates for one in update.forwards]
    return len({*passes}) == len(passes) and len(updates) > 1


def _note_pairs(case: Case) -> None:
    """Workers that read one stream bring each batch once each: two of them, twice in a row."""
    for rank in case.layout.leaders:
        updates = [one.forwards for one in case.layout.records[rank].updates]
        batches = [str(one.digests) for passes in updates for one in passes if one.digests]
        first, second = batches[::2], batches[1::2]
        is_paired = second == first[: len(second)] and len({*first}) == len(first) > 1
        if is_paired and any(len(passes) != 2 for passes in updates):  # two passes may be meant
            case.note(f"rank {rank} is given each batch twice in a row (by workers of one stream?)")
            return


def compare_samples(case: Case) -> None:
    """Ranks that draw samples for themselves may take one that another has."""
    _note_pairs(case)
    layout = case.layout
    counts: dict[tuple[int, int], list[int]] = {}
    for number in range(layout.num_updates):
        held = {
            r: {s for f in layout.update(r, number).forwards for s in f.samples}
            for r in layout.leaders
        }
        for rank, other in itertools.combinations(held, 2):
            common = held[rank] & held[other]
            if common and common != held[rank]:
                counts.setdefault((rank, other), []).append(len(common))
    often = [(ranks, shared) for ranks, shared in counts.items() if len(shared) > 1]
    if often and not case.verdict.findings:
        (rank, other), shared = often[0]
        case.skip(
            f"whether a sample has one rank: in an update, ranks {rank} and {other} share "
            f"{shared[0]} samples (drawn with replacement, or by each rank's own seed?)",
            is_lasting=True,
        )


def compare_replicas(case: Case, number: int, held: str = "parameters") -> None:
    """Ranks that hold the same part of a module hold the same values of it.

    Args:
        case: of the module.
        number: of the update.
        held: "parameters", before it; "after" it, which of a last update nothing else tells; or
            "used", the gradients of what ranks that share a batch hold.
    """
    layout, is_start = case.layout, held == "parameters"
    cause = "replicas start apart" if is_start and number == 0 else "replicas drift apart"
    what, least = "parameters", 0.0
    known = set[tuple[tuple[int, int], str]]()  # that the script has changed after the reduction
    if held == "used":
        used = (one for rank in layout.records for one in layout.update(rank, number).used.values())
        cause, what = "part of the sum", "gradients"
        least = _SAME_GRADIENTS * max((float(one.local.norm()) for one in used if one), default=0.0)
        raw = _copies(layout, number, "after_backward")
        known |= {(ranks, name) for ranks, name, *two in raw if not are_apart(*two)}
    apart: dict[tuple[int, int], dict[str, float]] = {}
    for ranks, name, one, other in _copies(layout, number, held):
        is_same = (ranks, name) in known or distance(one, other) <= least
        if are_apart(one, other) and not is_same:
            apart.setdefault(ranks, {})[name] = relative(one, other)
    for (peer, rank), names in apart.items():
        parts = layout.update(rank, number).parameters
        is_known = case.is_replayed or rank in layout.leaders
        if is_known or all(_is_whole(parts, name) for name in names):
            update = layout.update(rank, max(number - is_start, 0))
            place = update.step_place or update.backward_place
            says = f"{what} of ranks {peer} and {rank} differ by {max(names.values()):.2g} of their"
            case.find(cause, f"{says} maximum", place, [*names], rank, number)
            return
        case.skip(f"{next(iter(names))}: ranks {peer} and {rank} hold other parts, or one is wrong")


def _is_whole(parts: Mapping[str, Part], name: str) -> bool:
    """Whether a shape tells of no division by hand: no axis is as long as a part of another's."""
    held = [zip(one.local.shape, one.shape, strict=True) for one in parts.values() if one.spec]
    pairs = {pair for one in held for pair in one}
    cut = {part for part, whole in pairs if part != whole}
    return bool(parts[name].spec) or {*parts[name].shape} <= {whole for _, whole in pairs} - cut


def _copies(
    layout: Layout, number: int, held: str
) -> Iterator[tuple[tuple[int, int], str, Tensor, Tensor]]:
    """What two ranks hold of the same place in a tensor, the first of all that hold it first."""
    first: dict[Any, tuple[int, Tensor]] = {}
    for leader, rank in ((group[0], rank) for group in layout.groups for rank in group):
        for name, part in getattr(layout.update(rank, number), held).items():
            if part is None:
                continue
            place, spec = [name, leader if held in ("used", "after_backward") else None], part.spec
            if spec is not None:
                at = (spec.mesh == rank).nonzero()[0].tolist()
                kinds = (one[0] for one in spec.placements)
                place += [i for i, kind in zip(at, kinds, strict=True) if kind != "replicate"]
            peer, own = first.setdefault(tuple(place), (rank, part.local))
            if peer != rank:
                yield (peer, rank), name, own, part.local


def has_own_gradients(layout: Layout, number: int) -> bool:
    """Whether optimizers of different ranks are given different gradients."""
    first, *others = (layout.whole(number, rank, "used") for rank in layout.views())
    held = [(n, one) for n, one in first.items() if one is not None]
    return any(are_apart(one, other.get(n)) for other in others for n, one in held)


def are_equal_again(layout: Layout) -> bool:
    """Whether replicas begin each update after the first equal, though they have moved."""
    has_moved = False
    for number in range(1, layout.num_updates + layout.has_later):
        for (_, rank), name, one, other in _copies(layout, number, "parameters"):
            before = layout.update(rank, number - 1).parameters[name].local
            moved = distance(other, before)
            if distance(one, other) > _SAME_MOVES * moved:
                return False
            has_moved |= moved > 0
    return has_moved


def compare_quiet(verdict: Verdict, layouts: Sequence[Layout], seen: Mapping[int, Seen]) -> None:
    """Modules that run without gradients, as targets and teachers do, are replicas, too."""
    records = (one for layout in layouts for one in layout.records.values())
    is_divided = any(update.by_hand for one in records for update in one.updates)
    for key in dict.fromkeys(key for one in seen.values() for key in one.quiet):
        held = {rank: one.quiet[key] for rank, one in seen.items() if key in one.quiet}
        first, (own, *_) = min(held), held.values()
        shared = [at for at in own if all(at in one for one in held.values())]
        apart = [
            (at, r) for at in shared for r, one in held.items() if not _equal(one[at], own[at])
        ]
        for at, rank in apart[:1]:
            says = f"{key} runs without gradients; its parameters on ranks {first} and {rank} "
            twin = next(_twins(layouts, [one[at] for one in held.values()]), "")
            if at != shared[0] and not is_divided:
                cause, says = "replicas drift apart", f"{says}are equal at first, and not later"
            elif twin and not at[0]:  # before the first step
                cause = "replicas start apart"
                says += f"differ: not all are copies of {twin}, whose replicas are equal"
            else:
                verdict.skip(f"{says}differ: right only where each rank has a teacher of its own")
                continue
            verdict.find(Finding(cause, says, at[1], key, rank, at[0] + 1))


def _twins(layouts: Sequence[Layout], held: Sequence[Sequence[Tensor]]) -> Iterator[str]:
    """Trained modules, or parts of them, equal on all ranks, of which a rank begins with a copy."""
    for layout in (one for one in layouts if one.num_updates):
        first, *others = (layout.update(rank, 0).parameters for rank in layout.records)
        for path in sorted({"", *(n[:i] for n in first for i, c in enumerate(n) if c == ".")}):
            names = [one for one in first if not path or one.startswith(f"{path}.")]
            parts = [first[one].local for one in names]
            peers = [[own[one].local for one in names if one in own] for own in others]
            if any(_equal(one, parts) for one in held) and all(_equal(one, parts) for one in peers):
                yield f"{layout.key}: {path}" if path else layout.key


def _equal(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return len(some) == len(others) and not any(map(are_apart, some, others))


def compare_outputs(case: Case, number: int, runs: Mapping[int, Replayed]) -> bool:
    """Whether replays have the outputs that the script had; else gradients are not compared."""
    for rank, run in runs.items():
        same = max(_SAME_OUTPUTS, NORM * case.eps_of(rank, number))
        forwards = case.layout.update(rank, number).forwards
        for forward, (error, rounding) in zip(forwards, run.errors, strict=False):
            is_known = rounding <= same  # else two replays differ, too
            allowed = max(rounding, _OUTPUT_ERROR * case.eps / 1.2e-7)
            if is_known and error <= NORM * allowed:
                continue
            says = f"by {max(error, rounding):.2g} of their size"
            if case.layout.is_tensor_parallel and is_known and not forward.draws:
                says = f"outputs differ from those of one process {says}"
                case.find("outputs differ", says, forward.place, [], rank, number)
            else:
                why = "it draws random numbers that one process draws otherwise, or "
                case.skip(
                    f"the outputs of the replay are off {says} ("
                    f"{why * (forward.draws or not is_known)}its forward pass depends on more than "
                    "inputs and parameters)"
                )
            return False
    return True
