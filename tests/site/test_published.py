"""`make publish`: committed machines alone, right addresses, one zip, a site under a subpath."""

import gzip
import re
import subprocess
import xml.etree.ElementTree as ElementTree
import zipfile
from html import unescape

import pytest

from tests.published import ADDRESS, COMMITTED_AT, DESK, clone_of
from tests.site.html_reading import pages, read_head


def _tags(page, name):
    return [tag.attributes for tag in read_head(page).tags if tag.name == name]


def test_a_machine_that_is_not_committed_stands_nowhere_in_the_book(built_site):
    assert (clone_of(built_site) / "content" / "traces" / DESK / "machine.json").is_file()
    assert not list(built_site.rglob(f"*{DESK}*"))
    said = re.compile(rf">{DESK}<|/{DESK}/|\b{DESK},")
    assert [page for page in pages(built_site) if said.search(page.read_text("utf-8"))] == []


def test_every_page_offers_the_sources_of_its_commit(built_site):
    listed, clone = ["git", "ls-files", "-z"], clone_of(built_site)
    done = subprocess.run(listed, cwd=clone, check=True, capture_output=True, text=True)
    with zipfile.ZipFile(built_site / "proofbook-sources.zip") as sources:
        packed = {name for name in sources.namelist() if not name.endswith("/")}
        (trace,) = (name for name in packed if name.endswith("2c/ddp.json"))
        inside = sources.read(trace)
    assert packed == {f"proofbook/{name}" for name in done.stdout.split("\0") if name}
    assert inside == (clone / trace.removeprefix("proofbook/")).read_bytes()
    offered = "proofbook-sources.zip"
    assert [page for page in pages(built_site) if offered not in page.read_text("utf-8")] == []


def test_addresses_are_those_of_the_site_and_dates_those_of_the_commit(built_site):
    names = {page: page.relative_to(built_site).as_posix() for page in pages(built_site)}
    for page, name in names.items():
        links = [one["href"] for one in _tags(page, "link") if one.get("rel") == "canonical"]
        assert links == [ADDRESS + name]
    sitemap = (built_site / "sitemap.xml").read_bytes()
    found = {entry[0].text: entry[1].text for entry in ElementTree.fromstring(sitemap)}
    assert found == {ADDRESS + name: COMMITTED_AT[:10] for name in names.values()}
    assert gzip.decompress((built_site / "sitemap.xml.gz").read_bytes()) == sitemap


def test_a_shared_link_shows_title_description_and_a_picture_that_is_there(built_site):
    pictures = {}
    for page in pages(built_site):
        shared = {
            tag["property"]: tag["content"] for tag in _tags(page, "meta") if "property" in tag
        }
        pictures[page.relative_to(built_site).as_posix()] = shared["og:image"]
        assert shared["og:url"] == ADDRESS + page.relative_to(built_site).as_posix()
        title = unescape(re.search(r"<title>(.*?)</title>", page.read_text("utf-8"))[1])
        assert title.removesuffix(" · Proofbook") == shared["og:title"]
        assert len(shared["og:description"]) > 20
    assert pictures["topics/ddp/learn.html"] == f"{ADDRESS}assets/pictures/ddp.png"
    paths = [built_site / one.removeprefix(ADDRESS) for one in {*pictures.values()}]
    assert {path.read_bytes()[:8] for path in paths} == {b"\x89PNG\r\n\x1a\n"}
    assert len(paths) > 6


def test_the_zip_holds_the_site(built_site):
    with zipfile.ZipFile(built_site.with_name("proofbook.zip")) as packed:
        files = [entry for entry in packed.infolist() if not entry.is_dir()]
        inside = {one.filename.removeprefix("book/"): packed.read(one) for one in files}
    assert inside == {
        path.relative_to(built_site).as_posix(): path.read_bytes()
        for path in built_site.rglob("*")
        if path.is_file()
    }


@pytest.mark.browser
def test_a_wrong_address_under_a_subpath_has_styles_links_and_the_search(built_site, browser):
    """A server shows the 404 page for what is not there."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    lost = []

    def answer(route):
        path = built_site / route.request.url.removeprefix(ADDRESS).partition("?")[0]
        if path.is_file():
            return route.fulfill(path=path)
        lost.append(route.request.url)
        return route.fulfill(path=built_site / "404.html", status=404)

    page.route("**", answer)
    nowhere = f"{ADDRESS}topics/no/such/page.html"
    page.goto(nowhere)
    assert page.locator("h1").inner_text() == "This page does not exist"
    page.locator(".md-search__input").fill("gradients")
    page.keyboard.press("End")  # the search listens to keys
    first = page.locator(".md-search-result__link").first
    first.wait_for()
    found = first.evaluate("link => link.href")
    assert found.startswith(ADDRESS)
    page.goto(found)
    page.locator(".pb-sections a", has_text="Evidence").click()
    page.wait_for_url(f"{ADDRESS}evidence.html")
    assert lost == [nowhere]
    page.close()
