"""Costs as ratios, each against the plain way of doing the same, in one run: `make bench`.

python -m tests.bench [meters] [suite[:N]] [torchrun] [pages] [serve]

`suite:20` takes a sample, every twentieth run; whole, it takes as long as torchrun does.
"""

from __future__ import annotations

import importlib
import re
import sys
import warnings

from runners.measuring.measure import BusyError
from tests.bench.plainly import PlainError

BENCHES = {
    "meters": "a step under each meter, against the same step without it",
    "suite": "every run that `run` measures, against the same run as a plain torchrun script",
    "torchrun": "an experiment by the runners, against plain torchrun scripts",
    "pages": "the generator's share of building a thousand pages, and plain MkDocs beside it",
    "serve": "from a saved edit to the page that shows it, under `mkdocs serve --dirty`",
}
SAMPLE = re.compile(r"suite:[1-9]\d*(:\d+)?")  # the one bench that takes an argument


def main() -> int:
    """Run the benches named on the command line, or all; one that cannot run ends with 2."""
    chosen = sys.argv[1:] or list(BENCHES)
    unknown = [word for word in chosen if word not in BENCHES and not SAMPLE.fullmatch(word)]
    if unknown:
        known = ", ".join(BENCHES)
        print(f"no bench {', '.join(unknown)}; there are: {known}, suite:N", file=sys.stderr)
        return 2
    warnings.simplefilter("ignore")
    for word in chosen:
        name, _, argument = word.partition(":")
        print(f"\n{word}: {BENCHES[name]}", flush=True)
        bench = importlib.import_module(f"tests.bench.{name}")
        try:
            for line in bench.ratios(argument) if argument else bench.ratios():
                print(f"  {line}", flush=True)
        except (BusyError, PlainError) as error:
            print(f"{word}: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
