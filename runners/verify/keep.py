"""Keeps what a watched run showed, as a trace that `make serve` shows.

In: the verdict, and what all ranks recorded. Out: a file in `content/tries`, where there is a
project; `trace` has its schema.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from runners.traces import machine
from runners.traces.files import write
from runners.traces.schema import digest_of, now
from runners.verify.clipping import norm_of
from runners.verify.layout import Layout
from runners.verify.records import Part, Update
from runners.verify.trace import SUFFIX, Flow, Off, Parameter, Report, Watched
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
    folder = machine.TRACES.parent
    if not folder.is_dir():
        return None
    command = shlex.join(["verify", "--ranks", str(report.world_size), *words])
    watched = Watched(
        schema_version=1, recorded_at=now(), machine=machine.name(),
        circumstances=machine.circumstances(), command=command,
        code=digest_of(script.read_text(encoding="utf-8", errors="replace")), printed=printed,
        report=report, tensors=list(_tensors(verdict.strips, layouts)),
        flow=list(_flow(verdict.strips, layouts)),
    )  # fmt: skip
    name = re.sub(r"[^\w-]+", "_", script.stem)
    path = folder / "tries" / f"{name}-{digest_of([str(script.resolve()), command])[:8]}{SUFFIX}"
    write(path, watched)
    return path


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
