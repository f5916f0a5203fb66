"""ESLint over our scripts: names that are undefined, shadowed or unused, and loose comparisons."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.audit.tools import ToolError, command, package
from tests.conftest import ROOT

CONFIG = Path(__file__).with_name("eslint.config.mjs")
SCRIPTS = "generator/website/assets/*.js"


def problems() -> Iterator[tuple[str, str]]:
    """Each error: the script's name, and what is wrong where.

    Raises:
        ToolError: ESLint could not run.
    """
    program = package("eslint") / "bin" / "eslint.js"
    words = [command("node"), str(program), "--config", str(CONFIG), "--format", "json", SCRIPTS]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    if done.returncode > 1:
        raise ToolError(f"eslint ended with {done.returncode}: {done.stderr}")
    for script in json.loads(done.stdout):
        name = Path(script["filePath"]).relative_to(ROOT).as_posix()
        for found in script["messages"]:
            yield name, f"line {found['line']}: {found['message']} ({found['ruleId']})"
