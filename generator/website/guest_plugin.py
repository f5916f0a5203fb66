"""The plugin in a site that is not ours: fences `quiz` become questions, and nothing else moves.

Flow: a page's fences leave its Markdown before any other plugin sees it; in their places the HTML
gets questions once the search has read the page, since their keys stand in it. A page with a
question loads one script and one style sheet, from within its text, where a theme that replaces the
text without loading a page (`navigation.instant`) runs them again. A mistake is a warning of
MkDocs, so `--strict` refuses it.
"""

import os
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

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

from generator.content.errors import ContentErrors
from generator.content.fence import FENCE
from generator.pages.guest import Guest
from generator.website import page_html, publish

QUIZZES = "quizzes"  # the folder of questions, beside mkdocs.yml
_PAGE = re.compile(r'href="([^":#?]+\.md)(?=["#])')
_HEADING = re.compile(r"<h([1-6])\b")
log = get_plugin_logger("proofbook")


class GuestPlugin(BasePlugin[LegacyConfig]):
    """Asks questions in pages of a site."""

    def __init__(self, root: Path, quizzes: str, *, is_serving: bool) -> None:
        """Look for the folder of questions below `root`; one that is named has to be there."""
        self.root, self.folder, self.is_serving = root, root / (quizzes or QUIZZES), is_serving
        if quizzes and not (self.folder.is_dir() and self.folder.resolve().is_relative_to(root)):
            log.warning(f"mkdocs.yml: quizzes: no folder {quizzes!r} beside or below this file")
        self.guest: Guest
        self.fences: dict[str, list[tuple[str, tuple[int, int], str]]] = defaultdict(list)
        self.asked: dict[str, dict[str, str]] = defaultdict(dict)  # HTML, by page and slot

    @event_priority(100)  # before a plugin that reads them
    def on_files(self, files: Files, /, *, config: MkDocsConfig) -> Files:
        """Read the questions, and keep their files, which have the keys, out of the site."""
        self.guest = Guest(config.site_name, self.root, self.folder)
        for error in self.guest.errors:
            log.warning(str(error))
        for file in list(files):
            path = Path(file.abs_src_path or self.root)
            if path.is_relative_to(self.folder) and path.match("*.y*ml"):
                files.remove(file)
        return files

    @event_priority(100)
    def on_page_markdown(
        self, markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files
    ) -> str:
        """Put a paragraph into the place of each fence."""
        source = page.file.content_string
        begins = source.rfind(markdown)
        whole, begins = (markdown, 0) if begins < 0 else (source, begins)  # another plugin was here
        fences = self.fences[page.file.src_uri] = []

        def replaced(fence: re.Match[str]) -> str:
            if fence["info"] != "quiz":
                return fence[0]
            start, end = (begins + at for at in fence.span("yaml"))
            fences.append((whole, (start, end), fence[0]))
            return f"\n{fence['indent']}{_token(len(fences))}\n"

        return FENCE.sub(replaced, markdown)

    def on_page_content(
        self, html: str, /, *, page: Page, config: MkDocsConfig, files: Files
    ) -> str:
        """Render the questions of a page; in code, a fence stays the example that it is."""
        name = page.file.src_uri
        path = os.path.relpath(page.file.abs_src_path or name, self.root)
        folio, asked = self.guest.folio(path), self.asked[name]
        asked.clear()
        for number, (text, span, written) in enumerate(self.fences.pop(name, ()), 1):
            token = _token(number)
            before, paragraph, after = html.partition(f"<p>{token}</p>")
            if not paragraph:
                html = html.replace(token, str(escape(written.strip())))
                continue
            level = max(1, *map(int, ["1", *_HEADING.findall(before)[-1:]]))
            try:
                shown = _PAGE.sub(
                    lambda link: self._address(link[1], path, page.file, files),
                    str(self.guest.html(folio, text, span, level)),
                )
            except ContentErrors as errors:
                for error in errors.errors:
                    log.warning(str(error))
                shown = f'<pre class="pb-mistakes">{escape(errors)}</pre>' * self.is_serving
            slot = f'<div class="pb-quiz" data-slot="{number}"></div>'
            asked[slot] = f'<div class="pb-quiz">\n{shown}\n</div>' if shown else ""
            html = before + slot + after
        if any(asked.values()):
            first, *_, last = [next(iter(asked)), *asked]
            style, script = (
                get_relative_url(f"{publish.GUEST}/quiz.{one}", page.url) for one in ("css", "js")
            )
            asked[first] = f'<link rel="stylesheet" href="{style}">\n{asked[first]}'
            asked[last] += f'\n<script src="{script}" defer></script>'
        if page.present_anchor_ids is not None:
            page.present_anchor_ids |= page_html.ids("".join(asked.values()))
        return html

    def _address(self, written: str, of: str, file: File, files: Files) -> str:
        """Where the link of a question leads: to a page by its path below docs_dir."""
        target = files.get_file_from_path(written)
        if target is None:
            log.warning(f"{of}: a question links to {written!r}, which is no page below docs_dir")
        return f'href="{target.url_relative_to(file) if target else written}'

    @event_priority(-50)  # after the search
    def on_page_context(
        self, context: TemplateContext, /, *, page: Page, config: MkDocsConfig, nav: Navigation
    ) -> TemplateContext:
        """Put the questions into the page."""
        for slot, shown in self.asked[page.file.src_uri].items():
            page.content = (page.content or "").replace(slot, shown)
        return context

    def on_post_build(self, *, config: MkDocsConfig) -> None:
        """Write what pages with a question load, if there is one."""
        if any(any(asked.values()) for asked in self.asked.values()):
            for name, content in publish.guest_assets().items():
                path = Path(config.site_dir, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)

    def on_serve(
        self, server: LiveReloadServer, /, *, config: MkDocsConfig, builder: Callable[..., None]
    ) -> LiveReloadServer:
        """Watch the questions as well."""
        if self.folder.is_dir():
            server.watch(str(self.folder))
        return server


def _token(number: int) -> str:
    """What stands for a fence while others turn its page into HTML: one word."""
    return f"proofbookquiz{number}z"
