"""ESLint over our scripts: names that are undefined, shadowed or unused, and loose comparisons."""

import json
from collections.abc import Iterator
from pathlib import Path

from tests.audit.tools import output, package
from tests.conftest import ROOT

CONFIG = Path(__file__).with_name("eslint.config.mjs")
SCRIPTS = "generator/website/assets/*.js"


def problems() -> Iterator[tuple[str, str]]:
    """Each error: the script's name, and what is wrong where.

    Raises:
        ToolError: ESLint could not run.
    """
    program = package("eslint") / "bin" / "eslint.js"
    words = (program, "--config", CONFIG, "--format", "json", SCRIPTS)
    for script in json.loads(output("node", *words, most=1, cwd=ROOT)):
        name = Path(script["filePath"]).relative_to(ROOT).as_posix()
        for found in script["messages"]:
            yield name, f"line {found['line']}: {found['message']} ({found['ruleId']})"
