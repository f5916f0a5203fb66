"""ESLint over our scripts, and the Nu HTML checker over the files of pages."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from tests.audit.tools import output, package
from tests.conftest import ROOT

CONFIG = Path(__file__).with_name("eslint.config.mjs")
SCRIPTS = "generator/**/assets/*.js"
JAR = "build/dist/vnu.jar"
OPTIONS = ("--errors-only", "--format", "json", "--exit-zero-always")
# Markup of the theme that no template of ours writes: what it says, and what stands in the page.
OF_THE_THEME = (
    ("Attribute “autocomplete” is only allowed when", 'class="md-toggle"'),
    ("The value of the “for” attribute of the “label” element", 'for="__toc"'),
    ("Bad value “” for attribute “tabindex”", 'class="md-nav__link'),
)


def eslint() -> Iterator[tuple[str, str]]:
    """Names that are undefined, shadowed or unused, and loose comparisons: the script, and where.

    Raises:
        ToolError: ESLint could not run.
    """
    program = package("eslint") / "bin" / "eslint.js"
    words = (program, "--config", CONFIG, "--format", "json", SCRIPTS)
    for script in json.loads(output("node", *words, most=1, cwd=ROOT)):
        name = Path(script["filePath"]).relative_to(ROOT).as_posix()
        for found in script["messages"]:
            yield name, f"line {found['line']}: {found['message']} ({found['ruleId']})"


def vnu(site: Path, pages: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Each error in our own markup: the page's name, and what is wrong where."""
    text = output("java", "-Xss4m", "-jar", package("vnu-jar") / JAR, *OPTIONS, *pages)
    for found in json.loads(text)["messages"]:
        extract = found.get("extract", "")
        if any(said in found["message"] and where in extract for said, where in OF_THE_THEME):
            continue
        path = Path(url2pathname(urlsplit(found["url"]).path))
        page = path.relative_to(site.resolve()).as_posix()
        excerpt = " ".join(extract.split())
        yield page, f"line {found.get('lastLine')}: {found['message']} In: {excerpt}"
