"""Costs as ratios, each against the plain way of doing the same, in one run: `make bench`.

python -m tests.bench [commands] [meters] [serve] [site] [verify]
"""

import importlib
import sys
import warnings

BENCHES = {
    "commands": "`list` and `check`, against an interpreter that imports pydantic, jinja2 and yaml",
    "meters": "a step under each meter, against the same step without it",
    "serve": "from a saved edit to the page that shows it, under `mkdocs serve --dirty`",
    "site": "`make site` in a fresh clone until pages can be opened, against a build of them",
    "verify": "a step watched by `runners verify`, against the same step without it",
}


def main() -> int:
    """Run the benches named on the command line, or all."""
    chosen = sys.argv[1:] or list(BENCHES)
    unknown = [name for name in chosen if name not in BENCHES]
    if unknown:
        known = ", ".join(BENCHES)
        print(f"no bench {', '.join(unknown)}; there are: {known}", file=sys.stderr)
        return 2
    warnings.simplefilter("ignore")
    for name in chosen:
        print(f"\n{name}: {BENCHES[name]}", flush=True)
        module = {"commands": "authors", "serve": "authors"}.get(name, name)
        for line in getattr(importlib.import_module(f"tests.bench.{module}"), name)():
            print(f"  {line}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
