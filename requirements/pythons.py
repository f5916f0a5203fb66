"""Try the project on other Pythons than that of `.venv`: `make pythons PYTHONS='python3.12 …'`.

For each it makes an environment such as `.pythons/python3.12` and runs the smoke: `check` of the
content, one experiment with its metered passes, a simulation, a plan, the tests of the memory
meter. The torch that pip installs by default is another build than that of `.venv`. Exits 1 where a
smoke failed; a Python that is not there, or for which pip finds no packages, is named as not tried.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
EXPERIMENT = "checkpointing"  # its peaks are small, so what is not a tensor shows most
METER = ("tests/runners/test_kernel.py", "tests/runners/test_meters.py")
SMOKE = {
    "content": ["-m", "generator", "check"],
    EXPERIMENT: ["-m", "runners", "run", EXPERIMENT],
    "simulate": ["-m", "runners", "simulate", "ddp.ddp"],
    "plan": ["-m", "runners", "plan", "gpt2-124m", "--devices", "2", "--strategies", "fsdp"],
    "meter": ["-m", "pytest", "-q", "-p", "no:cacheprovider", *METER],
}


def set_up(python: str, folder: Path) -> bool:
    """Make an environment with all that the tests need; False where that cannot be."""
    command = [python, HERE / "install.py", "test", folder]
    try:
        return subprocess.run(command, check=False).returncode == 0
    except FileNotFoundError:
        return False


def smoke(python: Path, name: str) -> bool:
    """Whether a command of the smoke passes; its output is shown where it failed."""
    with tempfile.TemporaryDirectory() as traces:
        done = subprocess.run(
            [python, *SMOKE[name]],
            cwd=ROOT,
            env={**os.environ, **({"PROOFBOOK_TRACES": traces} if name == EXPERIMENT else {})},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        sys.stderr.write(done.stdout[-4000:] + done.stderr[-4000:])
    return done.returncode == 0


def main(pythons: list[str]) -> int:
    """Try each Python, and print what came of it."""
    failed = False
    for python in pythons:
        folder = ROOT / ".pythons" / Path(python).name
        if not set_up(python, folder):
            print(f"{python}: not tried: it is not here, or pip found no packages")
            continue
        for name in SMOKE:
            started = time.monotonic()
            passed = smoke(folder / "bin" / "python", name)
            failed = failed or not passed
            took = time.monotonic() - started
            print(f"{python}: {name} {'passed' if passed else 'FAILED'}, {took:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
