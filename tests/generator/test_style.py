"""The style sheets: no unused class, and nothing that Safari ignores."""

import re
from typing import get_args

from proofbook.generator.content.claim import Verdict
from proofbook.generator.figures.drawing import NARROW, WIDE
from proofbook.generator.values.value import KINDS
from proofbook.generator.website import publish

WRITES_CLASSES = (".py", ".j2", ".js", ".html", ".yml")
CLASS = re.compile(r"\.(pb-[a-z0-9-]+)")


def test_every_class_of_the_style_sheets_is_written_by_a_template_or_a_script(root):
    sources = [
        path.read_text(encoding="utf-8")
        for path in sorted((root / "generator").rglob("*"))
        if path.suffix in WRITES_CLASSES
    ]
    written = set(re.findall(r"pb-[a-z0-9-]+", "\n".join(sources)))
    sheets = [path.read_text(encoding="utf-8") for path in publish.ASSETS.rglob("*.css")]
    styled = {name for sheet in sheets for name in CLASS.findall(sheet)}
    assert len(styled) > 100
    names = (*KINDS, *get_args(Verdict), WIDE.name, NARROW.name)
    drawings = (root / "generator" / "figures").rglob("*.py")
    looks = re.findall(r"[a-z]+(?:-[a-z]+)*", "".join(path.read_text() for path in drawings))
    put_together = {f"pb-{name.replace('_', '-')}" for name in (*names, *looks)}
    assert sorted(styled - written - put_together) == []


def test_no_line_below_words_has_a_colour_or_a_style_in_the_shorthand_that_safari_ignores():
    lines = re.findall(r"[^-]text-decoration:([^;}]+)", publish.style().decode())
    assert len(lines) > 3
    assert set(lines) <= {"none", "underline"}
