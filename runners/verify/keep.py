"""Keeps what a watched run showed, as a trace that `make serve` shows.

In: the verdict, and what all ranks recorded. Out: a file in `content/tries`, where there is a
project; `trace` has its schema.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from runners.traces import machine
from runners.traces.files import TraceError, write
from runners.traces.schema import digest_of, now
from runners.verify.clipping import norm_of
from runners.verify.layout import Layout
from runners.verify.records import Part, Update
from runners.verify.trace import SUFFIX, Flow, Off, Parameter, Report, Watched, read
from runners.verify.verdict import Error, Strip, Term, Verdict
from runners.verify.weights import scaled


def kept(
    verdict: Verdict, layouts: Sequence[Layout], script: Path, words: Sequence[str],
    report: Report, printed: str,
) -> Path | None:  # fmt: skip
    """Write the trace of a run over that of the same command; its path, None outside a project.

    Args:
        verdict: of the run.
        layouts: what the ranks recorded; empty where the script did not come so far.
        script: its path.
        words: options, the script, and its arguments, as typed.
        report: as `--json` has it.
        printed: the same as text.
    """
    folder = _folder()
    if folder is None:
        return None
    command = shlex.join(["verify", "--ranks", str(report.world_size), *words])
    watched = Watched(
        schema_version=1, recorded_at=now(), machine=machine.name(),
        circumstances=machine.circumstances(), command=command,
        code=_code(script), printed=printed, report=report,
        tensors=list(_tensors(verdict.strips, layouts)), flow=list(_flow(verdict.strips, layouts)),
        samples=sorted(_samples(layouts)), is_resumed=_is_resumed(layouts),
    )  # fmt: skip
    run = [str(script.resolve()), command, *["resumed"][: watched.is_resumed]]
    path = folder / f"{_name(script)}-{digest_of(run)[:8]}{SUFFIX}"
    write(path, watched)
    return path


def seen_before(layouts: Sequence[Layout], script: Path) -> str:
    """What to say where a run that goes on from a saved state uses samples of the first updates.

    Those are known from a kept run of the same script that began anew.
    """
    folder, own = _folder(), _samples(layouts)
    if folder is None or not own or not _is_resumed(layouts):
        return ""
    for path in sorted(folder.glob(f"{_name(script)}-*{SUFFIX}")):
        with suppress(TraceError):
            earlier = read(path)
            again = own & set(earlier.samples)
            if earlier.code == _code(script) and not earlier.is_resumed and again:
                return (
                    f"{len(again)} of {len(own)} samples were used by the first updates of a run "
                    f"that began anew ({path.name}), and this one has an optimizer's state: with "
                    "it, restore the epoch and the batches that were already read"
                )
    return ""


def _folder() -> Path | None:
    """Where runs are kept; None outside a project."""
    content = machine.TRACES.parent
    return content / "tries" if content.is_dir() else None


def _name(script: Path) -> str:
    return re.sub(r"[^\w-]+", "_", script.stem)


def _code(script: Path) -> str:
    return digest_of(script.read_text(encoding="utf-8", errors="replace"))


def _updates(layouts: Sequence[Layout]) -> Iterator[Update]:
    for layout in layouts:
        for record in layout.records.values():
            yield from record.updates


def _samples(layouts: Sequence[Layout]) -> set[str]:
    return {one for u in _updates(layouts) for forward in u.forwards for one in forward.samples}


def _is_resumed(layouts: Sequence[Layout]) -> bool:
    return any(update.state for update in _updates(layouts))


def _tensors(strips: Sequence[Strip], layouts: Sequence[Layout]) -> Iterator[Parameter]:
    for layout in layouts:
        own = [one for one in strips if one.module == layout.key]
        updates = layout.first.updates
        for name, part in updates[0].parameters.items() if updates else ():
            yield Parameter(
                module=layout.key, name=name,
                shape=list(part.shape),
                gradient=_largest({one.update: one.gradients.get(name) for one in own}),
                step=_largest({one.update: one.steps.get(name) for one in own}),
                is_frozen=all(name in one.frozen for one in updates),
            )  # fmt: skip


def _largest(errors: Mapping[int, Error | None]) -> Off | None:
    """The error that is largest by what rounding allows it; the first of equals."""
    known = {number: one for number, one in errors.items() if one is not None}
    if not known:
        return None
    number = max(known, key=lambda n: known[n].error / max(known[n].allowed, 1e-300))
    error, allowed = known[number]
    return Off(error=error if math.isfinite(error) else None, update=number,
               allowed=allowed if math.isfinite(allowed) else 0.0)  # fmt: skip


def _flow(strips: Sequence[Strip], layouts: Sequence[Layout]) -> Iterator[Flow]:
    factors = {(one.module, one.update): one.factors or {} for one in strips}
    for layout in layouts:
        for rank, record in layout.records.items():
            for number, update in enumerate(record.updates, 1):
                shapes = {shape for one in update.forwards for shape in one.shapes}
                moved = {
                    name: Part(one.local.double() - update.parameters[name].local.double())
                    for name, one in update.after.items()
                }
                own = factors.get((layout.key, number), {})
                yield Flow(
                    rank=rank, update=number, module=layout.key,
                    inputs=[list(shape) for shape in sorted(shapes)],
                    num_forwards=len(update.forwards),
                    gradient_norm=_norm(update.before_clipping, update.scale),
                    clipped_norm=_norm(update.at_step), update_norm=_norm(moved),
                    **(_weights(update, rank, own) if rank in layout.leaders else {}),
                )  # fmt: skip


def _weights(update: Update, rank: int, factors: Mapping[Term, float]) -> dict[str, Any]:
    """What the elements of all losses weigh; before the reduction, where that is not known."""
    losses = [one for one in update.losses if one.count and one.weights is not None]
    held = [scaled(one, rank, factors, update.scale) / update.scale for one in losses]
    every = torch.cat(held) if held else torch.empty(0)
    if not len(every) or not bool(every.isfinite().all()):
        return {}
    total = sum(float(one.mean()) * loss.size for one, loss in zip(held, losses, strict=True))
    return {
        "num_weights": sum(one.count for one in losses), "sum_of_weights": total,
        "lowest_weight": float(every.min()), "highest_weight": float(every.max()),
    }  # fmt: skip


def _norm(parts: Mapping[str, Part | None], scale: float = 1.0) -> float | None:
    """The norm of what a rank holds; None where that is nothing, or not finite."""
    held = [one.local for one in parts.values() if one is not None and one.local.numel()]
    norm = norm_of(held) / scale
    return norm if held and math.isfinite(norm) else None
