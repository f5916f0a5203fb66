"""The generator's share of building a thousand pages, and the build beside one by plain MkDocs.

Builds in this process, with the plugin's hooks timed: before the build (load, judge, render,
write), at each page, and after (policies). The rest is MkDocs, Material and the search index.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import CombinedEvent

from generator.website.plugin import ProofbookPlugin
from tests.bench.ratio import Ratio, seconds_of
from tests.bench.thousand import thousand_pages

GOAL = 0.008  # seconds a page, on two cores
HOOKS = (
    "on_pre_build", "on_page_markdown", "on_page_content", "on_post_page", "on_post_build",
)  # fmt: skip


def _time_hooks(seconds: list[float]) -> None:
    """Make the plugin append the seconds of each call of a hook."""

    def timed(hook: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(hook)
        def call(*arguments: Any, **options: Any) -> Any:
            started = time.perf_counter()
            try:
                return hook(*arguments, **options)
            finally:
                seconds.append(time.perf_counter() - started)

        return call

    for name in HOOKS:
        hook = getattr(ProofbookPlugin, name)
        parts = hook.methods if isinstance(hook, CombinedEvent) else [hook]
        each = [timed(part) for part in parts]
        setattr(ProofbookPlugin, name, CombinedEvent(*each) if len(each) > 1 else each[0])


def _plain(book: Path) -> MkDocsConfig:
    """MkDocs, Material and the search over the same Markdown, without us."""
    written = yaml.safe_load((book / "mkdocs.yml").read_text(encoding="utf-8").replace("!ENV ", ""))
    ours = written | {
        "docs_dir": "site/pages", "site_dir": "site/plain", "site_url": "",
        "plugins": [one for one in written["plugins"] if isinstance(one, str)],
    }  # fmt: skip
    file = book / "plain.yml"
    file.write_text(yaml.safe_dump(ours), encoding="utf-8")
    return load_config(str(file))


def ratios() -> list[Ratio]:
    """The generator's part, and a whole build against plain MkDocs on the same Markdown."""
    logging.getLogger("mkdocs").setLevel(logging.ERROR)
    ours: list[float] = []
    _time_hooks(ours)
    with tempfile.TemporaryDirectory() as folder:
        book = thousand_pages(Path(folder) / "book")
        config = load_config(str(book / "mkdocs.yml"))
        config.plugins.on_startup(command="build", dirty=False)
        whole = seconds_of(lambda: build(config))
        num_pages = sum(1 for _ in (book / "site" / "html").rglob("*.html"))
        plain = _plain(book)
        bare = seconds_of(lambda: build(plain))
    each = sum(ours) / num_pages
    return [
        Ratio(f"the generator's part of {num_pages} pages", "all", [sum(ours)], [whole]),
        Ratio("a whole build", "plain MkDocs on the same Markdown", [whole], [bare]),
        Ratio("the generator, a page", f"the {GOAL * 1e3:g} ms it may take", [each], [GOAL]),
    ]
