"""What MkDocs' plugin does after a build, over a site that another builder has built.

    python -m generator.website.finish FOLDER [TEMPLATES]

Gives each page its Content-Security-Policy and links to its headings, and takes out of Zensical's
index of the search the sentences that wait for an answer on any page. Run it once on a fresh build.
TEMPLATES is the folder of the theme's templates, whose inline scripts the policy allows, such as
`zensical/templates` where Zensical is installed; without it they are those of Material. Exits with
2 where a page has others.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from generator.website import csp, page_html, search

INDEX = "search.json"
SCRIPT, ASSIGNS = "search.js", "var __index = "  # the same index, for pages opened from disk


def finish(site: Path, templates: Path) -> csp.Blocked:
    """Finish every page of a site; returns what their policies block."""
    paths = sorted(site.rglob("*.html"))
    waiting: set[str] = set()
    for path in paths:
        html = path.read_text(encoding="utf-8")
        waiting |= search.part_of(html).waiting
        path.write_text(page_html.linked_headings(html), encoding="utf-8")
    blocked = csp.put(site, paths, csp.scripts_of(templates))
    if (site / INDEX).is_file():
        index = json.loads((site / INDEX).read_text(encoding="utf-8"))
        search.take_out(index["items"], waiting)
        text = json.dumps(index, ensure_ascii=False)
        (site / INDEX).write_text(text, encoding="utf-8")
        (site / SCRIPT).write_text(f"{ASSIGNS}{text}", encoding="utf-8")
    return blocked


def main() -> int:
    """Finish the folder named on the command line."""
    site, *templates = map(Path, sys.argv[1:])
    blocked = finish(site, templates[0] if templates else csp.material())
    for line in (*blocked.others, *blocked.scripts):
        sys.stderr.write(f"{line}\n")
    return 2 if blocked.scripts else 0


if __name__ == "__main__":
    sys.exit(main())
