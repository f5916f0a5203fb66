"""Any process of `run` killed at any moment: the kill is named or harmless, and nothing is left.

make soak ARGS='-k killed --kills 20'      a short sample, another each day
make soak ARGS='-k killed --seed 20000'    that day's sample again

Experiments have the sizes of a try.
"""

import os
import random
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest

from proofbook.runners.core.declared.experiment import find
from proofbook.runners.core.system import links
from proofbook.runners.system.files import TORN
from proofbook.runners.traces.files import read, trace_paths, write
from tests.conftest import ROOT
from tests.processes import marked, parent

WITHIN_SECONDS = 5  # a kill is named, and a killed command's processes have ended
# A kill comes up to so long after its victim is there: a command has to load torch first.
MOST_SECONDS = {"rank": 4.0, "forkserver": 6.0, "command": 12.0}
NAMED = re.compile(r"not measured: |the forkserver .* ended")
pytestmark = [
    pytest.mark.soak,
    pytest.mark.ranks,
    pytest.mark.timeout(600),
    pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc"),
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("killed")
    (folder / "scratch").mkdir()
    return folder


@pytest.fixture(scope="module")
def environment(place):
    own = {"TMPDIR": str(place / "scratch"), "PROOFBOOK_TRACES": str(place / "traces")}
    return {**os.environ, **own}


@pytest.fixture(scope="module")
def traces(environment):
    """The folder that a run here writes: it holds what a plain run measures, of all experiments."""
    # A clone that never measured has no id yet, and a run would take one: its folder is another.
    program = (
        "from proofbook.runners.core.measuring import measure; "
        "from proofbook.runners.core.trace import machine; "
        "machine.keep_id(); print(measure.folder())"
    )
    words = [sys.executable, "-c", program]
    folder = Path(subprocess.check_output(words, cwd=ROOT, env=environment, text=True).strip())
    for path in trace_paths(next((ROOT / "content" / "traces").glob("reference-*"))):
        trace, declarations = read(path), find(path.stem).runs
        plain = {name: run for name, run in trace.runs.items() if not declarations[name].full}
        if plain:
            write(folder / path.name, trace.model_copy(update={"runs": plain}))
    return folder


def _alive(victim, command, place):
    """The processes of a command that are such a victim."""
    found = marked(place)
    forkservers = {pid for pid in found if parent(pid) == command}
    ranks = found - forkservers - {command}
    return {"command": {command}, "forkserver": forkservers, "rank": ranks}[victim]


def _killed(command, alive, chance, most_seconds):
    """Kill a process a while after there is one; when, or when the command had ended."""
    for seconds in (chance.uniform(0, most_seconds), 0):
        while command.poll() is None and not alive():
            time.sleep(0.01)
        time.sleep(seconds)
    with suppress(IndexError, ProcessLookupError):  # it came too late
        os.kill(chance.choice(sorted(alive())), signal.SIGKILL)
    return time.monotonic()


def test_a_killed_process_is_named_or_harmless_and_leaves_nothing(
    kill, place, environment, traces, seed
):
    attempt, victim, name = kill
    chance, trace = random.Random(f"{seed} {attempt}"), traces / f"{name}.json"
    old = read(trace)
    with subprocess.Popen(
        [sys.executable, "-m", "runners", "run", name, "--force", "--short"],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as command:
        alive = partial(_alive, victim, command.pid, place)
        at = _killed(command, alive, chance, MOST_SECONDS[victim])
        said = [(time.monotonic() - at, line) for line in command.stdout]
    named = [(took, line) for took, line in said if NAMED.search(line)]
    print(f"{victim} of {name}: {named[:1] or 'harmless'}, exit code {command.returncode}")
    text = "".join(line for _, line in said)
    assert "Traceback" not in text
    if victim == "command":
        assert command.returncode in (0, -signal.SIGKILL)  # 0: it had ended
        end = time.monotonic() + WITHIN_SECONDS
        while marked(place) and time.monotonic() < end:
            time.sleep(0.05)
        links.sweep()  # what the next start does
    elif command.returncode:
        assert named, text
        assert named[0][0] < WITHIN_SECONDS, text
    assert marked(place) == set()
    assert not [one for one in links._names() if one.startswith(f"proofbook-{command.pid}-")]
    hidden = {path.name for path in traces.glob(".*")}  # the next start removes what is torn
    left = [*trace_paths(traces), *traces.glob(f".*{TORN}")]
    assert hidden <= {name for one in left for name in (f".{one.stem}.part", one.name)}
    new = read(trace)
    if command.returncode == 0:
        assert new.recorded_at > old.recorded_at
    if new != old:  # whole, and as declared
        assert set(new.runs) >= set(old.runs)
        assert [run for run in new.runs if new.runs[run].is_surprise] == []
    if new != old and name == "faults":  # whose ranks the elastic launcher starts again
        digests = [rank.parameter_digest for rank in new.runs["undisturbed"].ranks]
        assert new.runs["killed"].ranks[0].measures["parameter_digests"] == digests
    if (part := traces / f".{name}.part").exists():
        assert read(part).runs
