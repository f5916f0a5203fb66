"""ProperDocs, which continues MkDocs, builds the same book: it would take the place of MkDocs."""

import pytest

from tests.conftest import build_with, copy_of_the_book

pytestmark = [pytest.mark.soak, pytest.mark.builds]


def _files(site):
    return {path.relative_to(site): path for path in site.rglob("*") if path.is_file()}


def test_properdocs_writes_every_file_that_mkdocs_writes_to_the_byte(built_site, tmp_path):
    project = copy_of_the_book(tmp_path / "book")
    done = build_with("properdocs", project, "build", "--strict", "--config-file", "mkdocs.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    theirs, ours = _files(project / "site" / "html"), _files(built_site)
    assert len(ours) > 100
    assert theirs.keys() == ours.keys()
    assert [name for name in ours if ours[name].read_bytes() != theirs[name].read_bytes()] == []
