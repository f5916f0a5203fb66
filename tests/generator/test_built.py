"""`make site` builds nothing where nothing has changed, and builds again after any change."""

from __future__ import annotations

import sys

import pytest

from generator.website import built

BUILD = """\
import os, pathlib, sys
pathlib.Path("site/html/index.html").write_text(f"built with {os.environ['PROOFBOOK_SURPRISES']}")
sys.exit(int(sys.argv[1]))
"""


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder as a build leaves it, noted as built."""
    for name, text in {
        "mkdocs.yml": "site_name: a book",
        "content/site.yml": "title: a book",
        "content/traces/reference-a/ddp.json": "{}",
        "content/traces/.running": "4711",
        "generator/page.py": "a = 1",
        "builder.py": BUILD,
        "tests/test_page.py": "c = 1",
        "site/pages/index.md": "# A book",
        "site/html/index.html": "",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.chdir(tmp_path)
    assert built.build(tmp_path, ["builder", "0"]) == 0
    return tmp_path


def test_nothing_is_built_where_nothing_has_changed(project, capsys):
    (project / "content/site.yml").write_text("title: a book")
    (project / "content/traces/.running").write_text("4712")
    (project / "tests/test_page.py").write_text("c = 2")
    assert built.main() == 0
    assert "nothing has changed" in capsys.readouterr().out


@pytest.mark.parametrize(
    "name",
    [
        "mkdocs.yml", "content/site.yml", "content/traces/reference-a/ddp.json",
        "generator/page.py", "site/pages/index.md", "site/html/index.html",
    ],
)  # fmt: skip
def test_a_file_that_was_edited_deleted_or_renamed_builds_again(project, name):
    path, was = project / name, (project / name).read_text()
    path.write_text(f"{was} ")
    assert not built.is_built(project)
    path.write_text(was)
    assert built.is_built(project)
    path.rename(path.with_name(f"other{path.suffix}"))
    assert not built.is_built(project)


@pytest.mark.parametrize("name", ["content/traces/cpu-mine/ddp.json", "site/pages/mine.md"])
def test_a_file_that_came_builds_again(project, name):
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text("new")
    assert not built.is_built(project)


def test_a_variable_a_package_or_a_python_builds_again(project, monkeypatch):
    for changed in (
        lambda patch: patch.setenv("PROOFBOOK_MACHINE", "another"),
        lambda patch: patch.setattr(sys, "version", "3.99"),
        lambda patch: patch.setattr(sys, "path", [*sys.path, str(project / ".packages")]),
    ):
        (project / ".packages/jinja2-99.dist-info").mkdir(parents=True, exist_ok=True)
        with monkeypatch.context() as patch:
            changed(patch)
            assert not built.is_built(project)
    assert built.is_built(project)


def test_a_build_that_failed_broke_off_or_saw_an_edit_is_not_noted(project):
    assert built.build(project, ["builder", "1"]) == 1
    assert not built.is_built(project)
    (project / "builder.py").write_text(f"open('mkdocs.yml', 'a').write('#')\n{BUILD}")
    assert built.build(project, ["builder", "0"]) == 0
    assert not built.is_built(project)
    (project / built.NOTE).write_text("{")
    assert not built.is_built(project)
