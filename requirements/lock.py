"""Pin what each purpose adds, with hashes, in `pages.txt`, `run.txt` and `test.txt`: `make locks`.

`uv pip compile` resolves the ranges of `pyproject.toml` for every system and for every Python from
the oldest on. A version stays until its range refuses it; `ARGS=--upgrade` takes the newest ones.
Left out are torch, whose CPU and CUDA builds have one version and different hashes, and the
packages that only a CUDA build brings along: `install.py` leaves them to pip.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from install import OLDEST, PURPOSES, pins, refuse

ROOT = Path(__file__).resolve().parents[1]
OF_CUDA = ("nvidia-", "cuda-", "triton", "pytorch-triton")
COMMAND = ("pip", "compile", "--universal", "--generate-hashes", "--no-annotate", "--quiet")
BUILDS = "setuptools"  # this project; pip needs it there


def compiled(purpose: str, left_out: Iterable[str], *words: str) -> list[str]:
    """Write the pins of a purpose but for packages that are left out, and say their names."""
    uv = shutil.which("uv") or refuse("`make locks` needs uv: pip install uv")
    own, *earlier = reversed(pins(purpose))
    options = {
        "--python-version": [".".join(map(str, (*OLDEST, 0)))],
        "--custom-compile-command": ["make locks"],
        "--output-file": [str(own)],
        "--extra": re.findall(r"\w+", PURPOSES[purpose]),
        "--constraints": map(str, earlier),
        "--no-emit-package": left_out,
    }
    command = [uv, *COMMAND, "pyproject.toml", "-", *words]
    command += [
        word for name, given in options.items() for value in given for word in (name, value)
    ]
    if subprocess.run(command, cwd=ROOT, input=BUILDS, text=True, check=False).returncode:
        refuse("uv could not resolve the dependencies (see above)")
    return re.findall(r"^([a-z0-9-]+)==", own.read_text(encoding="utf-8"), re.MULTILINE)


def main() -> None:
    """Write the files, the narrowest purpose first."""
    known = {"torch"}
    for purpose in PURPOSES:
        names = compiled(purpose, known, *sys.argv[1:])
        if of_cuda := {name for name in names if name.startswith(OF_CUDA)}:
            known |= of_cuda
            names = compiled(purpose, known)
        known.update(names)


if __name__ == "__main__":
    main()
