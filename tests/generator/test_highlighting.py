"""Code in colours: the text stays as it is, and no colour goes on in another line."""

from __future__ import annotations

from html.parser import HTMLParser

from generator.pages.views.listing import highlighted_lines

CODE = '"""A program\nwith a < b in its head.\n"""\n\nimport time  # now\n\nprint("a & b")\n'


class Depth(HTMLParser):
    """How many elements are open."""

    depth = 0

    def handle_starttag(self, tag, attrs):
        self.depth += 1

    def handle_endtag(self, tag):
        self.depth -= 1


def test_each_line_closes_what_it_opens():
    lines = highlighted_lines(CODE)
    assert sum("<span" in line for line in lines) >= 5
    for line in lines:
        depth = Depth()
        depth.feed(line)
        assert depth.depth == 0, line
