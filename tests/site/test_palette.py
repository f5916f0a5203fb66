"""The switch of the colour scheme, for every palette that a configuration may name."""

from __future__ import annotations

from pathlib import Path

import material
import pytest
from jinja2 import Environment, FileSystemLoader

from tests.conftest import ROOT
from tests.site.html_reading import read

LIGHT = {"media": "(prefers-color-scheme: light)", "scheme": "default"}
DARK = {"media": "(prefers-color-scheme: dark)", "scheme": "slate"}
TOGGLE = {"toggle": {"icon": "material/weather-night", "name": "Turn"}}
SYSTEM = {"media": "(prefers-color-scheme)", **TOGGLE}


@pytest.mark.parametrize(
    ("palette", "buttons", "schemes"),
    [
        ([LIGHT | TOGGLE, DARK | TOGGLE], 2, ["default", "slate"]),
        ([SYSTEM, LIGHT | TOGGLE, DARK | TOGGLE], 2, ["default", "slate"]),
        ([LIGHT, DARK], 0, ["default", "slate"]),
        ([LIGHT | {"toggle": False}, DARK | {"toggle": None}], 0, ["default", "slate"]),
        ([TOGGLE, {"scheme": "slate"} | TOGGLE], 2, ["default", "slate"]),
    ],
)
def test_each_scheme_is_there_once_with_a_button_where_it_has_a_toggle(
    palette, buttons, schemes, tmp_path
):
    theme = Path(material.__file__).parent / "templates"
    folders = [ROOT / "generator/website/overrides", theme]
    template = Environment(loader=FileSystemLoader(folders), autoescape=True).get_template(
        "partials/palette.html"
    )
    file = tmp_path / "palette.html"
    file.write_text(template.render(config={"theme": {"palette": palette}}), encoding="utf-8")
    tags = [tag for tag in read(file).tags if "data-pb-scheme" in tag.attributes]
    assert [tag.attributes["data-pb-scheme"] for tag in tags] == schemes
    assert sum(tag.name == "button" for tag in tags) == buttons
