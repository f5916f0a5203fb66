"""The pages of evidence: of all claims, of machines, and of each experiment's runs."""

from collections.abc import Iterator
from functools import partial

from proofbook.generator.content.book import Book
from proofbook.generator.pages.sheets import EVIDENCE, Sheet


def sheets(book: Book) -> Iterator[Sheet]:
    """All of them."""
    about = (
        "For each experiment, this page says how many laws hold and how many observations turned "
        "out otherwise. The page of an experiment has each of its claims, with prediction, "
        "observation and verdict."
    )
    yield Sheet(EVIDENCE, "evidence", "Evidence", about, "content/claims", has_toc=True)
    sheet = partial(Sheet, under=EVIDENCE)
    about = "Each machine that ran experiments has a page: what it is, and what it measured."
    yield sheet("machines/index.md", "machines", "Machines", about)
    about = "What a machine is, and what it measured."
    for name in book.machines:
        yield sheet(
            f"machines/{name}.md",
            "machine",
            f"Machine {name}",
            about,
            of=name,
            kept=name,
            is_recorded=True,
            about_is_recorded=True,
        )
    for name, on_page in book.traces.items():
        if not on_page.nature:
            path, title = f"evidence/{name}.md", f"The runs of {name}"
            yield sheet(
                path,
                "runs",
                title,
                on_page.trace.question,
                of=name,
                is_recorded=True,
                about_is_recorded=True,
            )
