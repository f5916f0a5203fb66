"""A thousand pages: a strict build, twice the same to the byte, with nothing rewritten."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tests.conftest import mkdocs
from tests.soak.thousand import NUM_PAGES, thousand_pages


def _digests(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.rglob("*.md")
    }


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_a_thousand_pages_build_and_stay_the_same(tmp_path):
    book = thousand_pages(tmp_path / "book")
    pages = book / "site" / "pages"
    seen = []
    for _ in range(2):
        done = mkdocs(book, "build", "--strict")
        assert done.returncode == 0, done.stdout + done.stderr
        times = {path: path.stat().st_mtime_ns for path in pages.rglob("*.md")}
        seen.append((_digests(pages), times))
    assert len(seen[0][0]) >= NUM_PAGES
    assert seen[0] == seen[1]
