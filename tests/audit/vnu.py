"""The Nu HTML checker over the files of pages: what it calls an error in our own markup."""

import json
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.audit.tools import command, package

JAR = "build/dist/vnu.jar"
# Markup of the theme that no template of ours writes: what it says, and what stands in the page.
OF_THE_THEME = (
    ("Attribute “autocomplete” is only allowed when", 'class="md-toggle"'),
    ("The value of the “for” attribute of the “label” element", 'for="__toc"'),
)


def problems(site: Path, pages: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Each error: the page's name, and what is wrong where."""
    done = subprocess.run(
        [
            command("java"),
            "-Xss4m",
            "-jar",
            str(package("vnu-jar") / JAR),
            "--errors-only",
            "--format",
            "json",
            "--exit-zero-always",
            *map(str, pages),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    for found in json.loads(done.stderr)["messages"]:
        extract = found.get("extract", "")
        if any(said in found["message"] and where in extract for said, where in OF_THE_THEME):
            continue
        page = Path(found["url"].removeprefix("file:")).relative_to(site.resolve()).as_posix()
        excerpt = " ".join(extract.split())
        yield page, f"line {found.get('lastLine')}: {found['message']} In: {excerpt}"
