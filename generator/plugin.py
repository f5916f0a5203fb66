"""MkDocs' view of Proofbook, and the only file that knows MkDocs.

Before a build it loads the book, renders it, and brings `docs_dir` to exactly that: pages and
assets are written only where their bytes changed, raw traces are copied beside them, what no book
made is deleted (files that begin with a dot stay). After a build, but not under `mkdocs serve`,
each page gets its Content-Security-Policy. Content errors are printed one a line, all at once, and
end a build with exit code 2; under `serve` the last good pages stay, with the errors on top.

    mkdocs build --strict      mkdocs serve      mkdocs serve --dirty --no-strict
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from jinja2 import BytecodeCache, Environment
from jinja2.bccache import Bucket
from markupsafe import escape
from mkdocs.config import config_options
from mkdocs.config.base import Config
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import Abort
from mkdocs.livereload import LiveReloadServer
from mkdocs.plugins import BasePlugin, event_priority, get_plugin_logger
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from watchdog.observers.polling import PollingObserver

from generator import asides, coverage, csp, publish, repeats, verdicts
from generator import book as books
from generator.errors import ContentErrors
from generator.press import Press
from generator.views.folio import interface_words
from runners.trace import source_digest

GENERATOR = Path(__file__).resolve().parent
SECONDS_BETWEEN_LOOKS = 0.1  # at the files; MkDocs waits half a second
SECONDS_OF_QUIET = 0.05  # before a build, since an editor may save in several steps
log = get_plugin_logger("proofbook")


class CompiledTemplates(BytecodeCache):
    """The theme's templates as Jinja2 compiled them, for as long as this process lives.

    Jinja2 checks the source of each before it takes the code.
    """

    def __init__(self) -> None:
        self._code: dict[str, bytes] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        """Put the code of a template into Jinja2's bucket, if there is any."""
        if bucket.key in self._code:
            bucket.bytecode_from_string(self._code[bucket.key])

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Take the code of a template out of Jinja2's bucket."""
        self._code[bucket.key] = bucket.bytecode_to_string()


class ContentAbort(Abort):
    """The book cannot be built from what is written; exit code 2, no traceback."""

    code = 2
    exit_code = 2


class ProofbookConfig(Config):
    """Options of the plugin in mkdocs.yml."""

    content = config_options.Type(str, default="content")
    edit_base = config_options.Type(str, default="")


class ProofbookPlugin(BasePlugin[ProofbookConfig]):
    """Writes the book's pages where MkDocs looks for them."""

    def __init__(self) -> None:
        self.is_serving = False
        self.mistakes = ""
        self.root = Path()
        self.press = Press()
        self.seen: dict[str, publish.Seen] = {}
        self.code: dict[Path, bytes] = {}
        self.compiled = CompiledTemplates()
        self.asides: dict[str, tuple[str, ...]] = {}

    def on_startup(self, *, command: Literal["build", "gh-deploy", "serve"], dirty: bool) -> None:
        """Remember whether a person is watching."""
        self.is_serving = command == "serve"

    def on_config(self, config: MkDocsConfig) -> MkDocsConfig:
        """Find the project's root, which is where mkdocs.yml stands."""
        self.root = Path(config.config_file_path or "mkdocs.yml").resolve().parent
        return config

    @property
    def content(self) -> Path:
        """The folder that people and runners write."""
        return self.root / self.config.content

    def on_pre_build(self, *, config: MkDocsConfig) -> None:
        """Bring `docs_dir` to what the content says now.

        Raises:
            ContentAbort: the content has errors, or the disk refused.
        """
        self.mistakes = ""
        try:
            self._publish(Path(config.docs_dir))
        except ContentErrors as errors:
            self._refuse(str(errors), config)
        except OSError as error:
            self._refuse(f"{error.filename}: {error.strerror}; no file was torn", config)

    def _refuse(self, mistakes: str, config: MkDocsConfig) -> None:
        """End a build; while serving, go on with the last good pages if there are any."""
        if not self.is_serving or not (Path(config.docs_dir) / "index.md").is_file():
            raise ContentAbort(mistakes) from None
        self.mistakes = mistakes
        for mistake in mistakes.splitlines():
            log.error(mistake)

    def _publish(self, folder: Path) -> None:
        """Print what has changed since the last build; only while serving is there any."""
        if not self.is_serving:
            self.press, self.seen = Press(), {}
        self._forget_edited()
        machine = os.environ.get("PROOFBOOK_MACHINE")
        book = books.load(self.content, machine, with_tries=self.is_serving)
        for lost in book.lost_tries:
            log.warning(lost)
        published = publish.publish(book, self.content, folder, self.press, self.seen)
        evidence = self.press.judged(book).evidence
        lacks = [] if self.is_serving else [*coverage.lacks(evidence), *repeats.lacks(book)]
        for problem in (*verdicts.problems(book, evidence), *lacks):
            log.warning(problem)
        for line in published.rerun:
            log.info(line)

    def _forget_edited(self) -> None:
        """Read again what somebody may have edited while serving: words, and experiments' code."""
        interface_words.cache_clear()
        folders = (GENERATOR.parent / "runners", GENERATOR.parent / "content")
        code = {path: path.read_bytes() for one in folders for path in sorted(one.rglob("*.py"))}
        if code != self.code:
            source_digest.cache_clear()
            self.code = code

    def on_serve(
        self, server: LiveReloadServer, /, *, config: MkDocsConfig, builder: Callable[..., None]
    ) -> LiveReloadServer:
        """Watch what people write instead of what is generated from it, and look more often."""
        watched = [str(self.content), str(GENERATOR)]
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
        """Keep the theme's compiled templates from one build to the next."""
        env.bytecode_cache = self.compiled
        return env

    def on_page_markdown(
        self, markdown: str, /, *, page: Page, config: MkDocsConfig, files: Files
    ) -> str:
        """Point the edit link at the YAML a page was made from, and set aside what is HTML."""
        source = page.meta.get("source")
        base = self.config.edit_base
        page.edit_url = f"{base.rstrip('/')}/{source}" if base and source else None
        aside = asides.set_aside(markdown)
        self.asides[page.file.src_uri] = aside.blocks
        return aside.text

    def on_page_content(
        self, html: str, /, *, page: Page, config: MkDocsConfig, files: Files
    ) -> str:
        """While serving, show an author's mistakes on top of the last good page."""
        if not self.mistakes:
            return html
        return f'<pre class="pb-mistakes" role="alert">{escape(self.mistakes)}</pre>{html}'

    def on_post_page(self, output: str, /, *, page: Page, config: MkDocsConfig) -> str:
        """Put back what was set aside."""
        return asides.put_back(output, self.asides.pop(page.file.src_uri, ()))

    @event_priority(-200)
    def on_post_build(self, *, config: MkDocsConfig) -> None:
        """Give each page its policy; `serve` injects a script of its own, so not there."""
        if self.is_serving:
            return
        site = Path(config.site_dir)
        if not config.site_url:  # a sitemap without addresses is of no use, and carries a date
            for name in ("sitemap.xml", "sitemap.xml.gz"):
                (site / name).unlink(missing_ok=True)
        for path in sorted(site.rglob("*.html")):
            path.write_text(csp.with_policy(path.read_text(encoding="utf-8")), encoding="utf-8")
