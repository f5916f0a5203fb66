"""Links to pages that a book may lack, such as those of a companion that was taken away."""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from posixpath import dirname, join, normpath, splitext

from proofbook.generator.pages.page import Page

_LINK = re.compile(
    r'<a\b[^>]*?\bhref="(?P<to>[^"#:]+)[^"]*"[^>]*>(?P<text>.*?)</a>'
    r"|(?<!!)\[(?P<words>[^][]+)\]\((?P<page>[^()\s#:]+)[^()\s]*\)",
    re.DOTALL,
)


def unlinked(pages: Mapping[str, Page], optional: Collection[str]) -> Iterator[tuple[str, Page]]:
    """Yield the pages, by path, in which a link to an optional page that is not there is its text.

    `optional` are paths without a suffix; each stands for the pages below it, too.
    """

    def replaced(link: re.Match[str]) -> str:
        to = splitext(normpath(join(dirname(path), link["to"] or link["page"])))[0]
        is_optional = any(f"{to}/".startswith(f"{name}/") for name in optional)
        is_absent = is_optional and f"{to}.md" not in pages
        return (link["text"] or link["words"]) if is_absent else link[0]

    for path, page in pages.items():
        yield path, replace(page, content=_LINK.sub(replaced, page.content.decode()).encode())
