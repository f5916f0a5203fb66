"""The built pages, our scripts and exported questions against published standards: `make audit`.

python -m tests.audit [eslint] [gift] [vnu] [axe] [lighthouse] [PATTERN…]

Reads site/html, serves it on this machine, and prints each problem with its page. Patterns pick
pages, as in `topics/ddp/*.html`. Exits with 1 where a problem was found, and with 2 where a tool or
the built book is missing. The tools come from npm, at the versions of `package-lock.json` here.
"""

import sys
import time
from collections.abc import Iterator
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from tests.audit import axe, checkers, gift, lighthouse
from tests.audit.server import served
from tests.audit.tools import ToolError
from tests.conftest import ROOT
from tests.site.html_reading import pages

SITE = ROOT / "site" / "html"
TOOLS = {
    "eslint": "ESLint finds nothing in our scripts",
    "gift": "gift-pegjs reads every exported question with its key",
    "vnu": "the Nu HTML checker finds no error in our own markup",
    "axe": "axe finds nothing, closed and open, light and dark, at 1280 and 390 pixels",
    "lighthouse": "Lighthouse on a phone: performance 95 or more, all else 100",
}


def _problems(tool: str, found: list[Path], address: str) -> Iterator[tuple[str, str]]:
    names = [path.relative_to(SITE).as_posix() for path in found]
    return {
        "eslint": checkers.eslint,
        "gift": gift.problems,
        "vnu": partial(checkers.vnu, SITE, found),
        "axe": partial(axe.problems, address, names),
        "lighthouse": partial(lighthouse.problems, address, names),
    }[tool]()


def main() -> int:
    """Run the tools and pages that the command line names, or all of them."""
    tools = [tool for tool in TOOLS if tool in sys.argv[1:]] or list(TOOLS)
    patterns = [word for word in sys.argv[1:] if word not in TOOLS] or ["*"]
    names = {path: path.relative_to(SITE).as_posix() for path in pages(SITE)}
    found = [path for path, name in names.items() if any(fnmatch(name, one) for one in patterns)]
    if not found:
        print(f"no page in {SITE} is called {' or '.join(patterns)}; try `make pages`",
              file=sys.stderr)  # fmt: skip
        return 2
    num_problems = 0
    print(f"{len(found)} pages", flush=True)
    with served(SITE) as address:
        for tool in tools:
            begun = time.monotonic()
            print(f"{tool}: {TOOLS[tool]}", flush=True)
            num = 0
            try:
                for page, problem in _problems(tool, found, address):
                    print(f"  {page}: {problem}", flush=True)
                    num += 1
            except ToolError as error:
                print(f"proofbook: {error}", file=sys.stderr)
                return 2
            took = time.monotonic() - begun
            print(f"{tool}: {num} problems, {took:.0f} s", flush=True)
            num_problems += num
    return 1 if num_problems else 0


if __name__ == "__main__":
    sys.exit(main())
