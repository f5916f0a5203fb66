"""Compares what ranks start an update from: batches, parameters of replicas, and outputs.

In: what ranks recorded, and replays of their forward passes. Out: findings of a `Case`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from runners.verify.case import ROUNDINGS, Case
from runners.verify.layout import Layout
from runners.verify.records import Forward, Part, Quiet, Seen
from runners.verify.replay import Replayed
from runners.verify.roots import digest
from runners.verify.sums import are_apart, relative
from runners.verify.verdict import Finding, Verdict

_OUTPUT_ERROR = 1e-5  # relative, in fp32; scaled with eps
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
        if same:
            share = f"{len(same)} of {len(digests[other])}"
            says = f"ranks {rank} and {other} train on the same inputs in {share} forward passes"
            _judge_equal(case, says, place, other, number)
    return True


def _judge_equal(case: Case, says: str, place: str, rank: int, number: int) -> None:
    """Ranks read the same data; a script that has one batch for all updates may mean it."""
    updates = case.layout.records[rank].updates
    passes = [str(one.digests) for update in updates for one in update.forwards]
    if len(set(passes)) == len(passes) and len(updates) > 1:
        case.find("equal batches", says, place, [], rank, number)
    elif not case.verdict.notes:
        case.verdict.notes.append(f"{says}, in every update")


def compare_received(case: Case, number: int) -> None:
    """What a stage of a pipeline received is what the stage before it sent."""
    stage = case.layout.first.stage
    senders = [
        one for one in case.layouts
        if stage and one.first.stage == stage - 1 and number < one.num_updates
    ]  # fmt: skip
    for sender in senders:
        for source, rank in zip(sender.leaders, case.layout.leaders, strict=False):
            sent = _in_turn(sender.update(source, number).forwards)
            for key, forward in _in_turn(case.layout.update(rank, number).forwards).items():
                outputs = sent[key].outputs_sent if key in sent else []
                if forward.digests[: len(outputs)] != outputs[: len(forward.digests)]:
                    says = f"microbatch {forward.chunk} is not what rank {source} sent"
                    case.find("received differs", says, forward.place, [], rank, number)
                    return


def _in_turn(forwards: Sequence[Forward]) -> dict[tuple[int | None, int], Forward]:
    """Passes by their microbatch, and by the call of the schedule that it belongs to."""
    found: dict[tuple[int | None, int], Forward] = {}
    for one in forwards:
        calls = sum(chunk == one.chunk for chunk, _ in found)
        found[one.chunk, calls] = one
    return found


def compare_samples(case: Case) -> None:
    """Ranks that draw samples for themselves may take one that another has."""
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
    """Ranks that hold the same parameters hold the same values.

    Args:
        case: of the module.
        number: of the update.
        held: "parameters", before it; or "after" it, which of a last update nothing else tells.
    """
    layout, is_start = case.layout, held == "parameters"
    cause = "replicas start apart" if is_start and number == 0 else "replicas drift apart"
    stepped = max(number - is_start, 0)  # the update that may have set them apart
    view, *others = layout.views()
    first = layout.whole(number, view, held)
    for rank in others:  # which hold the whole module, too
        other = layout.whole(number, rank, held)
        apart = [n for n, one in first.items() if n in other and are_apart(one, other[n])]
        if apart:
            largest = max(relative(first[n], other[n]) for n in apart)
            says = f"parameters of ranks {view} and {rank} differ by {largest:.2g} of their maximum"
            place = layout.update(rank, stepped).step_place
            case.find(cause, says, place, apart, rank, number)
            return
    parts = {rank: getattr(layout.update(rank, number), held) for rank in layout.records}
    for rank, own in parts.items():
        for name, part in own.items():
            peer = _replica_of(part, rank)
            replica = parts.get(peer, {}).get(name)
            if peer != rank and replica is not None and are_apart(part.local, replica.local):
                says = f"ranks {peer} and {rank} hold different values of one parameter"
                place = layout.update(rank, stepped).step_place
                case.find(cause, says, place, [name], rank, number)
                return


def compare_quiet(verdict: Verdict, layouts: Sequence[Layout], seen: Mapping[int, Seen]) -> None:
    """Modules that run without gradients, as targets and teachers do, are replicas, too."""
    for key in dict.fromkeys(key for one in seen.values() for key in one.quiet):
        held = {rank: one.quiet[key] for rank, one in seen.items() if key in one.quiet}
        first, *others = held
        other = next((r for r in others if held[r].digests != held[first].digests), None)
        if other is None:
            continue
        if twin := next(_twins(layouts, held), ""):
            says = f"parameters of {key}, which runs without gradients, differ on ranks {first} and"
            says += f" {other}: not all are copies of {twin}, whose replicas are equal"
            place = held[other].place
            verdict.find(Finding("replicas start apart", says, place, key, other, 1))
        else:
            verdict.skip(
                f"what {key} computes without gradients: its parameters differ on ranks, which is "
                "right only where each rank has a teacher of its own"
            )


def _twins(layouts: Sequence[Layout], held: Mapping[int, Quiet]) -> Iterator[str]:
    """Trained modules, or parts of them, equal on all ranks, of which a rank's is a copy."""
    for layout in (one for one in layouts if one.num_updates):
        parts = [layout.update(rank, 0).parameters for rank in layout.records]
        for path in sorted({"", *(n[:i] for n in parts[0] for i, c in enumerate(n) if c == ".")}):
            names = [one for one in parts[0] if not path or one.startswith(f"{path}.")]
            own = [[digest(one[n].local) for n in names if n in one] for one in parts]
            is_copy = any(one.digests == own[0] and not one.steps for one in held.values())
            if is_copy and all(one == own[0] for one in own):
                yield f"{layout.key}: {path}" if path else layout.key


def _replica_of(part: Part, rank: int) -> int:
    """The rank that holds the same part of a mesh first."""
    if part.spec is None:
        return rank
    at = (part.spec.mesh == rank).nonzero()[0].tolist()
    for axis, one in enumerate(part.spec.placements):
        if one[0] == "replicate":
            at[axis] = 0
    return int(part.spec.mesh[tuple(at)])


def compare_outputs(case: Case, number: int, runs: Mapping[int, Replayed]) -> bool:
    """Whether replays have the outputs that the script had; else gradients are not compared."""
    for rank, run in runs.items():
        same = max(_SAME_OUTPUTS, ROUNDINGS * case.eps_of(rank, number))
        forwards = case.layout.update(rank, number).forwards
        for forward, (error, rounding) in zip(forwards, run.errors, strict=False):
            if rounding > same:
                case.skip(
                    f"two replays of a forward pass differ by {rounding:.2g} of "
                    "their size: it draws from a generator of its own, or keeps something"
                )
                return False
            if error <= ROUNDINGS * max(rounding, _OUTPUT_ERROR * case.eps / 1.2e-7):
                continue
            says = f"outputs differ from those {{}} by {error:.2g} of their size"
            if case.layout.is_tensor_parallel and not forward.draws:
                says = says.format("of one process")
                case.find("outputs differ", says, forward.place, [], rank, number)
            else:
                why = "it draws random numbers that one process draws otherwise, or "
                case.skip(
                    f"the replay's {says.format('recorded')} ({why if forward.draws else ''}"
                    "its forward pass depends on more than inputs and parameters)"
                )
            return False
    return True
