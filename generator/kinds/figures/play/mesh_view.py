"""Meshes of a run's ranks: which of them are a group along each axis, and what they pass.

Ranks are numbered along the last axis first, as `torch.distributed.device_mesh` numbers them.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import prod

from proofbook.generator.content.exhibit import Figure, Mesh, MeshAxis
from proofbook.generator.kinds.figures.drawings.mesh import MeshPanel, Strip, meshes
from proofbook.generator.kinds.figures.picture import DrawnState, plain_line
from proofbook.generator.kinds.figures.play.states import LabelledRun, PlayState, num_ranks
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values.value import Value

Cells = dict[str, Value | None]  # numbers of the axes, by what they are


def mesh(states: Sequence[PlayState], figure: Figure, folio: Folio) -> Iterator[DrawnState]:
    """Yield each state drawn: the meshes of its first run, strip by strip, the last axis first."""
    assert figure.play is not None
    for state in states:
        of, cells = state.runs[0], Cells()
        panels = [_panel(written, of, cells, folio) for written in figure.play.meshes]
        says = " ".join(map(partial(_in_words, folio.ui["play"]["mesh"]), panels))
        printed = {name: folio.printed(value) for name, value in cells.items()}
        yield DrawnState(partial(meshes, panels), says, {of.path: printed})


def groups(sizes: Sequence[int], axis: int, *, is_tree: bool = False) -> list[list[int]]:
    """The ranks of each group along the axis at a place, of a mesh, or a tree, of these sizes."""
    stride, size = prod(sizes[axis + 1 :]), sizes[axis]
    ranks = range(0, prod(sizes), stride if is_tree else 1)
    firsts = [rank for rank in ranks if rank // stride % size == 0]
    return [[first + stride * step for step in range(size)] for first in firsts]


def _panel(written: Mesh, of: LabelledRun, cells: Cells, folio: Folio) -> MeshPanel:
    """A mesh of a run; its strips stay in the written order. Puts numbers of axes into `cells`."""
    is_exchanged, axes = of.run.strategy == written.exchanged, written.axes
    axes = [*axes[:-2], *axes[:-3:-1]] if is_exchanged else axes
    sizes = [num_ranks(axis.size, of.path, folio.evidence) for axis in axes]
    node = num_ranks(written.node, of.path, folio.evidence)
    along = partial(groups, sizes, is_tree=written.is_tree)
    strips = [
        _strip(axis, along(axes.index(axis)), node, of, cells, folio)
        for axis in reversed(written.axes)
        if sizes[axes.index(axis)] > 1
    ]
    title = plain_line(written.title or "", folio)
    return MeshPanel(title, prod(sizes), node, strips, written.is_tree)


def _strip(
    axis: MeshAxis, of_ranks: Sequence[Sequence[int]], node: int, of: LabelledRun, cells: Cells,
    folio: Folio,
) -> Strip:  # fmt: skip
    words, name, passes = folio.ui["play"]["mesh"], plain_line(axis.name, folio), ""
    stays = all(group[0] // node == group[-1] // node for group in of_ranks)
    beside = [words["within" if stays else "between"]]
    if axis.passes:
        value = cells[words["passed"].format(axis=name)] = folio.evidence.value(
            axis.passes, of.path
        )
        passes = str(value or "")
    if axis.term:
        label = plain_line(axis.term.label, folio)
        value = cells[label] = folio.evidence.value(axis.term.value, of.path)
        beside.append(f"{label} = {value}".replace(" ", "\u00a0"))
    return Strip(name, beside, of_ranks, passes, axis.is_chain)


def _in_words(words: Mapping[str, str], panel: MeshPanel) -> str:
    parts = [words["nodes"].format(num=panel.num_ranks // panel.node, size=panel.node)]
    for name, beside, of_ranks, passes, _ in panel.strips:
        listed = " and ".join(f"ranks {', '.join(map(str, group))}" for group in of_ranks)
        size = [words["passes"].format(size=passes)] if passes else []
        parts.append("; ".join([words["along"].format(axis=name, ranks=listed), *beside, *size]))
    return f"{panel.title}: {'. '.join(parts)}.".removeprefix(": ")
