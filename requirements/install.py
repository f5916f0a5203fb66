"""Make `.venv` and install what a purpose needs: `python3 requirements/install.py pages`.

Takes `pages`, `run` or `test`, and a folder, where it is not `.venv`. The Makefile calls it when
the pins of a purpose are newer than its stamp, so a second call costs nothing. Installs what
`lock.py` pinned, whose hashes pip checks, then this project and torch. Shows large downloads, and
what pip said last where it fails. Exits 2 with one line where this Python cannot do it.

Runs under whatever Python the machine has, so its syntax is that of Python 3.7: it must be able to
say that a Python is too old.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OLDEST = (3, 11)
# What is set up, and with which extras of `pyproject.toml`.
PURPOSES = {"pages": "[book]", "run": "[book,run]", "test": "[book,run,test]"}


def refuse(reason: str) -> NoReturn:
    """Say why this cannot go on, in one line; exit code 2."""
    print(f"proofbook: {reason}", file=sys.stderr)
    sys.exit(2)


def check_python(version: tuple[int, ...]) -> None:
    """Refuse a Python that cannot make the environment."""
    if version < OLDEST:
        version_name = ".".join(map(str, version[:2]))
        refuse(f"needs Python 3.11 or later, this is {version_name}; try make PYTHON=python3.12 …")
    if not all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
        refuse("this Python lacks venv; on Debian or Ubuntu: apt-get install python3-venv")


def pins(purpose: str) -> list[Path]:
    """The files with what a purpose needs: its own, after those of the narrower ones."""
    return [HERE / f"{name}.txt" for name in [*PURPOSES][: [*PURPOSES].index(purpose) + 1]]


def make_environment(python: Path) -> None:
    """Make the environment of this Python unless a working one is there."""
    if python.with_name("pip").exists():  # what is made last
        return
    check_python(sys.version_info)
    folder = python.parent.parent
    print(f"Making {folder.name} with Python {sys.version.split()[0]}", flush=True)
    if subprocess.call([sys.executable, "-m", "venv", "--clear", str(folder)]):
        refuse(f"could not make {folder} (see above)")


def pip(python: Path, *arguments: str) -> None:
    """Call pip; of what it does, show downloads of a megabyte and more, and how long they took."""
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    command += ["--progress-bar", "off", *arguments]
    if not sys.dont_write_bytecode:  # half of the time; what is imported is compiled then, once
        command.append("--no-compile")
    lines, start = [], time.time()
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, text=True, **pipes) as process:
        for line in process.stdout or ():
            lines.append(line)
            if line.rstrip().endswith((" MB)", " GB)")):
                print(line.rstrip(), flush=True)
            if line.startswith("Installing collected packages"):  # when all is downloaded
                print(f"  downloaded in {time.time() - start:.0f} s", flush=True)
    if process.returncode:
        sys.stderr.writelines(lines[-20:])
        refuse("pip could not install what the project needs (see above)")


def main() -> None:
    """Set up for the purpose named on the command line."""
    purpose = sys.argv[1]
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else ROOT / ".venv"
    python = folder / "bin" / "python"
    make_environment(python)
    print(f"Installing what {purpose} needs into {folder.name}", flush=True)
    start = time.time()
    pip(python, "--require-hashes", *(word for path in pins(purpose) for word in ("-r", str(path))))
    pip(python, "--no-build-isolation", "-e", f"{ROOT}{PURPOSES[purpose]}")
    if purpose != "pages" and not sys.dont_write_bytecode:  # or all that start together compile it
        loading = "from proofbook.runners.core.ranks.process import preload; preload()"
        subprocess.call([str(python), "-c", loading], cwd=str(ROOT))
    print(f"Installed in {time.time() - start:.0f} s, downloads included", flush=True)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("stopped; the next call installs the rest", file=sys.stderr)
        sys.exit(130)
