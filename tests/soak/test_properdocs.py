"""ProperDocs, which continues MkDocs, builds the same book: it would take the place of MkDocs."""

import pytest

from tests.conftest import build_with, copy_of_the_book

pytestmark = [pytest.mark.soak, pytest.mark.builds]


def _files(site):
    return {path.relative_to(site): path for path in site.rglob("*") if path.is_file()}


def test_properdocs_writes_every_file_that_mkdocs_writes_to_the_byte(tmp_path):
    built = []
    for builder in ("mkdocs", "properdocs"):
        book = copy_of_the_book(tmp_path / builder)
        done = build_with(builder, book, "build", "--strict", "--config-file", "mkdocs.yml")
        assert done.returncode == 0, done.stdout + done.stderr
        built.append(_files(book / "site" / "html"))
    ours, theirs = built
    assert len(ours) > 100
    assert theirs.keys() == ours.keys()
    assert [name for name in ours if ours[name].read_bytes() != theirs[name].read_bytes()] == []
