"""Try the project on each Python of this machine: `make pythons`; ARGS='--ends --others' for fewer.

Finds CPython 3.11 and later (`pyenv`, `uv`, the path), the newest patch of each; `--ends` takes the
oldest and the newest of these, `--others` leaves out that of `.venv`, which the tests run on. For
each it makes an environment, `.venv` where that is the same Python and else `.pythons/3.12`, and
runs the smoke: `check` of the content, one experiment with its metered passes, a simulation, a
plan, the tests of the memory meter. The torch that pip installs by default is another build than
that of `.venv`. Prints a table. Exits 1 where a smoke failed; a Python for which pip finds no
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
ASK = "import sys; print(*sys.version_info[:3], sys.implementation.name, sys.prefix, sep='|')"
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
    try:
        asked = subprocess.run(
            [python, "-c", ASK], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    major, minor, patch, kind, _ = asked.stdout.split("|")
    return (int(major), int(minor), int(patch)) if kind == "cpython" else None


def candidates() -> list[Path]:
    """Interpreters of this machine, by the places where they are put."""
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT", home / ".pyenv")) / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", home / ".local/share/uv/python"))
    found = [*pyenv.glob("*/bin/python3"), *uv.glob("*/bin/python3"), Path(sys.executable)]
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found += [p for p in Path(folder).glob("python3*") if re.fullmatch(r"python3\.\d+", p.name)]
    return found


def pythons() -> dict[Version, Path]:
    """The newest patch of each Python that is recent enough, oldest first."""
    known = ((version_of(path), path) for path in dict.fromkeys(candidates()))
    found = {version: path for version, path in known if version and version[:2] >= OLDEST}
    newest: dict[tuple[int, int], Version] = {version[:2]: version for version in sorted(found)}
    return {version: found[version] for version in newest.values()}


def environment(version: Version) -> Path:
    """The environment of a Python: `.venv` where it is of the same minor version.

    A `.venv` that is still being made will be of the Python that runs this.
    """
    own = version_of(ROOT / ".venv" / "bin" / "python") or sys.version_info
    if own[:2] == version[:2]:
        return ROOT / ".venv"
    return ROOT / ".pythons" / f"{version[0]}.{version[1]}"


def set_up(version: Version, python: Path) -> bool:
    """Make the environment unless it is there; False where pip cannot."""
    folder = environment(version)
    stamp = folder / ".test"
    pins = [HERE / f"{purpose}.txt" for purpose in ("pages", "run", "test")]
    if stamp.exists() and all(stamp.stat().st_mtime > pin.stat().st_mtime for pin in pins):
        return True
    done = subprocess.run([python, HERE / "install.py", "test", folder], check=False)
    if done.returncode == 0:
        stamp.touch()
    return done.returncode == 0


def smoke(version: Version) -> dict[str, str]:
    """What came of each command, in a word and seconds; output is shown where one failed."""
    python = environment(version) / "bin" / "python"
    words = {}
    for name, arguments in SMOKE.items():
        with tempfile.TemporaryDirectory() as traces:
            chosen = {"PROOFBOOK_TRACES": traces} if name == EXPERIMENT else {}
            started = time.monotonic()
            done = subprocess.run(
                [python, *arguments], cwd=ROOT, env={**os.environ, **chosen},
                capture_output=True, text=True, check=False,
            )  # fmt: skip
        took = f"{time.monotonic() - started:.0f} s"
        words[name] = f"passed, {took}" if done.returncode == 0 else f"FAILED, {took}"
        if done.returncode:
            sys.stderr.write(done.stdout[-4000:] + done.stderr[-4000:])
    return words


def main() -> int:
    """Try each Python, or the oldest and the newest, and print what came of it."""
    found = list(pythons().items())
    if "--ends" in sys.argv[1:]:
        found = [found[0], found[-1]] if len(found) > 1 else found
    if "--others" in sys.argv[1:]:
        found = [one for one in found if environment(one[0]) != ROOT / ".venv"]
    lines, failed = [], False
    for version, python in found:
        words = smoke(version) if set_up(version, python) else {}
        failed = failed or any(word.startswith("FAILED") for word in words.values())
        said = "".join(f"{name} {word:14}  " for name, word in words.items())
        lines.append(
            f"{'.'.join(map(str, version)):8}  {said or 'not tried: pip found no packages'}"
        )
    print("\n".join(["Python    smoke", *lines]))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
