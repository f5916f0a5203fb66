"""What a command takes that an author calls after each edit, against the packages that it loads.

Seconds are those of the processor: what else runs on the machine turns them least.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

from tests.bench.ratio import Ratio
from tests.processes import ROOT
from tests.sampled import REFERENCE

TIMES = 7
PACKAGES = ("-c", "import pydantic, jinja2, yaml")
COMMANDS = {"runners list": ("-m", "runners", "list"), "check": ("-m", "generator", "check")}


def ratios() -> Iterator[Ratio]:
    """`list`, and `check` of the reference machine's book, against what both have to import."""
    words = {"packages": PACKAGES, **COMMANDS}
    rounds = [{name: _seconds(one) for name, one in words.items()} for _ in range(TIMES)]
    seconds = {name: [one[name] for one in rounds] for name in words}
    for name in COMMANDS:
        yield Ratio(name, "packages", seconds[name], seconds["packages"])


def _seconds(words: Sequence[str]) -> float:
    """Seconds of the processor that a call of Python takes."""
    environment = os.environ | {"PROOFBOOK_MACHINE": REFERENCE.name}
    before = os.times()
    subprocess.run([sys.executable, *words], cwd=ROOT, env=environment, capture_output=True)
    after = os.times()
    return (
        after.children_user
        + after.children_system
        - (before.children_user + before.children_system)
    )
