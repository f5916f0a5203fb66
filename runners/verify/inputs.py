"""Compares what ranks start an update from: batches, parameters of replicas, and outputs.

In: what ranks recorded, and replays of their forward passes. Out: findings of a `Case`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from runners.verify.case import ROUNDINGS, Case
from runners.verify.sums import are_apart, relative
from runners.verify.records import Forward, Part
from runners.verify.replay import Replayed

_OUTPUT_ERROR = 1e-5  # relative, in fp32; scaled with eps
_SAME_OUTPUTS = 1e-3  # of two replays, relative, in fp32: more is no rounding


class Inputs:
    """Of one module."""

    def __init__(self, case: Case) -> None:
        self._case, self._layout = case, case.layout

    def batches(self, number: int) -> bool:
        """Ranks that share a batch have equal inputs, all others different ones."""
        passes = {
            rank: [one.digests for one in self._layout.update(rank, number).forwards]
            for rank in self._layout.records
        }
        place = next(
            (f.place for f in self._layout.update(self._layout.leaders[0], number).forwards), ""
        )
        for group in self._layout.groups:
            for rank in group[1:]:
                has_parts = any(
                    one.spec for f in self._layout.update(rank, number).forwards
                    for one in f.outputs if one
                )  # fmt: skip
                if passes[rank] != passes[group[0]] and not has_parts:
                    says = f"ranks {group[0]} and {rank} share a batch, but their inputs differ"
                    if self._layout.first.takes_parts:
                        self._case.skip(
                            f"{says}: other batches, or parts of a sequence, which `--against` and "
                            "`--split inputs=1` compare"
                        )
                        return False
                    self._case.find("unequal inputs", says, place, [], rank, number)
                    return False
        leaders = self._layout.leaders
        for index, rank in enumerate(leaders):
            for other in leaders[:index]:
                same = [one for one in passes[rank] if any(one) and one in passes[other]]
                if same:
                    self._equal(other, rank, number, place, f"{len(same)} of {len(passes[rank])}")
        return True

    def received(self, number: int) -> None:
        """What a stage of a pipeline received is what the stage before it sent."""
        stage = self._layout.first.stage
        before = [one for one in self._case.layouts if stage and one.first.stage == stage - 1]
        for sender in (
            before if number < min((one.num_updates for one in before), default=0) else ()
        ):
            for source, rank in zip(sender.leaders, self._layout.leaders, strict=False):
                sent = _in_turn(sender.update(source, number).forwards)
                for key, forward in _in_turn(self._layout.update(rank, number).forwards).items():
                    outputs = sent[key].outputs_sent if key in sent else []
                    if forward.digests[: len(outputs)] != outputs[: len(forward.digests)]:
                        says = f"microbatch {forward.chunk} is not what rank {source} sent"
                        self._case.find("received differs", says, forward.place, [], rank, number)
                        return

    def shared(self) -> None:
        """Ranks that draw samples for themselves may take one that another has."""
        counts: dict[tuple[int, int], list[int]] = {}
        for number in range(self._layout.num_updates):
            held = {
                r: {s for f in self._layout.update(r, number).forwards for s in f.samples}
                for r in self._layout.leaders
            }
            for rank, other in itertools.combinations(held, 2):
                common = held[rank] & held[other]
                if common and common != held[rank]:
                    counts.setdefault((rank, other), []).append(len(common))
        often = {ranks: all_of for ranks, all_of in counts.items() if len(all_of) > 1}
        if often and not self._case.verdict.findings:
            (rank, other), all_of = next(iter(often.items()))
            self._case.skip(
                f"whether a sample has one rank: in an update, ranks {rank} and {other} share "
                f"{all_of[0]} samples (drawn with replacement, or by each rank's own seed?)",
                is_lasting=True,
            )

    def _equal(self, other: int, rank: int, number: int, place: str, share: str) -> None:
        """Ranks read the same data; a script that has one batch for all updates may mean it."""
        says = f"ranks {other} and {rank} train on the same inputs in {share} forward passes"
        batches = {str(f.digests) for u in self._layout.records[rank].updates for f in u.forwards}
        updates = self._layout.records[rank].updates
        if len(batches) == sum(len(one.forwards) for one in updates) and len(updates) > 1:
            self._case.find("equal batches", says, place, [], rank, number)
        elif not self._case.verdict.notes:
            self._case.verdict.notes.append(f"{says}, in every update")

    def replicas(self, number: int) -> None:
        """Ranks that hold the same parameters hold the same values."""
        cause = "replicas start apart" if number == 0 else "replicas drift apart"
        if not self._apart(number, "parameters", cause, max(number - 1, 0)):
            self._within(number)

    def after(self, number: int) -> None:
        """The same, when an optimizer has stepped: of a last update nothing else tells."""
        self._apart(number, "after", "replicas drift apart", number)

    def _apart(self, number: int, field: str, cause: str, stepped: int) -> bool:
        views = list(self._layout.views())
        first = self._layout.whole(number, views[0], field)
        for rank in views[1:]:
            other = self._layout.whole(number, rank, field)
            apart = [n for n, one in first.items() if n in other and are_apart(one, other[n])]
            if apart:
                largest = max(relative(first[n], other[n]) for n in apart)
                says = f"parameters of ranks {views[0]} and {rank} differ by {largest:.2g}"
                place = self._layout.update(rank, stepped).step_place
                self._case.find(cause, says, place, apart, rank, number)
                return True
        return False

    def _within(self, number: int) -> None:
        """Parts that a mesh replicates are equal on its ranks."""
        updates = {r: self._layout.update(r, number).parameters for r in self._layout.records}
        for rank, parameters in updates.items():
            for name, part in parameters.items():
                if part.spec is None or ("replicate",) not in part.spec.placements:
                    continue
                peer = _replica_of(part, rank)
                other = updates.get(peer, {}).get(name)
                if other is not None and are_apart(part.local, other.local):
                    cause = "replicas start apart" if number == 0 else "replicas drift apart"
                    says = f"ranks {peer} and {rank} hold different values of one parameter"
                    place = self._layout.update(rank, max(number - 1, 0)).step_place
                    self._case.find(cause, says, place, [name], rank, number)
                    return

    def outputs(self, number: int, runs: Mapping[int, Replayed]) -> bool:
        """Replays have the outputs that the script had; else gradients are not compared."""
        for rank, run in runs.items():
            forwards = self._layout.update(rank, number).forwards
            same = max(_SAME_OUTPUTS, ROUNDINGS * self._case.eps_of(rank, number))
            for forward, (error, rounding) in zip(forwards, run.errors, strict=False):
                if rounding > same:
                    self._case.skip(
                        f"two replays of a forward pass differ by {rounding:.2g} of "
                        "their size: it draws from a generator of its own, or keeps something"
                    )
                    return False
                allowed = ROUNDINGS * max(rounding, _OUTPUT_ERROR * self._case.eps / 1.2e-7)
                if error <= allowed:
                    continue
                says = f"outputs differ from those of one process by {error:.2g} of their size"
                if self._layout.is_tensor_parallel and not forward.draws:
                    self._case.find("outputs differ", says, forward.place, [], rank, number)
                else:
                    why = "it draws random numbers that one process draws otherwise, or "
                    why = why if forward.draws else ""
                    self._case.skip(
                        f"the replay's {says.replace('of one process', 'recorded')} "
                        f"({why}its forward pass depends on more than inputs and parameters)"
                    )
                return False
        return True


def _in_turn(forwards: Sequence[Forward]) -> dict[tuple[int | None, int], Forward]:
    """Passes by their microbatch, and by the call of the schedule that it belongs to."""
    found: dict[tuple[int | None, int], Forward] = {}
    for one in forwards:
        calls = sum(chunk == one.chunk for chunk, _ in found)
        found[one.chunk, calls] = one
    return found


def _replica_of(part: Part, rank: int) -> int:
    """The rank that holds the same part first."""
    assert part.spec is not None
    at = (part.spec.mesh == rank).nonzero()[0].tolist()
    for axis, one in enumerate(part.spec.placements):
        if one[0] == "replicate":
            at[axis] = 0
    return int(part.spec.mesh[tuple(at)])
