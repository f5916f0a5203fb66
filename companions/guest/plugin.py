"""The plugin in a site that is not ours: fences `quiz` become questions, and nothing else moves.

Flow: a page's fences leave its Markdown before any other plugin sees it; in their places the HTML
gets questions once the search has read the page, since their keys stand in it. A page with a
question loads one script and one style sheet, from within its text, where a theme that replaces the
text without loading a page (`navigation.instant`) runs them again. A mistake is a warning of
MkDocs, so `--strict` refuses it.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from markupsafe import escape
from mkdocs.config.base import LegacyConfig
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.livereload import LiveReloadServer
from mkdocs.plugins import BasePlugin, event_priority, get_plugin_logger
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url
from mkdocs.utils.templates import TemplateContext

from proofbook.companions.guest.questions import Guest
from proofbook.generator.content import addresses
from proofbook.generator.content.errors import ContentErrors, place_of
from proofbook.generator.content.handwritten import FENCE
from proofbook.generator.content.prose import meant
from proofbook.generator.printing.folio import Folio
from proofbook.generator.website import publish
from proofbook.generator.website.page_html import last_level, relinked

QUIZZES = "quizzes"  # the folder of questions, beside mkdocs.yml
log = get_plugin_logger("proofbook")


class _Fence(NamedTuple):
    """A fence of a page: what stands for it, and where its YAML stands in the page's file."""

    token: str
    written: str
    text: str
    span: tuple[int, int]


class GuestPlugin(BasePlugin[LegacyConfig]):
    """Asks questions in pages of a site."""

    def __init__(self, root: Path, quizzes: str, *, is_serving: bool) -> None:
        """Look for the folder of questions below `root`; one that is named has to be there."""
        self.root, self.folder, self.is_serving = root, root / (quizzes or QUIZZES), is_serving
        if quizzes and (Path(quizzes).is_absolute() or not self.folder.is_dir()):
            log.warning(f"mkdocs.yml: quizzes: no folder {quizzes!r} below this file")
            self.folder = root / QUIZZES
        self.guest: Guest
        self.fences: dict[str, list[_Fence]] = {}  # of a page, and what they show
        self.asked: dict[str, list[str]] = {}

    @event_priority(100)  # before a plugin that reads them
    def on_files(self, files: Files, /, *, config: MkDocsConfig) -> Files:
        """Read the questions into `self.guest`; return `files` without theirs, which hold keys."""
        self.guest = Guest(config.site_name, self.root, self.folder)
        for error in self.guest.errors:
            log.warning(str(error))
        for file in list(files):
            path = Path(file.abs_src_path or self.root).resolve()
            if path.match("*.y*ml") and path.is_relative_to(self.folder.resolve()):
                files.remove(file)
        return files

    @event_priority(100)
    def on_page_markdown(
        self, markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files
    ) -> str:
        """The Markdown, `quiz` fences replaced by tokens, kept aside; warn of misspelt fences."""
        text = page.file.content_string
        begins = text.rfind(markdown)
        if begins < 0:  # another plugin was here before
            text, begins = markdown, 0
        fences = self.fences[page.file.src_uri] = []

        def replaced(fence: re.Match[str]) -> str:
            if fence["info"] != "quiz":
                if meant(fence["info"], ["quiz"]):
                    line, _ = place_of(text, begins + fence.start("mark"))
                    where = os.path.relpath(page.file.abs_src_path or "", self.root)
                    log.warning(f"{where}:{line}: fence {fence['info']!r}; write ```quiz alone")
                return fence[0]
            token = f"proofbookquiz{len(fences)}z"  # one word, whatever others make of the page
            start, end = fence.span("yaml")
            fences.append(_Fence(token, fence[0], text, (begins + start, begins + end)))
            return f"\n{fence['indent']}{token}\n"

        return FENCE.sub(replaced, markdown)

    def on_page_content(
        self, html: str, /, *, page: Page, config: MkDocsConfig, files: Files
    ) -> str:
        """The HTML with slots for questions, rendered into `asked`; restores fences in code."""
        name, asked = page.file.src_uri, list[str]()
        path = Path(page.file.abs_src_path or name).resolve()
        folio = self.guest.folio(os.path.relpath(path, self.root))
        written = folio.path, page.file.content_string
        for mistake in addresses.mistakes(html, *written, addresses.ELSEWHERE):
            log.warning(str(mistake))
        for fence in self.fences.pop(name, ()):
            before, paragraph, after = html.partition(f"<p>{fence.token}</p>")
            if not paragraph:
                html = html.replace(fence.token, str(escape(fence.written.strip())))
                continue
            level = last_level(before)
            html = before + _slot(len(asked)) + after
            asked.append(self._questions(fence, level, folio, page.file, files))
        if any(asked):
            loaded = get_relative_url(f"{GUEST}/quiz", page.url)
            asked[0] = f'<link rel="stylesheet" href="{loaded}.css">\n{asked[0]}'
            asked[-1] += f'\n<script src="{loaded}.js" defer></script>'
        self.asked[name] = asked
        return html

    def _questions(self, fence: _Fence, level: int, folio: Folio, file: File, files: Files) -> str:
        """The HTML of a fence's questions; of its mistakes only while somebody serves the site."""

        def address_of(link: str) -> str:
            target = files.get_file_from_path(link)
            if target is None:
                log.warning(f"{folio.path}: a question links to {link!r}, no page of the site")
            return target.url_relative_to(file) if target else link

        try:
            html = self.guest.html(folio, fence.text, fence.span, level)
            markup = relinked(str(html), address_of)
        except ContentErrors as errors:
            for error in errors.errors:
                log.warning(str(error))
            markup = f'<pre class="pb-mistakes">{escape(errors)}</pre>' * self.is_serving
        return f'<div class="pb-quiz">\n{markup}\n</div>' if markup else ""

    @event_priority(-50)  # after the search
    def on_page_context(
        self, context: TemplateContext, /, *, page: Page, config: MkDocsConfig, nav: Navigation
    ) -> TemplateContext:
        """Put the questions rendered before into slots of `page.content`; return `context`."""
        for number, markup in enumerate(self.asked[page.file.src_uri]):
            page.content = (page.content or "").replace(_slot(number), markup)
        return context

    def on_post_build(self, *, config: MkDocsConfig) -> None:
        """Write what pages with a question load, if there is one."""
        for name, content in guest_assets().items() if any(self.asked.values()) else ():
            path = Path(config.site_dir, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def on_serve(
        self, server: LiveReloadServer, /, *, config: MkDocsConfig, builder: Callable[..., None]
    ) -> LiveReloadServer:
        """Have the server watch the folder of questions, if there is such a folder."""
        if self.folder.is_dir():
            server.watch(str(self.folder))
        return server


def _slot(number: int) -> str:
    """The placeholder of a fence's questions until the search has read the page."""
    return f'<div class="pb-quiz" data-slot="{number}"></div>'


GUEST = "assets/proofbook"  # what pages of another site load
GUEST_STYLE = Path(__file__).with_name("guest.css")
SCRIPTS_OF_ITEMS = (
    "page", "proofbook", "schedule", "kinds", "question", "pieces", "numbers", "asked",
)  # fmt: skip
_SCOPED = re.compile(
    r"(?:\[dir\] )?(?:\.md-content__inner)?\.md-typeset|:root|\.js\b|body\[data-md-color-scheme\]|"
    r"\.md-content__inner"
)
_REM = re.compile(r"(?<![\w.-])(-?[\d.]+)rem\b")


def guest_assets() -> dict[str, bytes]:
    """Bytes of quiz.css, scoped to `.pb-quiz`, and of quiz.js for another site, by path.

    Our sizes count from a root of 20 px, which Material has; `--pb-rem` is that size elsewhere.
    """
    files = publish.assets()
    css = publish.style(("palette", "shared", "tables", "values", "items", "evidence")).decode()
    css = _SCOPED.sub(".pb-quiz", css + files["assets/asking.css"].decode())
    css = _REM.sub(r"calc(\1 * var(--pb-rem))", css)
    scripts = (files[f"assets/{name}.js"] for name in SCRIPTS_OF_ITEMS)
    return {
        f"{GUEST}/quiz.css": publish.asset(GUEST_STYLE) + css.encode(),
        f"{GUEST}/quiz.js": b"".join(scripts),
    }
