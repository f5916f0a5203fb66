"""What stands around a page: scripts and styles, what must be known of its runs, its sources."""

import re
from collections.abc import Sequence

from generator.content.book import Book
from generator.content.shelf import TraceOnPage
from generator.pages.view import View
from generator.printing.folio import Folio
from generator.printing.sources import command
from runners.core.trace.records import Run, software

# Besides its words, a page takes a minute for each question and for each figure to operate. A
# reader took 70 minutes for six pages that these rates give 68.
WORDS_PER_MINUTE = 180
# What of a page's markup asks for a script. Where answers are kept, proofbook.js comes before any.
SCRIPTS = {
    "sources": ('data-v="', "<table", 'class="pb-term'),
    "schedule+kinds+question": ('class="pb-item',),
    "pieces": ('class="pb-pieces"', "pb-match", "data-variants="),
    "numbers": ('class="pb-typed"', "data-variants="),
    "asked": ('class="pb-item',),
    "recall": ("data-recall=",),
    "figures": ('class="pb-figure',),
    "player": ("pb-player",),
    "play": ("data-play=",),
    "calculator": ("data-calculator",),
    "home": ("data-survive",),
    "narrow": ("data-narrows",),
    "copies": ("data-copies=",),
    "formulas": ("<math",),
}
SHARED = ("page", "proofbook", "sources", "schedule+kinds+question")  # by most pages
# The style sheets that few pages need, each with the patterns of what asks for it, any of these.
STYLES = {
    "assets/asking.css": ('data-kind="(?!choice|several|number)',),
    "assets/calculator.css": ("data-calculator",),
    "assets/glossary.css": ('class="pb-terms"',),
    "assets/guide.css": ('class="pb-edges"', 'id="technique-'),
    "assets/home.css": ("data-survive",),
    "assets/indexes.css": ('class="pb-ways', 'class="pb-map'),
    "assets/markup.css": ("<math", 'class="(?:admonition|footnote)', "^ *!!! ", r"^\[\^"),
    "assets/play.css": ("pb-states",),
    "assets/recall.css": ("data-recall=",),
    "assets/retracted.css": ("pb-statement",),
    "assets/summary.css": ("pb-summary",),
}
# What the scores of a page are multiplied by in the search, where that of a lesson is 1. Among the
# entries of pages of one rank, `fields` in `mkdocs.yml` decides.
BOOSTS = {
    "deep": 1.05, "chain": 1.05, "cost": 0.8, "try": 0.6, "challenge": 0.6, "glossary": 0.4,
    "guide": 0.4, "home": 0.3, "topics": 0.3, "plan": 0.3, "topic": 0.2, "symptom": 0.15,
    "recall": 0.1, "lab": 0.5, "summary": 0.1, "planned": 0.05, "published": 0.05,
    # From here on, below whatever a lesson says of a word.
    "retracted": 0.002, "evidence": 0.0005, "runs": 0.0005, "machines": 0.0005, "machine": 0.0005,
}  # fmt: skip
JOINT = "+"  # between the names of scripts that a page loads as one file
_WORD = re.compile(r"\S*\w\S*")
_NOT_READ = re.compile(
    r"<(?:(pre|svg|style|script|annotation)\b.*?</\1>"
    r'|p class="pb-(?:paper|waits).*?</p>'
    r'|table class="pb-table pb-states.*?</table>'
    r'|details class="pb-details(?: pb-(?:numbers|answer|backing|whole|hint))?".*?</details>)',
    re.DOTALL,
)


def minutes(body: str, num_items: int) -> int:
    """Reading minutes of a page, from its words, questions and figures to operate."""
    text = re.sub(r"<[^>]+>", " ", _NOT_READ.sub(" ", body.replace("<wbr>", "")))
    words = _WORD.findall(text)  # a comma behind a link is none
    return max(1, round(len(words) / WORDS_PER_MINUTE + num_items + body.count("data-play=")))


def scripts(body: str, *, has_ways: bool) -> list[str]:
    """Scripts that a body's marks ask for, names joined by `+` in two strings: shared, others."""
    of_body = [name for name, marks in SCRIPTS.items() if any(mark in body for mark in marks)]
    keeps = has_ways or "data-items=" in body or "data-item=" in body
    needed = ["page", *(["proofbook"] if keeps else []), *of_body]
    parts = ([name for name in needed if (name in SHARED) is shared] for shared in (True, False))
    return [JOINT.join(names) for names in parts if names]


def styles(body: str) -> list[str]:
    """Names of the style sheets of `STYLES` of which a pattern occurs in the HTML of a body."""
    return [
        name
        for name, marks in STYLES.items()
        if any(re.search(pattern, body, re.MULTILINE) for pattern in marks)
    ]


def machines(origins: Sequence[View], book: Book) -> list[tuple[str, bool]]:
    """The machines behind a page, its own first, and whether each is the reference machine."""
    named = {(origin.machine, origin.is_reference) for origin in origins if origin.machine}
    return sorted(named, key=lambda machine: (machine[0] != book.machine.name, machine))


def origins(folio: Folio, depth: int) -> list[View]:
    """A `View` for each experiment whose runs a page used, by machine: software, run names."""
    by_trace: dict[tuple[str, str], View] = {}
    used = [(folio.book, folio.runs)]
    if folio.evidence.reference:
        used.append((folio.evidence.reference.book, folio.lent))
    for book, paths in used:
        for path in sorted(paths):
            if on_page := book.holder(path):
                experiment, name = path.split(".")
                key = experiment, on_page.machine.name
                by_trace.setdefault(key, _origin(on_page, book, depth)).runs.append(name)
    return list(by_trace.values())


def _origin(on_page: TraceOnPage, book: Book, depth: int) -> View:
    experiment = on_page.trace.experiment
    return View(
        experiment=experiment,
        machine=on_page.measured_on,
        is_reference=on_page.machine.name == book.reference.name,
        recorded_at=on_page.trace.recorded_at,
        software=software(on_page.trace.circumstances),
        runs=[],
        raw=f"{'../' * depth}{on_page.file}",
        again=reproduce_command(on_page, book),
        is_stale=on_page.is_stale,
        was_busy=on_page.trace.quiet is not None and on_page.trace.quiet.was_busy,
        is_new=not (on_page.reference or on_page.is_of_planner),
    )


def reproduce_command(trace: TraceOnPage, book: Book) -> str:
    """The command that measures an experiment again and compares it with this page's trace."""
    return command([trace.trace.experiment], trace.measured_on, book.reference.name)


def surprises(folio: Folio) -> list[tuple[str, Run]]:
    """The runs of a page that did not end as declared, also where the reference is shown."""
    used = ((path, folio.at_hand.book.run(path)) for path in sorted(folio.runs))
    return [(path, run) for path, run in used if run is not None and run.is_surprise]


def natures(folio: Folio, body: str) -> list[tuple[str, str]]:
    """The natures of numbers on a page, also of hidden ones, each with its meaning."""
    marks = " ".join(re.findall(r'class="pb-nature">([^<]*)', body))
    return [(word, means) for word, means in folio.ui["natures"].items() if word in marks]
