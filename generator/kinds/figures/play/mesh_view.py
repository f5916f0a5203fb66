"""Meshes of a run's ranks: which of them are a group along each axis, and what they pass.

Ranks are numbered along the last axis first, as `torch.distributed.device_mesh` numbers them.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from math import prod

from markupsafe import Markup

from proofbook.generator.content.exhibit import Figure, Mesh, MeshAxis
from proofbook.generator.kinds.figures.drawings.mesh import MeshPanel, Strip, meshes
from proofbook.generator.kinds.figures.picture import DrawnState, plain_line
from proofbook.generator.kinds.figures.play.states import LabelledRun, PlayState, divides, num_ranks
from proofbook.generator.printing.folio import Folio


def mesh(states: Sequence[PlayState], figure: Figure, folio: Folio) -> Iterator[DrawnState]:
    """Yield each state drawn: the meshes of its first run, strip by strip, the last axis first."""
    assert figure.play is not None
    for state in states:
        of = state.runs[0]
        panels = list[MeshPanel]()
        for written in figure.play.meshes:
            num = sum(len(panel.strips) for panel in panels)
            panels.append(_panel(written, of, num, folio))
        says = " ".join(_in_words(panel, folio) for panel in panels)
        axes = [axis for one in figure.play.meshes for axis in one.axes]
        cells = _cells([axis for axis in axes if divides(axis, of.path, folio.evidence)], of, folio)
        title = "" if any(axis.passes for axis in axes) else "ranks"
        yield DrawnState(partial(meshes, panels), says, {of.path: cells}, title)


def groups(sizes: Sequence[int], axis: int) -> list[list[int]]:
    """The ranks of each group along the axis at a place, of a mesh of these sizes."""
    stride, size = prod(sizes[axis + 1 :]), sizes[axis]
    firsts = [rank for rank in range(prod(sizes)) if rank // stride % size == 0]
    return [[first + stride * step for step in range(size)] for first in firsts]


def _panel(written: Mesh, of: LabelledRun, before: int, folio: Folio) -> MeshPanel:
    """A mesh of a run, its strips in the written order wherever the axes lie; `before` are others.

    Each strip of a figure has another look.
    """
    axes = list(written.axes)
    if of.run.strategy == written.exchanged:
        axes[-2:] = axes[-1], axes[-2]
    sizes = [num_ranks(axis.size, of.path, folio.evidence) for axis in axes]
    node = num_ranks(written.node, of.path, folio.evidence)
    names = [plain_line(axis.name, folio) for axis in axes]
    strides = [prod(sizes[place + 1 :]) for place in range(len(axes))]
    ranks = [
        f"rank {rank}: "
        + ", ".join(
            f"{name} {rank // stride % size}"
            for name, stride, size in zip(names, strides, sizes, strict=True)
            if size > 1
        )
        for rank in range(of.run.world_size)
    ]
    strips = [
        _strip(axis, num, groups(sizes, axes.index(axis)), node, of, folio)
        for num, axis in enumerate(reversed(written.axes), before)
        if divides(axis, of.path, folio.evidence)
    ]
    title = plain_line(written.title or "", folio)
    return MeshPanel(title, node, ranks, strips)


def _strip(
    axis: MeshAxis, num: int, of_ranks: Sequence[Sequence[int]], node: int, of: LabelledRun,
    folio: Folio,
) -> Strip:  # fmt: skip
    words, evidence = folio.ui["play"]["mesh"], folio.evidence
    stays = all(len({rank // node for rank in group}) == 1 for group in of_ranks)
    said = [words["within" if stays else "between"]]
    takes = evidence.value(axis.takes, of.path) if axis.takes else None
    if axis.term and takes:
        said.append(f"{plain_line(axis.term, folio)} = {takes}")
    passes = evidence.value(axis.passes, of.path) if axis.passes else None
    name = plain_line(axis.name, folio)
    return Strip(name, said, of_ranks, num, str(passes) if passes else "")


def _in_words(panel: MeshPanel, folio: Folio) -> str:
    words = folio.ui["play"]["mesh"]
    along = []
    for strip in panel.strips:
        of_ranks = " and ".join(f"ranks {', '.join(map(str, group))}" for group in strip.groups)
        where, *others = strip.words
        said = [words["along"].format(axis=strip.name, where=where, groups=of_ranks), *others]
        said += [words["passes"].format(size=strip.passes)] if strip.passes else []
        along.append("; ".join(said))
    num, size = len(panel.ranks) // panel.node, panel.node
    nodes, of_size = (f"{n} {w}{'' if n == 1 else 's'}" for n, w in ((num, "node"), (size, "rank")))
    said_nodes = words["says"].format(nodes=nodes, size=of_size, axes=". ".join(along))
    return f"{panel.title}: {said_nodes}" if panel.title else said_nodes


def _cells(axes: Sequence[MeshAxis], of: LabelledRun, folio: Folio) -> dict[str, Markup]:
    """What a rank passes along each axis, and the term of a formula."""
    words, cells = folio.ui["play"]["mesh"], dict[str, Markup]()
    for axis in axes:
        name = plain_line(axis.name, folio)
        if axis.passes:
            head = words["passed"].format(axis=name)
            cells[head] = folio.printed(folio.evidence.value(axis.passes, of.path))
        if axis.term and axis.takes:
            value = folio.evidence.value(axis.takes, of.path)
            cells[plain_line(axis.term, folio)] = folio.printed(value)
    return cells
