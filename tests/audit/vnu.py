"""The Nu HTML checker over the files of pages: what it calls an error in our own markup."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.audit.tools import output, package

JAR = "build/dist/vnu.jar"
OPTIONS = ("--errors-only", "--format", "json", "--exit-zero-always")
# Markup of the theme that no template of ours writes: what it says, and what stands in the page.
OF_THE_THEME = (
    ("Attribute “autocomplete” is only allowed when", 'class="md-toggle"'),
    ("The value of the “for” attribute of the “label” element", 'for="__toc"'),
)


def problems(site: Path, pages: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Each error: the page's name, and what is wrong where."""
    text = output("java", "-Xss4m", "-jar", package("vnu-jar") / JAR, *OPTIONS, *pages)
    for found in json.loads(text)["messages"]:
        extract = found.get("extract", "")
        if any(said in found["message"] and where in extract for said, where in OF_THE_THEME):
            continue
        page = Path(found["url"].removeprefix("file:")).relative_to(site.resolve()).as_posix()
        excerpt = " ".join(extract.split())
        yield page, f"line {found.get('lastLine')}: {found['message']} In: {excerpt}"
