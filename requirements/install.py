"""Make `.venv` and install one requirements file into it: `python3 requirements/install.py pages`.

Takes `pages`, `run` or `test`: which file beside this one; and a folder, where it is not `.venv`.
The Makefile calls it when that file is newer than its stamp, so a second call costs nothing. Prints
each large download, and in the end what was fetched and how long it took. Exits 2 with one line
where this Python cannot do it.

Runs under whatever Python the machine has, so its syntax is that of Python 3.7: it must be able to
say that a Python is too old.
"""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Iterable

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
VENV = ROOT / ".venv"
OLDEST = (3, 11)
WORTH_A_LINE_MB = 5
MEGABYTES = {"kB": 1e-3, "MB": 1.0, "GB": 1e3}
DOWNLOAD = re.compile(r"\s*Downloading (?:\S*/)?(\S+) \(([\d.]+) (kB|MB|GB)\)")
FROM_DISK = re.compile(r"\s*Processing (?:file://)?(\S+\.whl)")


def say(line: str) -> None:
    """Print at once, so that a person sees what is going on."""
    print(line, flush=True)


def refuse(reason: str) -> None:
    """Say why this cannot go on, in one line; exit code 2."""
    print(f"proofbook: {reason}", file=sys.stderr)
    sys.exit(2)


def check_python(version: tuple[int, ...]) -> None:
    """Refuse a Python that cannot make the environment."""
    if version < OLDEST:
        found = ".".join(map(str, version[:2]))
        refuse(f"needs Python 3.11 or later, this is {found}; try make PYTHON=python3.12 …")
    if not all(importlib.util.find_spec(name) for name in ("venv", "ensurepip")):
        refuse("this Python lacks venv; on Debian or Ubuntu: apt-get install python3-venv")


def make_environment(folder: Path = VENV) -> Path:
    """Make the environment unless a working one is there; return its Python."""
    python = folder / "bin" / "python"
    if python.exists():
        return python
    check_python(sys.version_info)
    say(f"Making {folder.name} with Python {sys.version.split()[0]}")
    if subprocess.call([sys.executable, "-m", "venv", "--clear", str(folder)]):
        refuse(f"could not make {folder} (see above)")
    return python


def fetched(line: str) -> tuple[str, float]:
    """The package that a line of pip's says it fetches, and its megabytes; 0 for other lines."""
    found = DOWNLOAD.match(line)
    if found:
        return found.group(1), float(found.group(2)) * MEGABYTES[found.group(3)]
    found = FROM_DISK.match(line)
    if found:
        wheel = Path(found.group(1))
        return wheel.name, wheel.stat().st_size / 1e6
    return "", 0.0


def follow(lines: Iterable[str]) -> float:
    """Show what pip fetches that is large, as it comes; return the megabytes of all of it."""
    total = 0.0
    for line in lines:
        name, size = fetched(line)
        total += size
        if size >= WORTH_A_LINE_MB:
            say(f"  {name}, {size:.0f} MB")
        elif line.startswith("Installing collected packages") and "," in line:
            say(f"  unpacking {line.count(',') + 1} packages")
    return total


def pip(python: Path, *arguments: str) -> float:
    """Run pip; return the megabytes fetched. Its complaints are shown only where it fails."""
    command = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    command += ["--progress-bar", "off", *arguments]
    if not sys.dont_write_bytecode:  # half of the time; what is imported is compiled then, once
        command.append("--no-compile")
    with tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=complaints, text=True)
        with process:
            total = follow(process.stdout or ())
        if process.returncode:
            complaints.seek(0)
            sys.stderr.writelines(line for line in complaints if not line.startswith("WARNING"))
            refuse("pip could not install what the project needs (see above)")
    return total


def main() -> None:
    """Set up for the purpose named on the command line."""
    started = time.monotonic()
    purpose = sys.argv[1]
    folder = Path(sys.argv[2]) if len(sys.argv) > 2 else VENV
    python = make_environment(folder)
    say(f"Installing requirements/{purpose}.txt into {folder.name}")
    megabytes = pip(python, "-r", str(HERE / f"{purpose}.txt"))
    megabytes += pip(python, "--no-build-isolation", "--no-deps", "-e", str(ROOT))
    say(f"Set up: {megabytes:.0f} MB fetched, {time.monotonic() - started:.0f} s")


if __name__ == "__main__":
    main()
