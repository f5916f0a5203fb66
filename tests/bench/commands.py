"""What a command takes that an author calls after each edit, against the packages that it loads."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from tests.bench.ratio import Ratio, in_turn
from tests.processes import ROOT

TIMES = 7
PACKAGES = ("-c", "import pydantic, jinja2, yaml")
COMMANDS = {"runners list": ("-m", "runners", "list"), "check": ("-m", "generator", "check")}


def ratios() -> Iterator[Ratio]:
    """`list` and `check`, each against an interpreter that imports what both need."""
    call = partial(subprocess.run, cwd=ROOT, capture_output=True, check=False)
    works = {
        name: partial(call, [sys.executable, *words])
        for name, words in {"packages": PACKAGES, **COMMANDS}.items()
    }
    seconds = in_turn(works, TIMES)
    for name in COMMANDS:
        yield Ratio(name, "packages", seconds[name], seconds["packages"])
