"""Try the project on each Python of this machine but that of `.venv`, which the tests run on.

`make pythons`; ARGS=--ends for the oldest and the newest alone. Finds CPython 3.11 and later
(`pyenv`, `uv`, the path), the newest patch of each. For each it makes an environment such as
`.pythons/3.12` and runs the smoke: `check` of the content, one experiment with its metered passes,
a simulation, a plan, the tests of the memory meter. The torch that pip installs by default is
another build than that of `.venv`. Exits 1 where a smoke failed; a Python for which pip finds no
packages is named as not tried.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OLDEST = (3, 11)
EXPERIMENT = "checkpointing"  # its peaks are small, so what is not a tensor shows most
METER = ("tests/runners/test_kernel.py", "tests/runners/test_meters.py")
SMOKE = {
    "content": ["-m", "generator", "check"],
    EXPERIMENT: ["-m", "runners", "run", EXPERIMENT],
    "simulate": ["-m", "runners", "simulate", "ddp.ddp"],
    "plan": ["-m", "runners", "plan", "gpt2-124m", "--devices", "2", "--strategies", "ddp,fsdp"],
    "meter": ["-m", "pytest", "-q", "-p", "no:cacheprovider", *METER],
}
Version = tuple[int, int, int]


def version_of(python: Path) -> Version | None:
    """The version of an interpreter; None where it does not start, or is no CPython."""
    asked = subprocess.run([python, "--version"], capture_output=True, text=True, check=False)
    found = re.fullmatch(r"Python (\d+)\.(\d+)\.(\d+)\n", asked.stdout)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def candidates() -> list[Path]:
    """Interpreters of this machine, by the places where they are put."""
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT", home / ".pyenv")) / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", home / ".local/share/uv/python"))
    found = [*pyenv.glob("*/bin/python3"), *uv.glob("*/bin/python3")]
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found += Path(folder).glob("python3.[0-9][0-9]")
    return found


def pythons() -> dict[Version, Path]:
    """The newest patch of each Python that is recent enough, oldest first, but that of `.venv`."""
    found = {version: path for path in candidates() if (version := version_of(path))}
    newest = {version[:2]: version for version in sorted(found) if version[:2] >= OLDEST}
    newest.pop(sys.version_info[:2], None)
    return {version: found[version] for version in newest.values()}


def set_up(python: Path, folder: Path) -> bool:
    """Make an environment with all that the tests need; False where pip cannot."""
    command = [python, HERE / "install.py", "test", folder]
    return subprocess.run(command, check=False).returncode == 0


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


def main() -> int:
    """Try each Python, or the oldest and the newest, and print what came of it."""
    found = list(pythons().items())
    if "--ends" in sys.argv[1:]:
        found = [*found[:1], *found[1:][-1:]]
    failed = False
    for version, python in found:
        said = ".".join(map(str, version))
        folder = ROOT / ".pythons" / f"{version[0]}.{version[1]}"
        if not set_up(python, folder):
            print(f"{said}: not tried: pip found no packages")
            continue
        for name in SMOKE:
            started = time.monotonic()
            passed = smoke(folder / "bin" / "python", name)
            failed = failed or not passed
            took = time.monotonic() - started
            print(f"{said}: {name} {'passed' if passed else 'FAILED'}, {took:.0f} s", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
