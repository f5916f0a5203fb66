"""What a folder adds to the book and its commands: a kind of pages, or a companion. No torch.

In: `kind.py` of each folder of `generator/kinds/` and of `companions/`, and of installed packages
that name theirs as an entry point `proofbook.kinds`. Out: a `Kind` of each. Nobody outside a folder
knows it by its name; whoever takes one away takes away all that it adds. A declaration names
functions and models as `.module:name`, from its own folder, so that reading it loads nothing else.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any, NamedTuple

FOLDERS = ("generator/kinds/*", "companions/*", "runners/*")
GROUP = "proofbook.kinds"  # of entry points; each names a module with a `KIND`
HOME = Path(__file__).resolve().parents[2]


class PageKind(NamedTuple):
    """How pages of one kind are made."""

    compose: str  # (Draft) → the elements of such a page
    boost: float  # what its scores in the search are multiplied by
    names_machines: bool = True  # below its content, those of its numbers
    names_each: bool = False  # it names the machine beside each number
    is_timed: bool = True  # reading it takes minutes
    links_terms: bool = False  # its words lead to the glossary
    keeps_progress: bool = True  # a reader's answers on it are kept, and ticked off
    num_links: str = ""  # (Sheet) → how many links its texts have, where that is many
    label: str = ""  # what lists of a topic's pages say before its title
    is_listed: bool = False  # other pages list it, so it is printed before them


class Fence(NamedTuple):
    """A fence of YAML in pages by hand."""

    model: str  # of what it holds
    elements: str  # (what it holds, its number on the page, Draft) → elements in its place
    parse: str = ""  # (file, text, start, end) → YamlFile, where it is no plain YAML
    follows_lessons: bool = False  # it lists their sections, so its page is printed after them
    begins: str = ""  # (Draft) → elements above a page that has one
    ends: str = ""  # (Draft) → elements and Markdown below such a page


class BookCommand(NamedTuple):
    """A command of the generator."""

    about: str  # the line of `--help`
    add_arguments: Callable[[ArgumentParser], None]  # beside `--content` and `--machine`
    run: Callable[[Namespace], int]  # returns the exit code


class Kind(NamedTuple):
    """What one folder adds."""

    # --- to the runners' commands
    # The module of each: `add_arguments` says what it takes, `main` returns the exit code.
    commands: Mapping[str, str] = {}
    usage: str = ""  # the lines of `--help` on these
    stopped: str = ""  # what is said where one of them is stopped
    needs_torch: bool = True  # before such a command can begin
    # A module that computes experiments again which no run measures: `trace_of(name)`, which is
    # None for any other, `runs_again(name, runs)`, and `is_stale(trace)`.
    again: str = ""

    # --- to the book
    book_commands: Mapping[str, str] = {}  # of the generator, each a `BookCommand`
    book_usage: str = ""  # the lines of `proofbook --help` on these
    in_other_sites: str = ""  # MkDocs' plugin of a site without a book: (root, quizzes, is_serving)
    files: Mapping[str, str] = {}  # pattern of files in `content/` → the model of each
    folders: Sequence[str] = ()  # of `content/`, whose programs are run and whose JSON it writes
    downloads: bool = True  # pages offer these programs for download
    of_no_machine: Sequence[str] = ()  # experiments that no machine turns, such as grades
    reserved: Sequence[str] = ()  # how names of experiments may not begin
    traces: str = ""  # (Files, Machine, IsStale) → `TraceOnPage`s that no machine measured
    is_stale: str = ""  # (Trace) → whether its code has changed since; None of any other
    references: str = ""  # (traces by experiment) → `Reference`s beside those that authors wrote
    tries: Mapping[str, str] = {}  # end of files of `content/tries/` → how its pages' paths begin
    reads: str = ""  # (Loader, whether to read tries) → what `Book.part` gives, by its type
    sheets: str = ""  # (Book) → its pages
    pages: Mapping[str, PageKind] = {}  # by the kind of a `Sheet`
    fences: Mapping[str, Fence] = {}  # by the word behind the marks
    # Model of a file → (Evidence, Document) → what is wrong in it: paths in the file, each with a
    # message, or ContentErrors of other places.
    mistakes: Mapping[str, str] = {}
    known: Mapping[str, str] = {}  # mark of a text → (Book, Document) → the ids that it may name
    mistakes_after: str = ""  # (Book, sections by lesson) → ContentErrors once pages are printed
    programs: str = ""  # (Book) → paths of further programs that pages offer
    notes: str = ""  # (Evidence) → lines on what a check could not look at
    starts: Mapping[str, str] = {}  # word after `generator new` → (options, command) → lines
    problems: str = ""  # (Book) → lines on what fails a strict build
    # Files with words of many pages → how paths of further pages begin that an edit prints anew.
    shared: Mapping[str, Sequence[str]] = {}
    slots: Mapping[str, str] = {}  # place that others leave open → what fills it; see `filling`
    laws: str = ""  # name → function of expressions
    scripts: Mapping[str, str] = {}  # script → the elements, or kinds of pages, that need it
    polyfills: Sequence[str] = ()  # scripts that Material loads with the search
    shared_scripts: Sequence[str] = ()  # of these, those that most pages take
    styles: Mapping[str, str] = {}  # the same of style sheets
    spoken: Mapping[str, str] = {}  # script → the key of `ui.yml` with the words that it says

    package: str = ""  # the folder as Python imports it; set where it is found

    @property
    def folder(self) -> Path:
        """Where its declaration lies; beside it may lie elements.j2, ui.yml and assets/."""
        return Path(str(import_module(f"{self.package}.kind").__file__)).parent

    def take(self, name: str) -> Any:  # noqa: ANN401
        """What `.module:name` names, imported now; a module for `.module`."""
        module, _, attribute = name.partition(":")
        loaded = import_module(module, self.package)
        return getattr(loaded, attribute) if attribute else loaded


@cache
def kinds() -> tuple[Kind, ...]:
    """All of them: those of this book by the names of their folders, then installed ones."""
    places = [place for pattern in FOLDERS for place in sorted(HOME.glob(f"{pattern}/kind.py"))]
    modules = [
        ".".join(["proofbook", *place.relative_to(HOME).with_suffix("").parts]) for place in places
    ]
    modules += [point.value for point in metadata.entry_points(group=GROUP)]
    return tuple(
        import_module(name).KIND._replace(package=name.rpartition(".")[0]) for name in modules
    )


def page_kind(name: str) -> tuple[Kind, PageKind] | None:
    """The folder that pages of a kind come from, and how they are made; None for the book's own."""
    return next(((kind, kind.pages[name]) for kind in kinds() if name in kind.pages), None)


def filling(slot: str) -> Iterator[Any]:
    """Yield what fills a slot, one of each kind that does.

    | slot | takes | gives |
    |---|---|---|
    | `way` | Sheet, Folio | the pages of its topic, and its place among them |
    | `groups` | | the order of a topic's pages, by title |
    | `steps.NAME` | Topic, Folio, minutes by path | steps of the way at `NAME` of the groups |
    | `links` | Folio, number of other links | the `Links` of a page to the glossary |
    | `index` | Book, entries of Material | path and text of each file of an index, or a mistake |
    | `beside a page` | `SitePage` | path and text of a file beside it |
    | `beside all` | name of the site, what it is, pages by title | path and text of a file |
    | `former` | Book, path | anchors that a page had |
    | `on home` | Draft | elements of the home page, below what its own file says |
    | `layouts of decisions` | Draft, lesson | elements that show them for real models |
    | `below decisions` | Draft | elements below the table of a Why |
    | `class` | Draft | the title of a task for a class, and the task |
    | `name of a plan` | path of a run, Folio | what a planned run is called |
    """
    yield from (kind.take(kind.slots[slot]) for kind in kinds() if slot in kind.slots)
