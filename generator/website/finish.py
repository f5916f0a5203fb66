"""What MkDocs' plugin does after a build, over a site that another builder has built.

    python -m generator.website.finish FOLDER

Gives each page its Content-Security-Policy, and takes out of Zensical's index of the search the
sentences that wait for an answer on any page. Run it once on a fresh build.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from generator.website import csp, page_html, search
from runners.system import streams

INDEX = "search.json"
SCRIPT, ASSIGNS = "search.js", "var __index = "  # the same index, for pages opened from disk


def finish(site: Path) -> int:
    """Finish every page of a site; returns their number."""
    waiting: set[str] = set()
    paths = sorted(site.rglob("*.html"))
    for path in paths:
        html = path.read_text(encoding="utf-8")
        waiting |= search.part_of(html, ()).waiting
        path.write_text(csp.with_policy(page_html.lean(html)), encoding="utf-8")
    if (site / INDEX).is_file():
        index = json.loads((site / INDEX).read_text(encoding="utf-8"))
        search.take_out(index["items"], waiting)
        text = json.dumps(index, ensure_ascii=False)
        (site / INDEX).write_text(text, encoding="utf-8")
        (site / SCRIPT).write_text(f"{ASSIGNS}{text}", encoding="utf-8")
    return len(paths)


def main() -> int:
    """Finish the folder named on the command line."""
    sys.stdout.write(f"{finish(Path(sys.argv[1]))} pages finished\n")
    return 0


if __name__ == "__main__":
    streams.open_all()
    sys.exit(streams.report(main()))
