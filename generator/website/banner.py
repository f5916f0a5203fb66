"""What is wrong with the content, over every served page.

In: the folder that `mkdocs serve` serves, and the mistakes, one a line with file, line and column.
Out: the same pages with a banner; without one where there is no mistake. A build that finds a
mistake writes no page again, so the banner is put into the last good pages themselves.
"""

from __future__ import annotations

import re
from pathlib import Path

from markupsafe import escape

_BANNER = re.compile(r"<!--pb-mistakes-->.*?<!--/pb-mistakes-->", re.DOTALL)
_ARTICLE = re.compile(r"<article\b[^>]*>")


def with_banner(html: str, mistakes: str) -> str:
    """A page with these mistakes over its text, and no others."""
    html = _BANNER.sub("", html)
    if not mistakes:
        return html
    banner = (
        f'<!--pb-mistakes--><pre class="pb-mistakes" role="alert">{escape(mistakes)}</pre>'
        "<!--/pb-mistakes-->"
    )
    return _ARTICLE.sub(lambda found: found[0] + banner, html, count=1)


def put(site: Path, mistakes: str) -> None:
    """Bring every page of a folder to these mistakes."""
    for path in site.rglob("*.html"):
        html = path.read_text(encoding="utf-8")
        told = with_banner(html, mistakes)
        if told != html:
            path.write_text(told, encoding="utf-8")
