"""The ways into a topic: which modes, what each asks, how long it takes."""

from __future__ import annotations

import re

import pytest

from tests.generator import rendering

MARK = re.compile(r"^!?[a-z0-9-]+(:[0-9a-f]{12}){1,2}$")  # as proofbook.js reads them


@pytest.fixture(scope="module")
def rendered(book):
    return rendering.render(book)


def _links(html):
    return dict(re.findall(r'<a href="(?:[^"]*/)?(\w+)\.html" [^>]*data-items="([^"]*)"', html))


def test_a_link_carries_the_items_of_the_page_it_leads_to_with_the_digests_they_have_there(
    rendered, book
):
    seen = 0
    for topic in book.topics:
        links = _links(rendered[f"topics/{topic.id}/index.md"])
        assert list(links) == list(topic.lessons)
        for mode, marked in links.items():
            page = rendered[f"topics/{topic.id}/{mode}.md"]
            forms = re.findall(r'data-item="([^"]+)"[^>]* data-digest="([^"]+)"', page)
            assert all(MARK.match(one) for one in marked.split())
            again = topic.items_by_mode.get("recall", ())
            assert {one for one in marked.split() if one[0] != "!"} == {
                one for one in marked.split() if one.strip("!").split(":")[0] in again
            }
            current = {":".join(one.strip("!").split(":")[:2]) for one in marked.split()}
            assert current == {f"{name}:{digest}" for name, digest in forms}
            seen += len(forms)
    assert seen
