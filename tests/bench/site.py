"""How long a newcomer waits for `make site`: for the first page, for the whole, and once more.

A fresh clone that borrows this environment, so that no set-up counts, measures all that a plain
`make site` measures, in minutes. Against each wait stands `make pages` in the same clone.
"""

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.ratio import Ratio, seconds_of
from tests.clones import cloned


def site() -> Iterator[Ratio]:
    """The first page, the whole, and a second call that has nothing to do, against one build."""
    with tempfile.TemporaryDirectory() as folder:
        clone = cloned(Path(folder) / "clone")
        first, *_, whole = _opened(clone, "site")
        *_, second = _opened(clone, "site")
        build = seconds_of(lambda: _opened(clone, "pages"))
    waits = {"the first page": first, "the whole": whole, "a second call": second}
    for name, seconds in waits.items():
        yield Ratio(name, "a build", [seconds], [build])


def _opened(clone: Path, target: str) -> list[float]:
    """Seconds from the call of a target until each time that it says what to open."""
    ours = ("MAKE", "PROOFBOOK", "_PROOFBOOK", "PYTHONPATH")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    start, pipes = time.perf_counter(), {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    lines, seconds = [], []
    with subprocess.Popen(["make", target], cwd=clone, env=environment, text=True, **pipes) as make:
        for line in make.stdout or ():
            lines.append(line)
            if line.startswith("Open "):
                seconds.append(time.perf_counter() - start)
    if make.returncode:
        said = "".join(lines[-8:])
        raise RuntimeError(f"`make {target}` ended with {make.returncode}:\n{said}")
    return seconds
