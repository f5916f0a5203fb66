"""`make site` builds nothing where nothing has changed, and builds again after any change."""

from __future__ import annotations

import sys

import pytest

from generator.website import built


@pytest.fixture
def project(tmp_path):
    """A folder as a build leaves it, noted as built."""
    for name, text in {
        "mkdocs.yml": "site_name: a book",
        "content/site.yml": "title: a book",
        "content/topics/ddp/learn.yml": "title: DDP",
        "content/topics/ddp/code/train.py": "print(1)",
        "content/traces/reference-a/ddp.json": "{}",
        "content/traces/.running": "4711",
        "generator/page.py": "a = 1",
        "generator/pages/templates/page.md.j2": "{{ a }}",
        "generator/website/assets/figures.js": "a()",
        "runners/digest.py": "b = 1",
        "tests/test_page.py": "c = 1",
        "site/pages/index.md": "# A book",
        "site/html/index.html": "<h1>A book</h1>",
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    listed = built.manifest.digest((tmp_path / "site/pages/index.md").read_bytes())
    (tmp_path / "site/pages/.written").write_bytes(built.manifest.text([("index.md", listed)]))
    built.begin(tmp_path)
    assert built.note(tmp_path)
    return tmp_path


def test_nothing_has_changed(project):
    assert built.is_built(project)


@pytest.mark.parametrize(
    "name",
    [
        "mkdocs.yml",
        "content/site.yml",
        "content/topics/ddp/learn.yml",
        "content/topics/ddp/code/train.py",
        "content/traces/reference-a/ddp.json",
        "generator/page.py",
        "generator/pages/templates/page.md.j2",
        "generator/website/assets/figures.js",
        "runners/digest.py",
        "site/pages/index.md",
        "site/html/index.html",
    ],
)
@pytest.mark.parametrize("way", ["edited", "deleted", "renamed"])
def test_a_file_that_was_changed_builds_again(project, name, way):
    path = project / name
    if way == "edited":
        path.write_text(f"{path.read_text()} ")
    elif way == "deleted":
        path.unlink()
    else:
        path.rename(path.with_name(f"other{path.suffix}"))
    assert not built.is_built(project)


@pytest.mark.parametrize(
    "name", ["content/traces/cpu-mine/ddp.json", "hooks.py", "site/pages/mine.md", "generator/x.j2"]
)
def test_a_file_that_came_builds_again(project, name):
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text("new")
    assert not built.is_built(project)


def test_the_same_bytes_written_again_and_what_no_build_reads_change_nothing(project):
    home = project / "content/site.yml"
    home.write_text(home.read_text())
    (project / "content/traces/.running").write_text("4712")
    (project / "tests/test_page.py").write_text("c = 2")
    (project / "generator/__pycache__").mkdir()
    (project / "generator/__pycache__/page.pyc").write_bytes(b"1")
    assert built.is_built(project)


@pytest.mark.parametrize("name", ["PROOFBOOK_MACHINE", "SOURCE_DATE_EPOCH", "PYTHONPATH"])
def test_a_variable_that_the_build_reads_builds_again(project, monkeypatch, name):
    monkeypatch.setenv(name, "another")
    assert not built.is_built(project)


def test_another_version_of_a_package_or_of_python_builds_again(project, monkeypatch, tmp_path):
    packages = tmp_path / "site" / "packages"
    (packages / "jinja2-99.dist-info").mkdir(parents=True)
    with monkeypatch.context() as changed:
        changed.setattr(sys, "path", [*sys.path, str(packages)])
        assert not built.is_built(project)
    assert built.is_built(project)
    monkeypatch.setattr(sys, "version", "3.99")
    assert not built.is_built(project)


def test_what_changed_during_a_build_is_not_noted_as_built(project):
    built.begin(project)
    assert not built.is_built(project)
    (project / "content/site.yml").write_text("title: edited while it was built")
    assert not built.note(project)
    assert not built.is_built(project)


def test_a_build_that_was_never_begun_or_broke_off_is_not_noted(project):
    (project / built.NOTE).write_text("{")
    assert not built.is_built(project)
    assert not built.note(project)


def test_the_command_says_so_by_its_exit_code(project, monkeypatch, capsys):
    monkeypatch.chdir(project)
    assert built.main([]) == 0
    assert "nothing has changed" in capsys.readouterr().out
    (project / "content/site.yml").write_text("title: another")
    assert built.main([]) == 1
    assert built.main(["--note"]) == 0
    assert built.main([]) == 0
