"""MkDocs' view of Proofbook: the plugin that mkdocs.yml names, and that of a book.

Where mkdocs.yml stands beside a book, `BookPlugin` makes the whole site; in any other site,
the plugin of a companion, if there is one, puts questions into its pages.

Before a build it loads the book, renders it, and writes it to `docs_dir`: pages and assets where
their bytes changed, raw traces beside them. It deletes what it wrote there earlier and the book no
longer has; pages that somebody else put there stay, and are built. Content errors are printed one a
line, all at once, and end a build with exit code 2; under `serve` the last good pages stay, with
the errors on top. While serving, only the pages of edited files are printed again
(`Press.pages_of`).

    mkdocs build --strict      mkdocs serve      mkdocs serve --dirty --no-strict
"""

import atexit
import gc
import itertools
import logging
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment
from material.plugins.search.plugin import SearchPlugin  # type: ignore[import-untyped]
from mkdocs.config import config_options
from mkdocs.config.base import Config
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import Abort
from mkdocs.livereload import LiveReloadServer
from mkdocs.plugins import BasePlugin, CombinedEvent, event_priority, get_plugin_logger
from mkdocs.structure import StructureItem
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.nav import Link, Navigation, Section
from mkdocs.structure.pages import Page
from mkdocs.structure.toc import AnchorLink, TableOfContents
from mkdocs.utils.templates import TemplateContext
from watchdog.observers.polling import PollingObserver

from proofbook.generator.checks import trace_checks
from proofbook.generator.content import addresses, reading, scaffold
from proofbook.generator.content.book import Book
from proofbook.generator.content.errors import ContentErrors
from proofbook.generator.pages.elements.element import Heading
from proofbook.generator.pages.environment import reread
from proofbook.generator.pages.facts import BEHIND, LEVEL
from proofbook.generator.pages.page import ListedPage, SitePage
from proofbook.generator.pages.press import EVERYTHING, Press
from proofbook.generator.printing.folio import interface_words
from proofbook.generator.website import page_html, publish
from proofbook.runners.system.book import enter_book, own_book
from proofbook.runners.system.kinds import filling, kinds, page_kind
from proofbook.runners.traces.digest import forget_code

PATH = "topics/index.md"
BOOK = "content"  # the folder of a book, beside mkdocs.yml
GENERATOR = Path(__file__).resolve().parents[1]
SECONDS_BETWEEN_LOOKS = 0.1  # at the files; MkDocs waits half a second
SECONDS_OF_SILENCE = 5.0  # at most, while a person waits for a build
SECONDS_OF_QUIET = 0.05  # before a build, since an editor may save in several steps
OVERRIDES = Path(__file__).resolve().parent / "overrides"  # our own templates
SURPRISES = "_PROOFBOOK_SURPRISES"  # set by `make site`, which ends with 1 where a run surprised
log = get_plugin_logger("proofbook")


class ContentAbort(Abort):
    """The book cannot be built from what is written; exit code 2, no traceback."""

    code = exit_code = 2

    def show(self, *_: object, **__: object) -> None:
        """Print the mistakes to standard error; MkDocs prints to standard output."""
        sys.stderr.write(f"{self.format_message()}\n")


class SurprisedAbort(ContentAbort):
    """The book is built, and not all is as declared; exit code 1."""

    code = exit_code = 1


class ProofbookConfig(Config):
    """Options of the plugin in mkdocs.yml."""

    content = config_options.Type(str, default="")  # of a book; else `content`, if there is one
    quizzes = config_options.Type(str, default="")  # of a guest; else `quizzes`, if there is one
    pages = config_options.Type(str, default="")  # made where missing; else docs_dir
    machine = config_options.Type(str, default="")  # PROOFBOOK_MACHINE comes before it
    committed_only = config_options.Type(bool, default=False)
    new_runs = config_options.Type(bool, default=False)


class ProofbookPlugin(BasePlugin[ProofbookConfig]):
    """Finds out what the site is, and leaves all else to the plugin of a book or of a guest."""

    is_serving = is_deploying = False
    mode: "BasePlugin[Any] | None" = None  # the same for all builds of `serve`

    def on_startup(self, *, command: Literal["build", "gh-deploy", "serve"], dirty: bool) -> None:
        """Remember whether a person is watching, and whether the build goes out at once."""
        self.is_serving = command == "serve"
        self.is_deploying = command == "gh-deploy"

    @event_priority(50)  # before the search, which asks the theme for its language
    def on_config(self, config: MkDocsConfig) -> MkDocsConfig:
        """Register BookPlugin if settings name a book or its folder exists, else a companion's."""
        root = Path(config.config_file_path or "mkdocs.yml").resolve().parent
        if config.strict and not log.isEnabledFor(logging.WARNING):
            logging.getLogger("mkdocs").setLevel(logging.WARNING)  # --quiet would count no warning
        is_named = self.config.content or self.config.pages
        if is_named or any((root / BOOK / name).exists() for name in ("site.yml", "topics")):
            if not isinstance(self.mode, BookPlugin):
                self.mode = BookPlugin(self.is_serving, self.is_deploying)
            self.mode.begin(root, self.config, config)
        else:
            guest = next((kind for kind in kinds() if kind.in_other_sites), None)
            if guest is None:
                raise ContentAbort(f"{root}: no book here; one has content/site.yml")
            make = guest.take(guest.in_other_sites)
            self.mode = make(root, self.config.quizzes, is_serving=self.is_serving)
        config.plugins["proofbook/mode"] = self.mode
        return config

    def on_build_error(self, *, error: Exception) -> None:
        """Release the lock; raise one line as `ContentAbort` if the disk refused."""
        if isinstance(self.mode, BookPlugin):
            self.mode.held.close()
        if isinstance(error, OSError):
            site = error.filename2 or error.filename or "the folder of the site"
            raise ContentAbort(f"{site}: {error.strerror}; build again") from None


class BookPlugin(BasePlugin[ProofbookConfig]):
    """Writes the book's pages where MkDocs looks for them."""

    def __init__(self, is_serving: bool, is_deploying: bool) -> None:
        self.is_serving, self.is_deploying = is_serving, is_deploying
        self.mistakes = ""
        self.shows_mistakes = False
        self.root = self.content = Path()
        self.press = Press(partial(self._tell, "printed"))
        self.markup = page_html.SiteMarkup()
        self.searched: dict[str, str] = {}  # of pages by hand, what is Markdown
        self.entries: list[dict[str, Any]] = []  # of the search, as Material made them
        self.book: Book
        self.nav: Navigation
        self.pages: list[Page] = []
        self.problems: list[str] = []
        self.files: dict[Path, tuple[int, int]] = {}  # as they were when the pages were printed
        self.html = ""  # of the page that MkDocs reads, or what the search may not see of it
        self.held = ExitStack()  # what no other build may write meanwhile
        self.told = 0.0  # when somebody who waits was last told how far a build is
        self.num_built = 0
        self.env: Environment | None = None  # with the theme's templates, compiled
        atexit.register(gc.freeze)  # looking through a whole book once more would take a second

    def begin(self, root: Path, settings: ProofbookConfig, config: MkDocsConfig) -> None:
        """Enter the book, and set MkDocs' `docs_dir`, Markdown extension and templates for it."""
        self.root, self.config = root, settings
        self.content = root / (settings.content or BOOK)  # the folder that people and runners write
        enter_book(root)
        if self.config.pages:
            config.docs_dir = str(self.root / self.config.pages)
        config.markdown_extensions.append(self.markup)
        scripts = config.extra.setdefault("polyfills", [])
        scripts += [script for kind in kinds() for script in kind.polyfills]
        config.theme.dirs.insert(0 if config.theme.custom_dir is None else 1, str(OVERRIDES))

    def on_pre_build(self, *, config: MkDocsConfig) -> None:
        """Lock `docs_dir` and publish the book in it; serving, errors keep the last good pages.

        Raises:
            ContentAbort: the content has errors, or the disk refused, and no good pages exist.
        """
        self.mistakes, self.num_built, self.told = "", 0, time.monotonic()
        gc.disable()  # what a build makes stays, and looking through it takes long
        try:
            self.held.enter_context(publish.locked(Path(config.docs_dir)))
            self._publish(config)
        except ContentErrors as errors:
            self._refuse(str(errors))
        except OSError as error:
            self._refuse(f"{error.filename or config.docs_dir}: {error.strerror}; build again")

    def _tell(self, what: str, num_done: int, of: int) -> None:
        """Say every few seconds how many pages are done."""
        if time.monotonic() > self.told + SECONDS_OF_SILENCE:
            log.info(f"{num_done} of {of} pages {what}")
            self.told = time.monotonic()

    def _refuse(self, mistakes: str) -> None:
        """End a build with mistakes; while serving, go on with the last good pages, if any."""
        if not self.files:
            raise ContentAbort(mistakes) from None
        self.mistakes = mistakes  # logged last, below the warnings of the last good pages

    def _publish(self, config: MkDocsConfig) -> None:
        """Print the book; while serving, the pages of what has changed since they were printed."""
        files = dict(self._states(config))
        changed = {path for path, _ in files.items() ^ self.files.items()}
        if any(path.is_relative_to(GENERATOR) for path in changed):
            reread()
        if any(path.suffix in (".py", ".txt") for path in changed):
            forget_code()
        is_published = self.is_deploying or self.config.committed_only
        self.book = reading.load(
            self.content,
            os.environ.get("PROOFBOOK_MACHINE") or self.config.machine,
            with_tries=self.is_serving,
            only=publish.committed_machines(self.content) if is_published else None,
            with_new=self.config.new_runs,
        )
        for name in publish.uncommitted(self.content) if is_published else ():
            log.warning(f"content/{name}: differs from the commit; commit it, or restore it")
        under = self._under(changed)
        pages = publish.site_files(self.book, self.content, self.press, under)
        if sources := publish.committed_sources(self.content) if is_published else b"":
            pages[publish.SOURCES] = sources
        pages = page_html.without_absent(pages, self.book.home.optional_pages)
        publish.sync_folder(Path(config.docs_dir), pages)
        self.files = files
        self.problems = list(trace_checks.problems(self.book, self.press.evidence.judged_claims))
        for unread in self.book.unread:
            log.info(f"not shown: {unread}")
        for problem in self.problems:
            log.warning(problem)
        for place in scaffold.remaining_todos(self.book) if self.is_deploying else ():
            log.warning(f"{place}: to be written, where {scaffold.TODO} stands")

    def _states(self, config: MkDocsConfig) -> Iterator[tuple[Path, tuple[int, int]]]:
        """Yield each file that may be edited while serving, with its time and size."""
        edited = [Path(config.config_file_path or "mkdocs.yml")]
        home = own_book() or GENERATOR.parent  # of which one folder is there
        for top in (self.content, GENERATOR, home / "experiments", home / "runners"):
            for folder, folders, names in os.walk(top):
                folders[:] = [name for name in folders if name[0] not in "._"]
                edited += [Path(folder, name) for name in names if name[0] != "."]
        for path in edited:
            if path.exists():  # not a link that leads nowhere, as editors leave
                yield path, (path.stat().st_mtime_ns, path.stat().st_size)

    def _under(self, changed: Iterable[Path]) -> tuple[str, ...]:
        printed = [path for path in changed if not path.is_relative_to(publish.ASSETS)]
        if not all(path.is_relative_to(self.content) for path in printed):
            return EVERYTHING
        names = (path.relative_to(self.content.parent).as_posix() for path in printed)
        return self.press.pages_of(names, self.book)

    def on_serve(
        self, server: LiveReloadServer, /, *, config: MkDocsConfig, builder: Callable[..., None]
    ) -> LiveReloadServer:
        """Watch the content and the generator instead of `docs_dir`, and poll more often."""
        watched = [str(self.content), str(GENERATOR)]
        if own := own_book():
            watched.append(str(own / "experiments"))
        server.unwatch(config.docs_dir)
        if config.config_file_path:
            server.unwatch(config.config_file_path)
            watched.append(config.config_file_path)
        server.observer = PollingObserver(timeout=SECONDS_BETWEEN_LOOKS)
        server.build_delay = SECONDS_OF_QUIET
        for path in watched:
            server.watch(path)
        return server

    def on_env(self, env: Environment, /, *, config: MkDocsConfig, files: Files) -> Environment:
        """Set globals of the templates, and the pages below the path in Material's drawer."""
        for place, item in enumerate(self.nav.items):
            if isinstance(item, Page) and item.file.src_uri == PATH:
                self.nav.items[place] = self._path(item, files)

        def picture_of(page: Page) -> File | None:
            names = Path(page.file.src_uri).with_suffix("").parts[::-1]
            paths = *(f"{publish.PICTURES}/{name}.png" for name in names), publish.PICTURE
            return next(filter(None, map(files.get_file_from_path, paths)), None)

        self.pages = [file.page for file in files.documentation_pages() if file.page]
        if self.env and vars(self.env.loader) == vars(env.loader):
            env = self.env  # compiling what no edit changed would take a fifth of an author's wait
        self.env, env.auto_reload = env, True
        env.filters["named_sections"] = page_html.named_sections
        env.globals.update(
            topics=[f"topics/{topic.id}/index.md" for topic in self.book.topics],
            picture_of=picture_of,
            sources=files.get_file_from_path(publish.SOURCES),
        )
        return env

    def on_nav(self, nav: Navigation, /, *, config: MkDocsConfig, files: Files) -> Navigation:
        """Keep the nav until its pages have titles."""
        self.nav = nav
        return nav

    def _path(self, path: Page, files: Files) -> Section:
        """The lessons in the drawer: the first hour, and those of each topic with its labs."""
        modes = interface_words()["modes"]
        of_topics: dict[str, list[StructureItem]] = {}
        kinds = ["topic", *itertools.chain(*(next(filling("groups"), {}).values()))]
        sheets = (sheet for sheet in self.press.sheets.values() if sheet.topic)
        for sheet in sorted(sheets, key=lambda sheet: kinds.index(sheet.mode or sheet.kind)):
            file = files.get_file_from_path(sheet.path)
            if not sheet.topic or not file or not (page := file.page):
                continue
            own = of_topics.setdefault(sheet.topic.id, [])
            of_kind = page_kind(sheet.kind)
            kind = modes.get(sheet.mode) or (of_kind and of_kind[1].label)
            if sheet.is_part:  # below the first page of its lesson
                lesson = own[-1]
                if not isinstance(lesson, Section):
                    own[-1] = lesson = _section(f"{kind}: {lesson.title}", [lesson])
                lesson.children.append(page)
                page.parent = lesson
            else:
                page.meta["subtitle"] = kind
                own.append(page)
        hour = [
            Link(str(page.title), page.url)
            for step in self.book.home.first_hour
            for name in (step.page, f"topics/{step.page}")
            if (file := files.get_file_from_path(f"{name}.md")) and (page := file.page)
        ]
        topics = [_section(str(pages[0].title), pages) for pages in of_topics.values()]
        return _section(
            str(path.title), [path, *([_section("First hour", [*hour])] if hour else ()), *topics]
        )

    def on_files(self, files: Files, /, *, config: MkDocsConfig) -> Files:
        """Set each page's edit path to its author's file; take generated pages out of a `nav`.

        A `nav` names sections; of pages that it does not name, MkDocs lists those by hand alone.
        Optional pages that are not there leave it.
        """
        sheets = self.press.sheets
        absent = {f"{name}.md" for name in self.book.home.optional_pages} - {*sheets}
        if config.nav and absent:
            config.nav = [page for page in config.nav if absent.isdisjoint(_paths_of(page))]
        for file in files.documentation_pages():
            put_there = os.path.relpath(file.abs_src_path or "", self.root)
            sheet = sheets.get(file.src_uri)
            file.edit_uri = sheet.source if sheet else put_there
            if config.nav and sheet and not sheet.by_hand and file.inclusion.is_in_nav():
                file.inclusion = InclusionLevel.NOT_IN_NAV
        return files

    def on_page_markdown(
        self, markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files
    ) -> str | None:
        """Keep a page's HTML aside, return its Markdown; show the sidebar in a section of the nav.

        Of the book's pages Markdown reads nothing, of those by hand all but the values at their
        end. A page that somebody put into `docs_dir` is left to MkDocs.
        """
        sheet = self.press.sheets.get(page.file.src_uri)
        if sheet is None:
            return None
        if page.parent or "navigation.tabs" not in config.theme.get("features", ()):
            page.meta["hide"] = [part for part in page.meta["hide"] if part != "navigation"]
        begins = markdown.rfind('<script type="application/json"') if sheet.text else 0
        self.html = markdown[begins:]
        return markdown[:begins]

    def on_page_content(
        self, html: str, /, *, page: Page, config: MkDocsConfig, files: Files
    ) -> str:
        """The HTML kept aside, after MkDocs' own for a page by hand.

        Links of pages by hand lead to any part of a page, so MkDocs hears of all of them.
        """
        sheet = self.press.sheets.get(page.file.src_uri)
        if sheet is None:
            return html
        if sheet.text:
            written = (self.content.parent / str(sheet.source)).read_text("utf-8")
            for mistake in addresses.mistakes(html, str(sheet.source), written):
                log.warning(str(mistake))
            self.searched[page.file.src_uri] = self.markup.searched
            return f"{html}\n{self.html}"
        page.toc = _contents(self.press.pages[page.file.src_uri].headings)
        if self.book.handwritten and page.present_anchor_ids is not None:
            page.present_anchor_ids |= page_html.ids(self.html)
        return self.html

    @event_priority(50)
    def _before_the_search(
        self, context: TemplateContext, /, *, page: Page, config: MkDocsConfig, nav: Navigation
    ) -> None:
        """Show the search no more of a page of the book than it may show."""
        path = page.file.src_uri
        if path in self.press.sheets:
            self.html = page.content or ""
            page.content = self.searched.get(path, "") + self.press.pages[path].searched

    @event_priority(-50)
    def _after_the_search(
        self, context: TemplateContext, /, *, page: Page, config: MkDocsConfig, nav: Navigation
    ) -> None:
        """Give the page back what the search may not show."""
        if page.file.src_uri in self.press.sheets:
            page.content = self.html

    on_page_context = CombinedEvent(_before_the_search, _after_the_search)

    def on_post_page(self, output: str, /, *, page: Page, config: MkDocsConfig) -> str:
        """Write what kinds put beside a page; the drawer, of each page, loses its indentation."""
        self.num_built += 1
        self._tell("built", self.num_built, len(self.pages))
        printed = self.press.pages.get(page.file.src_uri)
        footnotes, command = (printed.footnotes, printed.command) if printed else ((), "")
        own = page.file.dest_uri, page.content or "", config.site_name, footnotes, command
        for beside in filling("beside a page"):
            _write(config, *beside(SitePage(*own)))
        return page_html.without_indentation(output)

    def _sections(self) -> dict[str, list[ListedPage]]:
        """Pages by title: those of the nav as `nav`, a topic's, those below one, others as ``."""
        tops, sections = dict[str, str](), defaultdict[str, list[ListedPage]](list)
        for page in _pages_of(self.nav.items):
            topic = [str(section.title) for section in page.ancestors][-2:-1]
            sections[topic[0] if topic else "nav"].append(_listed(page))
            tops[page.file.src_uri] = "" if topic else str(page.title)
        below = {title: list[ListedPage]() for title in (*filter(None, tops.values()), "")}
        for page in (page for page in self.pages if page.file.src_uri not in tops):
            above = page.meta.get("under") or f"{page.file.src_uri.partition('/')[0]}.md"
            below[tops.get(above) or ""].append(_listed(page))
        return sections | {title: lines for title, lines in below.items() if lines}

    @event_priority(50)
    def _before_the_index(self, *, config: MkDocsConfig) -> None:
        """Write the index of the search from Material's entries, and leave that of Material empty.

        While serving, Material has entries of the pages of the last edit alone.
        """
        of_material = config.plugins.get("material/search")
        indexes = [*filling("index")]
        if not isinstance(of_material, SearchPlugin):
            return
        if not indexes:  # Material shows what it finds
            for section in of_material.search_index.entries:
                section["text"] = section["text"].partition(BEHIND)[0]
            return
        entries, of_material.search_index.entries = of_material.search_index.entries, []
        pages = {entry["location"].partition("#")[0] for entry in entries}
        kept = (old for old in self.entries if old["location"].partition("#")[0] not in pages)
        self.entries = [*kept, *entries] if self.is_serving else entries
        for index in indexes:
            for path, text in index(self.book, self.entries):
                if path:
                    _write(config, path, text)
                else:
                    log.warning(text)

    @event_priority(-200)
    def _after_the_pages(self, *, config: MkDocsConfig) -> None:
        """Show mistakes over the last good pages; raise `SurprisedAbort` at a surprise."""
        self.held.close()
        site = Path(config.site_dir)
        if self.is_serving:
            gc.enable()
            if self.mistakes or self.shows_mistakes:
                page_html.put_mistakes(site, self.mistakes)
            for mistake in self.mistakes.splitlines():
                log.error(mistake)
            self.shows_mistakes = bool(self.mistakes)
            return
        if not config.site_url:  # a sitemap without addresses is of no use, and carries a date
            (site / "sitemap.xml").unlink(missing_ok=True)
            (site / "sitemap.xml.gz").unlink(missing_ok=True)
        says, sections = config.site_description or "", self._sections()
        for beside in filling("beside all"):
            _write(config, *beside(config.site_name, says, sections))
        for lost in page_html.broken_links(site):
            log.warning(lost)
        if os.environ.get(SURPRISES) and self.problems:
            raise SurprisedAbort("\n".join(self.problems))

    on_post_build = CombinedEvent(_before_the_index, _after_the_pages)


def _section(title: str, children: list[StructureItem]) -> Section:
    """Pages of a nav below a title."""
    section = Section(title, children)
    for child in children:
        child.parent = section
    return section


def _paths_of(item: object) -> Iterator[object]:
    """The paths that an item of a configured nav names itself."""
    yield from item.values() if isinstance(item, dict) else [item]


def _pages_of(items: Iterable[StructureItem]) -> Iterator[Page]:
    """The pages of some items of a nav, and of all sections in them."""
    for item in items:
        if isinstance(item, Page):
            yield item
        elif isinstance(item, Section):
            yield from _pages_of(item.children)


def _listed(page: Page) -> ListedPage:
    """A page as lists of all pages name it."""
    title = ": ".join(filter(None, (page.meta.get("subtitle"), unescape(str(page.title)))))
    return ListedPage(page.file.dest_uri, title, page.meta.get("description") or "")


def _write(config: MkDocsConfig, name: str, text: str) -> None:
    path = Path(config.site_dir, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _contents(written: Sequence[Heading]) -> TableOfContents:
    """A table of contents: the title, and below it the headings of the sidebar in two levels."""
    title, *others = (heading for heading in written if heading.is_listed)
    top = AnchorLink("", title.anchor, title.level)
    for heading in others:
        link = AnchorLink(str(heading.words), heading.anchor, heading.level)
        if heading.level == LEVEL or not top.children:
            top.children.append(link)
        elif heading.level == LEVEL + 1:
            top.children[-1].children.append(link)
    return TableOfContents([top])
