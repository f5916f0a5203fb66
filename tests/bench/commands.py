"""What a command takes that an author calls after each edit, against the packages that it loads."""

import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

from tests.bench.ratio import Ratio, in_turn
from tests.processes import ROOT
from tests.sampled import REFERENCE

TIMES = 7
PACKAGES = ("-c", "import pydantic, jinja2, yaml")
COMMANDS = {"runners list": ("-m", "runners", "list"), "check": ("-m", "generator", "check")}


def ratios() -> Iterator[Ratio]:
    """`list`, and `check` of the reference machine's book, against what both have to import."""
    alone = os.environ | {"PROOFBOOK_MACHINE": REFERENCE.name}
    call = partial(subprocess.run, cwd=ROOT, env=alone, capture_output=True, check=False)
    works = {
        name: partial(call, [sys.executable, *words])
        for name, words in {"packages": PACKAGES, **COMMANDS}.items()
    }
    seconds = in_turn(works, TIMES)
    for name in COMMANDS:
        yield Ratio(name, "packages", seconds[name], seconds["packages"])
