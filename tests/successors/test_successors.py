"""The same Markdown under other builders: the same text, working items and popovers, a policy.

    make successors

installs Zensical and ProperDocs into an environment of their own, builds `site/pages` with both,
and compares each page with MkDocs' one.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from generator.website import finish
from tests.conftest import ROOT, copy_of_the_book, made_once, mkdocs

if TYPE_CHECKING:
    from playwright.sync_api import Page

BUILDERS = {
    "zensical": ("zensical", "build"),
    "properdocs": ("properdocs", "build", "--quiet", "--config-file", "mkdocs.yml"),
}
THEMES = {"zensical": "zensical/templates", "properdocs": "material/templates"}
CONFIGURATION = """\
INHERIT: {root}/mkdocs.yml
docs_dir: pages
site_dir: html
theme:
  custom_dir: {root}/generator/website/overrides
plugins: [search, offline]
"""
ARTICLE = re.compile(r'<article class="md-content__inner md-typeset">(.*?)</article>', re.DOTALL)
UNREAD = re.compile(r"<(script|style)\b.*?</\1>|<!--.*?-->|<[^>]+>", re.DOTALL)
LEARN = "topics/ddp/learn.html"


def _with_pages(folder: Path) -> Path:
    done = mkdocs(copy_of_the_book(folder), "build", "--quiet")
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "site"


@pytest.fixture(scope="session")
def by_mkdocs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real book: `pages`, its Markdown, and `html`, what MkDocs makes of it."""
    return made_once(tmp_path_factory, "by-mkdocs", _with_pages)


@pytest.fixture(scope="session", params=BUILDERS)
def site(
    request: pytest.FixtureRequest, by_mkdocs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The HTML that another builder makes of the same Markdown."""
    folder = tmp_path_factory.mktemp(request.param)
    shutil.copytree(by_mkdocs / "pages", folder / "pages", ignore=shutil.ignore_patterns(".*"))
    (folder / "mkdocs.yml").write_text(CONFIGURATION.format(root=ROOT), encoding="utf-8")
    command, *arguments = BUILDERS[request.param]
    done = subprocess.run(
        [ROOT / ".venv-successors" / "bin" / command, *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (templates,) = (ROOT / ".venv-successors").glob(
        f"lib/python*/site-packages/{THEMES[request.param]}"
    )
    assert finish.finish(folder / "html", templates).scripts == []
    return folder / "html"


def text_of(path: Path) -> str:
    """What a page's article says, without spaces, which highlighted code has elsewhere."""
    found = ARTICLE.search(path.read_text(encoding="utf-8"))
    assert found, path
    return re.sub(r"\s+", "", unescape(UNREAD.sub("", found[1])))


def test_every_page_says_the_same(site, by_mkdocs):
    names = [path.relative_to(by_mkdocs / "html") for path in by_mkdocs.glob("html/**/*.html")]
    names.remove(Path("404.html"))  # the theme's page, not the Markdown's
    assert len(names) > 50
    assert [str(name) for name in names if not (site / name).is_file()] == []
    other = [name for name in names if text_of(site / name) != text_of(by_mkdocs / "html" / name)]
    assert other == []


def test_an_item_is_answered_and_a_popover_opens_under_the_policy(
    site: Path, open_page: Callable[..., Page]
):
    page = open_page(site / LEARN, viewport={"width": 1280, "height": 900})
    policy = page.locator("meta[http-equiv=Content-Security-Policy]").get_attribute("content")
    assert policy
    assert "script-src 'self' 'sha256-" in policy
    commit = page.locator("form.pb-item[data-as=commit]").first
    commit.locator(".pb-number-field").fill("1")
    commit.locator(".pb-check").click()
    assert commit.locator("[role=status]").inner_text().startswith("Not close.")
    item = page.locator("form.pb-item[data-kind=choice]").first
    item.locator("input").first.check()
    item.locator(".pb-check").click()
    assert item.locator("[role=status]").inner_text().startswith(("Right.", "Not quite."))
    page.locator("article .pb-value:visible").first.click()
    popover = page.locator("[popover]:popover-open")
    popover.wait_for()
    assert "runners reproduce" in popover.inner_text()
