"""What stands around a page's content: its place in the book, and where its numbers come from."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from proofbook.generator.content.book import Book
from proofbook.generator.content.shelf import TraceOnPage
from proofbook.generator.printing.folio import Folio
from proofbook.generator.printing.sources import command
from proofbook.runners.core.trace.records import Run, software


@dataclass(frozen=True)
class PageOrigin:
    """An experiment whose runs a page used, on a machine."""

    of: TraceOnPage
    is_reference: bool  # whether its machine is the reference machine
    again: str  # the command that measures it again
    runs: list[str] = field(default_factory=list)

    @property
    def experiment(self) -> str:
        """Its name."""
        return self.of.trace.experiment

    @property
    def machine(self) -> str:
        """The machine that measured it; none, of plans."""
        return self.of.measured_on

    @property
    def is_new(self) -> bool:
        """Whether it is not measured on the reference machine."""
        return not (self.of.reference or self.of.nature)


def by_machine(origins: Sequence[PageOrigin]) -> dict[tuple[str, bool, str], list[PageOrigin]]:
    """Origins by machine, whether that is the reference machine, and software."""
    groups = defaultdict(list)
    for origin in origins:
        is_reference = bool(origin.machine) and origin.is_reference
        package = software(origin.of.trace.circumstances)
        groups[origin.machine, is_reference, package].append(origin)
    return groups


def surprises(folio: Folio) -> list[tuple[str, Run]]:
    """The runs of a page that did not end as declared, also where the reference is shown."""
    used = ((path, folio.at_hand.book.run(path)) for path in sorted(folio.runs))
    return [(path, run) for path, run in used if run is not None and run.is_surprise]


def machines(origins: Sequence[PageOrigin], book: Book) -> list[tuple[str, bool]]:
    """The machines behind a page, its own first, and whether each is the reference machine."""
    named = {(origin.machine, origin.is_reference) for origin in origins if origin.machine}
    return sorted(named, key=lambda machine: (machine[0] != book.machine.name, machine))


def origins(folio: Folio) -> list[PageOrigin]:
    """Each experiment whose runs a page used, by machine, with the runs."""
    by_trace: dict[tuple[str, str], PageOrigin] = {}
    used = [(folio.book, folio.runs)]
    if folio.evidence.reference:
        used.append((folio.evidence.reference.book, folio.lent))
    for book, paths in used:
        for path in sorted(paths):
            if on_page := book.holder(path):
                experiment, name = path.split(".")
                machine = on_page.machine.name
                origin = PageOrigin(
                    on_page, machine == book.reference.name, reproduce_command(on_page, book)
                )
                by_trace.setdefault((experiment, machine), origin).runs.append(name)
    return list(by_trace.values())


def reproduce_command(trace: TraceOnPage, book: Book) -> str:
    """The command that measures an experiment again and compares it with this page's trace."""
    return command([trace.trace.experiment], trace.measured_on, book.reference.name)
