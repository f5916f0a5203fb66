"""The tools of an audit: installed by npm at the versions of `package-lock.json`, on first use."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MODULES = HERE / "node_modules"
NEEDS = {
    "npm": "Node.js 20 or later, with npm",
    "node": "Node.js 20 or later, with npm",
    "java": "a Java runtime, 11 or later",
}


class ToolError(ValueError):
    """A tool is missing or cannot run; the message says which and what to do."""


def command(name: str) -> str:
    """The path of a command of this machine.

    Raises:
        ToolError: it is not there.
    """
    found = shutil.which(name)
    if found is None:
        raise ToolError(f"an audit needs `{name}`: install {NEEDS[name]}")
    return found


def output(name: str, *words: str | Path, most: int = 0, **how: Any) -> str:
    """What a command prints, on standard error where it prints nothing else.

    Args:
        name: of the command.
        words: behind it.
        most: the highest code that it may exit with.
        how: `subprocess.run` takes it.

    Raises:
        ToolError: it is not there, or exits with another code.
    """
    called = [command(name), *map(str, words)]
    done = subprocess.run(called, capture_output=True, encoding="utf-8", **how)
    if done.returncode > most or done.returncode < 0:
        raise ToolError(f"`{' '.join(called)}` ended with {done.returncode}: {done.stderr}")
    return done.stdout or done.stderr


def package(name: str) -> Path:
    """The folder of an installed package; installs all of them where one is missing or older.

    Raises:
        ToolError: npm is missing, or could not install.
    """
    wanted = json.loads((HERE / "package.json").read_text(encoding="utf-8"))["dependencies"]
    if wanted != {one: _version(one) for one in wanted}:
        output("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=HERE)
    return MODULES / name


def _version(name: str) -> str | None:
    described = MODULES / name / "package.json"
    if not described.is_file():
        return None
    return str(json.loads(described.read_text(encoding="utf-8"))["version"])
