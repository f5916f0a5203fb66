"""Build the wheel and try it as a user would: `make wheel`, or `python3.13 requirements/wheel.py`.

Builds `dist/proofbook-*.whl`. Installs it into a new environment of this Python, which is deleted
at the end, by the ranges of `pyproject.toml` and not by our pins. In an empty folder it then makes
a book, checks and builds it, and verifies a training script on two ranks. Exits 1 where a command
fails, with what it said, and 2 where pip finds no packages.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from install import ROOT, make_environment, pip

DIST = ROOT / "dist"
EXTRAS = "book,run"
SCRIPT = ROOT / "content/topics/multi-gpu/code/summed_right.py"
BOOK = "mine"
TRIES = {  # what is tried → the folder, below an empty one, and the command
    "new book": (".", "proofbook", "new", "book", BOOK),
    "check": (BOOK, "proofbook", "check"),
    "build": (BOOK, "mkdocs", "build", "--strict", "--quiet"),
    "verify": (".", "proofbook", "verify", "--ranks", "2", str(SCRIPT)),
}


def built() -> Path:
    """The wheel of this tree, built anew."""
    for folder in (DIST, ROOT / "build"):  # setuptools would pack what an older build left there
        shutil.rmtree(folder, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", DIST]
    subprocess.run([*command, ROOT], check=True)
    (wheel,) = DIST.glob("*.whl")
    return wheel


def tried(name: str, scripts: Path, folder: Path) -> bool:
    """Whether a command passes; its output is shown where it failed."""
    below, program, *words = TRIES[name]
    own = {word: text for word, text in os.environ.items() if not word.startswith("PYTHON")}
    command, told = [scripts / program, *words], {"capture_output": True, "text": True}
    done = subprocess.run(command, cwd=folder / below, env=own, check=False, **told)
    if done.returncode:
        sys.stderr.write(done.stdout[-4000:] + done.stderr[-4000:])
    return done.returncode == 0


def main() -> int:
    """Build, install and try; print what came of it."""
    wheel, version = built(), f"{sys.version_info.major}.{sys.version_info.minor}"
    print(f"{version}: {wheel.relative_to(ROOT)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder, "environment", "bin", "python")
        make_environment(python)
        pip(python, f"proofbook[{EXTRAS}] @ {wheel.as_uri()}")
        for name in TRIES:
            started = time.monotonic()
            passed = tried(name, python.parent, Path(folder))
            took = time.monotonic() - started
            print(f"{version}: {name} {'passed' if passed else 'FAILED'}, {took:.0f} s", flush=True)
            if not passed:
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
