"""The generator's share of building a thousand pages: its own seconds, and all of the build's.

Builds in this process, with the plugin's three hooks timed: before the build (load, judge, render,
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

from mkdocs.commands.build import build
from mkdocs.config import load_config

from generator.website.plugin import ProofbookPlugin
from tests.bench.ratio import Ratio, seconds_of
from tests.bench.thousand import thousand_pages

HOOKS = ("on_pre_build", "on_page_markdown", "on_post_build")


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
        setattr(ProofbookPlugin, name, timed(getattr(ProofbookPlugin, name)))


def ratios() -> list[Ratio]:
    """The generator's part against the whole build; below one."""
    logging.getLogger("mkdocs").setLevel(logging.ERROR)
    ours: list[float] = []
    _time_hooks(ours)
    with tempfile.TemporaryDirectory() as folder:
        book = thousand_pages(Path(folder) / "book")
        config = load_config(str(book / "mkdocs.yml"))
        config.plugins.on_startup(command="build", dirty=False)
        whole = seconds_of(lambda: build(config))
        num_pages = sum(1 for _ in (book / "site" / "html").rglob("*.html"))
    return [Ratio(f"the generator's part of {num_pages} pages", "all", [sum(ours)], [whole])]
