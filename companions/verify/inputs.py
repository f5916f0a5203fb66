"""Compares batches, parameters of replicas, and outputs of forward passes between ranks.

In: what ranks recorded, and replays of their forward passes. Out: findings of a `ModuleCase`, which
is the comparison of one module. A `Tie` is a pair of matrices that start equal, as an embedding and
a head on two stages do: exactly one pair in a module, or in all stages; more of them are copies.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from proofbook.companions.verify import records
from proofbook.companions.verify.records import DistributedModule, Modules
from proofbook.companions.verify.replay import Replay
from proofbook.companions.verify.report import Finding, Verdict
from proofbook.companions.verify.roots import digest
from proofbook.runners.judging.rounding import NORM, are_apart, distance, relative


@dataclass
class ModuleCase:
    """The comparison of one module: its ranks, and the verdict that gets its findings."""

    module: DistributedModule
    modules: Modules  # all of the script
    verdict: Verdict
    unpreserved: str = ""  # the line of a checkpoint that draws anew
    ties: Sequence[Tie] = ()  # of weights in all modules
    cut: str = ""  # the line of the first call that passes no gradient back
    is_replayed: bool = False  # the replay computes outputs of the recorded shapes

    @property
    def counted_again(self) -> set[tuple[str, str]]:
        """Keys and names of weights that another stage has, too."""
        kept = (tie for tie in self.ties if tie.is_kept and tie.modules[0] is not tie.modules[1])
        return {(tie.modules[1].key, tie.names[1]) for tie in kept}

    @property
    def eps(self) -> float:
        """The eps of the coarsest dtype of the module."""
        return max(record.eps for record in self.module.records.values())

    @property
    def sum_eps(self) -> float:
        """The eps of the coarsest dtype in which gradients are kept and added up."""
        return max(record.sum_eps for record in self.module.records.values())

    def eps_of(self, rank: int, number: int) -> float:
        """The eps of the precision in which a rank's forward passes computed."""
        is_cast = any(forward.autocast[0] for forward in self.module.update(rank, number).forwards)
        return max(self.eps, torch.finfo(torch.bfloat16).eps) if is_cast else self.eps

    def skip(self, why: str, *, is_lasting: bool = False) -> None:
        """Add a gap of this module to the verdict, once; see `Verdict.skip`."""
        self.verdict.skip(f"{self.module.key}: {why}", is_lasting=is_lasting)

    def note(self, text: str) -> None:
        """Add a note on this module to the verdict, once."""
        note = f"{self.module.key}: {text}"
        if note not in self.verdict.notes:
            self.verdict.notes.append(note)

    def find(
        self, cause: str, says: str, place: str, names: Sequence[str], rank: int | None,
        step: int | None, off: str = "", others: Sequence[str] = (),
    ) -> None:  # fmt: skip
        """Add a `Finding` to the verdict, of the first of `names`; `step` counts updates from 0."""
        more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        key = [self.module.key] * (len(self.modules) > 1)
        parameter = ": ".join(key + [name + more for name in names[:1]])
        at = None if step is None else step + 1
        self.verdict.find(Finding(cause, says, place, parameter, rank, at, off, list(others)))


@dataclass
class Tie:
    """Two parameters that start equal, and whether they stay equal in all updates."""

    modules: tuple[DistributedModule, DistributedModule]
    names: tuple[str, str]
    is_kept: bool

    def partners(self, key: str) -> Iterator[tuple[str, DistributedModule, str]]:
        """Parameters of a module, each with the module and the name of its partner."""
        for end in (0, 1):
            if self.modules[end].key == key:
                yield self.names[end], self.modules[1 - end], self.names[1 - end]


def find_ties(modules: Modules) -> Iterator[Tie]:
    """Yield a `Tie` for each module, and for all stages, where just two matrices begin equal."""
    known = [module for module in modules if module.num_updates]
    stages = [module for module in known if module.first.stage is not None]
    for scope in [*([module] for module in known if module.first.stage is None), stages]:
        same: dict[str, list[tuple[DistributedModule, str]]] = {}
        for module in scope:
            for name, own in module.present(0, module.first_rank, "parameters").items():
                if own.dim() > 1 and bool((own != own.flatten()[0]).any()):
                    same.setdefault(digest(own), []).append((module, name))
        groups = [ends for ends in same.values() if len(ends) > 1]
        if len(groups) == 1 and len(groups[0]) == 2:
            (first, a), (second, b) = groups[0]
            values = (
                [m.whole(n, m.first_rank, "parameters").get(name) for m, name in groups[0]]
                for n in range(1, min(first.num_updates, second.num_updates))
            )
            yield Tie((first, second), (a, b), not any(are_apart(*pair) for pair in values))


_OUTPUT_ERROR = 1e-5  # relative, in fp32; scaled with eps
_SAME_GRADIENTS = 1e-2  # of the largest one: by which equal ones on two ranks may differ, since
# one that is zero has no scale
_SAME_MOVES = 1e-2  # of a move: by which it may differ on two ranks
_SAME_OUTPUTS = 1e-3  # of two replays, relative, in fp32: more is no rounding


def compare_batches(case: ModuleCase, number: int) -> bool:
    """Whether ranks of a batch have equal inputs; adds a finding if not, or if groups share."""
    module = case.module
    passes = {rank: module.update(rank, number).forwards for rank in module.records}
    digests = {rank: [forward.digests for forward in own] for rank, own in passes.items()}
    place = next((forward.place for forward in passes[module.leaders[0]]), "")
    for first, *others in module.groups:
        for rank in others:
            has_parts = any(part.spec for f in passes[rank] for part in f.outputs if part)
            if digests[rank] == digests[first] or has_parts:
                continue
            says = f"ranks {first} and {rank} share a batch, but their inputs differ"
            if module.first.takes_parts:
                case.skip(
                    f"{says}: other batches, or parts of a sequence, which `--against` and "
                    "`--split inputs=1` compare"
                )
            else:
                specs = module.records[first].specs
                is_apart = specs and not any(rank in spec.ranks for spec in specs)
                cause = "replicas left out" if is_apart else "unequal inputs"
                case.find(cause, says, place, [], rank, number)
            return False
    for rank, other in itertools.combinations(module.leaders, 2):
        same = [own for own in digests[other] if any(own) and own in digests[rank]]
        share = f"{len(same)} of {len(digests[other])}"
        says = f"ranks {rank} and {other} train on the same inputs in {share} forward passes"
        if same and _is_varied(module.records[other].updates):
            case.find("equal batches", says, place, [], other, number)
        elif same and not case.verdict.notes:
            case.verdict.notes.append(f"{says}, in every update")
    return True


def _is_varied(updates: Sequence[records.UpdateRecord]) -> bool:
    """Whether no batch comes twice: a script that has one batch for all updates may mean it."""
    batches = [str(forward.digests) for update in updates for forward in update.forwards]
    return len({*batches}) == len(batches) and len(updates) > 1


def _note_pairs(case: ModuleCase) -> None:
    """Note a rank that reads each batch twice in a row, as two workers of one stream give it."""
    for rank in case.module.leaders:
        passes = [update.forwards for update in case.module.records[rank].updates]
        batches = [str(forward.digests) for own in passes for forward in own if forward.digests]
        first, second = batches[::2], batches[1::2]
        is_paired = second == first[: len(second)] and len({*first}) == len(first) > 1
        if is_paired and any(len(own) != 2 for own in passes):  # two passes may be meant
            case.note(f"rank {rank} is given each batch twice in a row (by workers of one stream?)")
            return


def compare_samples(case: ModuleCase) -> None:
    """Add a gap where two ranks share some samples, but not all, in at least two updates."""
    _note_pairs(case)
    module = case.module
    counts: dict[tuple[int, int], list[int]] = {}
    for number in range(module.num_updates):
        samples = {
            rank: {s for f in module.update(rank, number).forwards for s in f.samples}
            for rank in module.leaders
        }
        for rank, other in itertools.combinations(samples, 2):
            common = samples[rank] & samples[other]
            if common and common != samples[rank]:
                counts.setdefault((rank, other), []).append(len(common))
    often = [(ranks, shared) for ranks, shared in counts.items() if len(shared) > 1]
    if often and not case.verdict.findings:
        (rank, other), shared = often[0]
        case.skip(
            f"whether a sample has one rank: in an update, ranks {rank} and {other} share "
            f"{shared[0]} samples (drawn with replacement, or by each rank's own seed?)",
            is_lasting=True,
        )


def compare_generators(case: ModuleCase) -> None:
    """Add a gap where ranks of different batches draw the same random numbers in all passes."""
    module = case.module
    seeds = {
        rank: [f.seed for n in range(module.num_updates) for f in module.update(rank, n).forwards]
        for rank in module.leaders
    }
    for rank, other in itertools.combinations(seeds, 2):
        if any(seeds[rank]) and seeds[rank] == seeds[other]:
            case.skip(
                f"random numbers: ranks {rank} and {other} draw the same ones for other samples "
                "(one seed, or one restored state?); one process draws new ones for each sample",
                is_lasting=True,
            )
            return


def compare_replicas(case: ModuleCase, number: int, attribute: str = "parameters") -> None:
    """Add a finding or gap where ranks that hold the same part of a module differ in its values.

    `attribute` is "parameters", before the update; "after" it, for a last update; or "used", the
    gradients, of ranks that share a batch.
    """
    module, is_start = case.module, attribute == "parameters"
    cause = "replicas start apart" if is_start and number == 0 else "replicas drift apart"
    kind, least = "parameters", 0.0
    known = set[tuple[tuple[int, int], str]]()  # that the script has changed after the reduction
    if attribute == "used":
        cause, kind = cause_of_part(module, number), "gradients"
        least = _SAME_GRADIENTS * max(
            (
                float(part.local.norm()) for rank in module.records
                for part in module.update(rank, number).used.values() if part
            ),
            default=0.0,
        )  # fmt: skip
        reduced = _copies(module, number, "after_backward")
        known |= {(ranks, name) for ranks, name, a, b in reduced if not are_apart(a, b)}
    apart: dict[tuple[int, int], dict[str, float]] = {}
    for ranks, name, own, other in _copies(module, number, attribute):
        is_same = (ranks, name) in known or distance(own, other) <= least
        if are_apart(own, other) and not is_same:
            apart.setdefault(ranks, {})[name] = relative(own, other)
    for (peer, rank), names in apart.items():
        parts = module.update(rank, number).parameters
        is_known = case.is_replayed or rank in module.leaders
        if is_known or all(_is_whole(parts, name) for name in names):
            update = module.update(rank, max(number - is_start, 0))
            place = update.step_place or update.backward_place
            says = (
                f"{kind} of ranks {peer} and {rank} differ, at most by {max(names.values()):.2g} "
            )
            says += "times the largest of them"
            case.find(cause, says, place, [*names], rank, number)
            return
        case.skip(f"{next(iter(names))}: ranks {peer} and {rank} hold other parts, or one is wrong")


def cause_of_part(module: DistributedModule, number: int) -> str:
    """The cause of a gradient that ranks which share a batch have only in part."""
    passes = (module.update(rank, number).forwards for rank in module.records)
    has_other = len({tuple(forward.seed for forward in own) for own in passes}) > 1
    is_drawn_apart = module.is_tensor_parallel and has_other
    return "unequal random numbers" if is_drawn_apart else "part of the sum"


def _is_whole(parts: Mapping[str, records.LocalPart], name: str) -> bool:
    """Whether a parameter is not divided by hand: no axis is as long as a part of another's."""
    pairs = {
        pair for part in parts.values() if part.spec
        for pair in zip(part.local.shape, part.shape, strict=True)
    }  # fmt: skip
    cut = {local for local, whole in pairs if local != whole}
    return bool(parts[name].spec) or {*parts[name].shape} <= {whole for _, whole in pairs} - cut


def _copies(
    module: DistributedModule, number: int, attribute: str
) -> Iterator[tuple[tuple[int, int], str, Tensor, Tensor]]:
    """Pairs of ranks that hold the same part of a tensor, its name, and both values.

    The first rank of a pair is the first of all that hold it.
    """
    first: dict[Any, tuple[int, Tensor]] = {}
    for leader, rank in ((group[0], rank) for group in module.groups for rank in group):
        for name, part in getattr(module.update(rank, number), attribute).items():
            if part is None:
                continue
            place, spec = [name], part.spec
            if attribute in ("used", "after_backward"):
                place.append(leader)
            if spec is not None:
                at = (spec.mesh == rank).nonzero()[0].tolist()
                kinds = (kind for kind, *_ in spec.placements)
                place += [i for i, kind in zip(at, kinds, strict=True) if kind != "replicate"]
            peer, own = first.setdefault(tuple(place), (rank, part.local))
            if peer != rank:
                yield (peer, rank), name, own, part.local


def has_own_gradients(module: DistributedModule, number: int) -> bool:
    """Whether optimizers of different ranks are given different gradients."""
    first, *others = (module.whole(number, rank, "used") for rank in module.replicas())
    known = [(name, own) for name, own in first.items() if own is not None]
    return any(are_apart(own, other.get(name)) for other in others for name, own in known)


def are_equal_again(module: DistributedModule) -> bool:
    """Whether replicas begin each update after the first equal, though they have moved."""
    has_moved = False
    for number in range(1, module.num_updates + module.has_later):
        for (_, rank), name, own, other in _copies(module, number, "parameters"):
            before = module.update(rank, number - 1).parameters[name].local
            moved = distance(other, before)
            if distance(own, other) > _SAME_MOVES * moved:
                return False
            has_moved |= moved > 0
    return has_moved


def compare_no_grad_modules(
    verdict: Verdict, modules: Modules, recordings: records.Recordings
) -> None:
    """Replicas differ of a module without gradients: a finding if they began equal, else a gap."""
    is_divided = any(update.by_hand for module in modules for update in module.updates)
    for key in dict.fromkeys(key for own in recordings.values() for key in own.no_grad):
        held = {rank: own.no_grad[key] for rank, own in recordings.items() if key in own.no_grad}
        first, (own, *_) = min(held), held.values()
        shared = [at for at in own if all(at in passes for passes in held.values())]
        apart = ((at, r) for at in shared for r, p in held.items() if not _equal(p[at], own[at]))
        at, rank = next(apart, (None, None))
        if at is None or rank is None:
            continue
        says = f"{key} runs without gradients; its parameters on ranks {first} and {rank} "
        twin = next(_twins(modules, [passes[at] for passes in held.values()]), "")
        if at != shared[0] and not is_divided:
            cause, says = "replicas drift apart", f"{says}are equal at first, and not later"
        elif twin and not at[0]:  # before the first step
            cause = "replicas start apart"
            says += f"differ: not all are copies of {twin}, whose replicas are equal"
        else:
            verdict.skip(f"{says}differ: right only where each rank has a teacher of its own")
            continue
        verdict.find(Finding(cause, says, at[1], key, rank, at[0] + 1))


def _twins(modules: Modules, copies: Sequence[Sequence[Tensor]]) -> Iterator[str]:
    """Trained modules, or parts of them, equal on all ranks, of which a rank begins with a copy."""
    for module in modules:
        if not module.num_updates:
            continue
        first, *others = (module.update(rank, 0).parameters for rank in module.records)
        for path in sorted({"", *(n[:i] for n in first for i, c in enumerate(n) if c == ".")}):
            names = [name for name in first if not path or name.startswith(f"{path}.")]
            own, *peers = (
                [parts[name].local for name in names if name in parts] for parts in (first, *others)
            )
            is_copied = any(_equal(copy, own) for copy in copies)
            if is_copied and all(_equal(peer, own) for peer in peers):
                yield f"{module.key}: {path}" if path else module.key


def _equal(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return len(some) == len(others) and not any(map(are_apart, some, others))


def compare_outputs(case: ModuleCase, number: int, replays: Mapping[int, Replay]) -> bool:
    """Whether replays have the script's outputs up to rounding; if not, adds a gap or finding."""
    for rank, replay in replays.items():
        same = max(_SAME_OUTPUTS, NORM * case.eps_of(rank, number))
        forwards = case.module.update(rank, number).forwards
        for forward, (error, rounding) in zip(forwards, replay.errors, strict=False):
            is_known = rounding <= same  # else two replays differ, too
            allowed = max(rounding, _OUTPUT_ERROR * case.eps / 1.2e-7)
            if is_known and error <= NORM * allowed:
                continue
            says = f"by {max(error, rounding):.2g} of their size"
            if case.module.is_tensor_parallel and is_known and not forward.draws:
                says = f"outputs differ from those of one process {says}"
                case.find("outputs differ", says, forward.place, [], rank, number)
            else:
                why = "its forward pass depends on more than inputs and parameters"
                if forward.draws:
                    why = f"it draws random numbers that one process draws otherwise, or {why}"
                case.skip(f"the outputs of the replay are off {says} ({why})")
            return False
    return True
