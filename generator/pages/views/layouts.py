"""The layouts that a lesson recommends, at the size of real models: what each needs and sends.

In: a lesson. Out: a table with a row for each layout, and with how many others it was compared.
"""

from __future__ import annotations

from markupsafe import Markup

from generator.checks.layout_checks import recommended
from generator.content.lesson import WhyFile
from generator.evidence import units
from generator.evidence.folio import Folio
from generator.evidence.value import computed
from generator.pages.table import Column, Row, counted, table


def recommended_table(lesson: WhyFile, folio: Folio) -> Markup:
    """The table, empty where the lesson recommends no layout of the plans."""
    words, rows = folio.ui["layouts"], {}
    for one in recommended(folio.evidence, lesson):
        run, grid = folio.run(one.run), folio.book.traces[one.run.partition(".")[0]].grid
        assert run is not None
        assert grid is not None
        needs = f"{one.run}.ranks | each('measures.needed_bytes') | largest"
        inputs = tuple(
            value
            for measure in ("flops", "sent_bytes")
            if (value := folio.value(f"{one.run}.ranks | each('measures.{measure}') | largest"))
        )
        law, links = one.layout.bounds, one.cluster
        by_law = [
            folio.show(computed(number, unit, words[name], inputs))
            for name, number, unit in (
                ("within", law.within * links.within, units.BYTES),
                ("between", law.between * links.between, units.BYTES),
                ("at_least", law.at_least, units.SECONDS),
                ("at_most", law.at_most, units.SECONDS),
            )
        ]
        setting = words["checkpointing"][run.settings["checkpointing"]]
        title = Markup('<a class="pb-label" href="../../{}">{}, {}, {} {}, {:,} {}{}</a>').format(
            folio.place_of(one.run), folio.strategy(run), grid.title,
            run.settings["num_ranks"], words["devices"],
            run.settings["sequence"], words["tokens"], setting,
        )  # fmt: skip
        row: Row = [title, folio.cell(needs), *by_law, counted(len(one.others))]
        rows[one.run] = row
    names = ("needs", "within", "between", "at_least", "at_most", "compared")
    columns = [Column(words["layout"], False), *(Column(words[name]) for name in names)]
    return table(columns, rows.values()) if rows else Markup("")
