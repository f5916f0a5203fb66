"""`make publish`: committed machines alone, right addresses, one zip, and a site under a subpath.

The book is published once, from a clone in which a second machine has measured and is not
committed, for the address at which a server of the test then shows it.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
import zipfile
from collections.abc import Iterator
from html import unescape
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.audit.server import served
from tests.clones import lend_environment, pasted
from tests.conftest import ROOT, copy_of_the_book
from tests.site.html_reading import pages, read_head

if TYPE_CHECKING:
    from playwright.sync_api import Browser

COMMITTED_AT = "2026-01-02T03:04:05Z"


class Published(NamedTuple):
    """What `make publish` left: the clone, the site within it, and its address."""

    folder: Path
    site: Path
    address: str


class Handler(SimpleHTTPRequestHandler):
    """A folder under /book/, and its 404 page for what is not there."""

    def translate_path(self, path: str) -> str:
        if not path.startswith("/book/"):
            return "/nowhere"
        return super().translate_path(path.removeprefix("/book"))

    def send_error(self, code: int, *_: object) -> None:
        body = (Path(self.directory) / "404.html").read_bytes()
        self.send_response(code)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def _clone(folder: Path) -> Path:
    """The tree as a clone of one commit, with a machine that is not in it."""
    copy_of_the_book(folder)
    for name in ("Makefile", ".gitignore"):
        shutil.copy2(ROOT / name, folder)
    shutil.copytree(ROOT / "requirements", folder / "requirements")
    lend_environment(folder)
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]
    when = {**os.environ, "GIT_COMMITTER_DATE": COMMITTED_AT}
    for command in (["init", "-q"], ["add", "-A", "-f", "content"], ["commit", "-qm", "book"]):
        subprocess.run([*git, *command], cwd=folder, check=True, env=when)
    traces = folder / "content" / "traces"
    reference = next(traces.glob("reference-*"))
    (traces / "desk").mkdir()
    for path in reference.glob("*.json"):
        text = path.read_text(encoding="utf-8").replace(reference.name, "desk")
        (traces / "desk" / path.name).write_text(text, encoding="utf-8")
    (traces / "this-machine").write_text("desk\n")
    return folder


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Published]:
    folder = _clone(tmp_path_factory.mktemp("published") / "clone")
    site = folder / "site" / "book"
    with served(site, Handler) as host:
        address = f"{host}/book/"
        done = pasted(f"make publish SITE_URL={address}", folder)
        assert done.returncode == 0, done.stdout + done.stderr
        yield Published(folder, site, address)


def test_a_machine_that_is_not_committed_stands_nowhere_in_the_book(published):
    assert (published.folder / "content" / "traces" / "desk" / "machine.json").is_file()
    assert not list(published.site.rglob("*desk*"))
    for page in pages(published.site):
        assert not re.search(r">desk<|/desk/|\bdesk,", page.read_text(encoding="utf-8")), page


def test_every_page_offers_the_sources_of_its_commit(published):
    listed = ["git", "ls-files", "-z"]
    done = subprocess.run(listed, cwd=published.folder, check=True, capture_output=True, text=True)
    with zipfile.ZipFile(published.site / "proofbook-sources.zip") as sources:
        packed = {name for name in sources.namelist() if not name.endswith("/")}
        (trace,) = (name for name in packed if name.endswith("2c/ddp.json"))
        inside = sources.read(trace)
    assert packed == {f"proofbook/{name}" for name in done.stdout.split("\0") if name}
    assert inside == (published.folder / trace.removeprefix("proofbook/")).read_bytes()
    for page in pages(published.site):
        assert "proofbook-sources.zip" in page.read_text(encoding="utf-8"), page


def test_addresses_are_those_of_the_site_and_dates_those_of_the_commit(published):
    for page in pages(published.site):
        name = page.relative_to(published.site).as_posix()
        canonical = [
            tag for tag in read_head(page).tags if tag.attributes.get("rel") == "canonical"
        ]
        assert [tag.attributes["href"] for tag in canonical] == [published.address + name]
    sitemap = (published.site / "sitemap.xml").read_bytes()
    tree = ElementTree.fromstring(sitemap)
    found = {entry[0].text: entry[1].text for entry in tree}
    names = {page.relative_to(published.site).as_posix() for page in pages(published.site)}
    assert found == {published.address + name: COMMITTED_AT[:10] for name in names}
    assert gzip.decompress((published.site / "sitemap.xml.gz").read_bytes()) == sitemap


def test_a_shared_link_shows_the_title_a_description_and_the_picture_of_its_topic(published):
    page = published.site / "topics" / "ddp" / "learn.html"
    tags = (tag.attributes for tag in read_head(page).tags if tag.name == "meta")
    shared = {tag["property"]: tag["content"] for tag in tags if "property" in tag}
    assert shared["og:image"] == f"{published.address}assets/pictures/ddp.png"
    assert shared["og:url"] == f"{published.address}topics/ddp/learn.html"
    title = re.search(r"<title>(.*?)</title>", page.read_text(encoding="utf-8"))[1]
    assert unescape(title) == f"{shared['og:title']} · Proofbook"
    assert len(shared["og:description"]) > 20


def test_every_page_has_a_picture_that_is_there(published):
    pictures = set()
    for page in pages(published.site):
        tags = (tag.attributes for tag in read_head(page).tags if tag.name == "meta")
        found = [tag["content"] for tag in tags if tag.get("property") == "og:image"]
        pictures.update(found)
        assert len(found) == (page.name != "404.html"), page
    paths = [published.site / one.removeprefix(published.address) for one in pictures]
    assert {(path.read_bytes()[:8]) for path in paths} == {b"\x89PNG\r\n\x1a\n"}
    assert len(paths) > 6


def test_the_zip_holds_the_site(published):
    with zipfile.ZipFile(published.site.with_name("proofbook.zip")) as packed:
        files = [entry for entry in packed.infolist() if not entry.is_dir()]
        inside = {one.filename.removeprefix("book/"): packed.read(one) for one in files}
    assert inside == {
        path.relative_to(published.site).as_posix(): path.read_bytes()
        for path in published.site.rglob("*")
        if path.is_file()
    }


def _search(at) -> str:
    """Search for a word as a reader does; where the first result leads."""
    at.locator(".md-search__input").click()
    at.keyboard.type("gradients", delay=20)
    first = at.locator(".md-search-result__link").first
    first.wait_for()
    return first.evaluate("link => link.href")


@pytest.mark.browser
def test_a_wrong_address_under_a_subpath_has_styles_links_and_the_search(
    published, browser: Browser
):
    at = browser.new_page(viewport={"width": 1280, "height": 900})
    answers: dict[str, int] = {}
    at.on("response", lambda answer: answers.update({answer.url: answer.status}))
    nowhere = f"{published.address}topics/no/such/page.html"
    at.goto(nowhere)
    assert at.locator("h1").inner_text() == "This page does not exist"
    found = _search(at)
    assert found.startswith(published.address)
    assert answers.pop(nowhere) == 404
    assert len(answers) > 3
    assert {url: status for url, status in answers.items() if status >= 400} == {}
    at.goto(found)
    at.locator(".pb-sections a", has_text="Evidence").click()
    at.wait_for_url(f"{published.address}evidence.html")
    at.close()
