"""Try the project on the oldest and the newest Python of this machine, but not that of `.venv`.

`make pythons`. Finds CPython 3.11 and later in the folders of `pyenv` and `uv` and on the path. All
tests run on that of `.venv`; each other one that is the oldest or the newest gets an environment
such as `.pythons/3.12` and runs the smoke: `check` of the content, one experiment with its metered
passes, a plan, the tests of the memory meter. The newest then runs `make quick`. The torch that pip
installs by default is another build than that of `.venv`. Exits 1 where one of these failed; a
Python for which pip finds no packages is named as not tried.
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
OLDEST = "3.11"
OWN = f"3.{sys.version_info.minor}"  # of `.venv`
EXPERIMENT = "checkpointing"  # its peaks are small, so what is not a tensor shows most
METER = "tests/runners/test_meters.py"
SMOKE = {
    "content": ["-m", "generator", "check"],
    EXPERIMENT: ["-m", "runners", "run", EXPERIMENT],
    "plan": ["-m", "runners", "plan", "for", "gpt2-124m", "--devices", "2", "--strategies", "fsdp"],
    "meter": ["-m", "pytest", "-q", "-p", "no:cacheprovider", METER],
}
QUICK = "quick"
NAME = "python3.[0-9][0-9]"


def pythons() -> dict[str, Path]:
    """The oldest and the newest interpreter that is recent enough, but not that of `.venv`."""
    paths = [path for folder in os.get_exec_path() for path in Path(folder).glob(NAME)]
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", Path.home() / ".local/share/uv/python"))
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    paths += sorted(uv.glob(f"cpython-*/bin/{NAME}"))
    paths += sorted(pyenv.glob(f"3.*/bin/{NAME}"))  # rather than pyenv's shims
    interpreters = {path.name.removeprefix("python"): path for path in paths}
    recent = sorted({OWN, *(name for name in interpreters if name >= OLDEST)})
    return {name: interpreters[name] for name in sorted({recent[0], recent[-1]} - {OWN})}


def set_up(python: Path, folder: Path) -> bool:
    """Make an environment with all that the tests need; False where pip cannot."""
    command = [python, HERE / "install.py", "test", folder]
    return subprocess.run(command, check=False).returncode == 0


def smoke(python: Path, name: str) -> bool:
    """Whether a command of the smoke, or `make quick`, passes; shows its output where it failed."""
    command = ["make", name, f"PY={python}"] if name == QUICK else [python, *SMOKE[name]]
    with tempfile.TemporaryDirectory() as traces:
        done = subprocess.run(
            command,
            cwd=ROOT,
            env={**os.environ, **({"PROOFBOOK_TRACES": traces} if name == EXPERIMENT else {})},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        sys.stderr.write(done.stdout[-4000:] + done.stderr[-4000:])
    return done.returncode == 0


def main() -> int:
    """Try what `pythons` found, and print what came of it."""
    failed, found = False, pythons()
    newest = max(found, default="")
    for version, python in found.items():
        folder = ROOT / ".pythons" / version
        if not set_up(python, folder):
            print(f"{version}: not tried: pip found no packages")
            continue
        for name in [*SMOKE, *[QUICK] * (version == newest)]:
            started = time.monotonic()
            passed = smoke(folder / "bin" / "python", name)
            failed = failed or not passed
            took = time.monotonic() - started
            print(f"{version}: {name} {'passed' if passed else 'FAILED'}, {took:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
