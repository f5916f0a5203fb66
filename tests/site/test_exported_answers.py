"""What a page exports is what `python -m generator items` reads: both sides, no typed example."""

from __future__ import annotations

from pathlib import Path

import pytest

from generator.content.book import Book, load
from generator.evidence.evaluation import Evidence
from generator.items.digests import digest_of
from generator.items.item_statistics import report
from generator.items.readers import read
from generator.pages.reader_report import tell
from tests.conftest import ROOT
from tests.site.asking import CHALLENGE, ITEMS, RECALL, Asking


@pytest.fixture(scope="module")
def frozen() -> Book:
    """The book that the frozen site was built from."""
    return load(ROOT / "tests" / "book" / "content", "reference-frozen", is_stale=lambda _: False)


def _exported(page, folder: Path, name: str) -> Path:
    with page.expect_download() as download:
        page.locator("[data-recall-export]").click()
    path = folder / name
    download.value.save_as(path)
    return path


def test_what_a_reader_exports_is_read_with_every_answer_as_it_was_given(
    frozen_site, open_page, frozen, tmp_path
):
    evidence, paths = Evidence(frozen), []
    for number, is_right in enumerate((True, False)):
        page = open_page(frozen_site / CHALLENGE, accept_downloads=True)
        for one in ITEMS:
            Asking(page, one.id).give(one.right if is_right else one.wrong)
        page.goto((frozen_site / RECALL).as_uri())
        paths.append(_exported(page, tmp_path, f"{number}.json"))
    items = {name: item for topic in frozen.topics for name, item in topic.items.items()}
    digests = {name: digest_of(item, evidence) for name, item in items.items()}
    found = report(items, digests, [read(path) for path in paths])
    assert found.num_unknown == found.num_unfit == 0
    assert {one.item.id for one in found.items} == {one.id for one in ITEMS}
    for one in found.items:
        assert one.num_readers == 2, one.item.id
        assert one.right == (1, 2), one.item.id
        assert one.older == (0, 0)
    chosen = {one.item.id: one.never_chosen for one in found.items}
    assert chosen["how-many-bytes"] == (2,)
    assert chosen["where-is-the-fault"] == (1,)
    lines = tell(evidence, paths).lines
    assert lines[0] == "2 readers in 2 files"
