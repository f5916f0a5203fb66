"""One frame for all pages: edges, tables and headings, measured in the browser on real pages."""

import pytest

from tests.site.html_reading import pages

pytestmark = pytest.mark.browser
PAGES = (
    "index.html", "topics/index.html", "topics/*/*.html", "plan*.html", "plan/*.html",
    "evidence*.html", "evidence/*.html",
)  # fmt: skip
WIDTHS = (390, 1280)
PAPER = 718  # pixels of a sheet between its margins
MOST_SECTIONS, MOST_COLUMNS = 7, 8
ASKED = ("leaves", "misplaced", "scrolls", "clipped", "cut", "ofWords", "leavesHead")
MOST_SCROLLED = 40  # tables of the whole book that scroll on a phone
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
# Of what is open and shown: the left edges, the tables, the headings.
MEASURED = """() => {
    document.querySelectorAll('details').forEach(one => {
        one.removeAttribute('name');
        one.open = true;
    });
    document.querySelectorAll('[data-after]').forEach(one => { one.hidden = false });
    const shown = chosen => [...document.querySelectorAll(chosen)].filter(
        one => one.checkVisibility() && one.textContent.trim());
    const left = chosen => [...document.querySelectorAll(chosen)].find(
        one => one.checkVisibility())?.getBoundingClientRect().left;
    const said = one => one.textContent.trim().slice(0, 60);
    const leaves = cell => {
        const words = document.createRange(), box = cell.getBoundingClientRect();
        words.selectNodeContents(cell);
        const inside = words.getBoundingClientRect();
        // the ground of code reaches a pixel beyond its words
        return inside.right > box.right + 1.5 || inside.left < box.left - 1.5;
    };
    const cells = shown('article .pb-table :is(th, td)');
    const ends = cell => getComputedStyle(cell).textAlign === 'right';
    const stacked = table => innerWidth < 600 && table.matches('.pb-stacks');
    const numbers = table => stacked(table) ? [] : [...table.querySelectorAll('tbody .pb-number')];
    const misplaced = table => numbers(table).filter(cell => {
        const head = table.tHead.rows[0].cells[cell.cellIndex];
        return !ends(cell) || !table.querySelector('[colspan]') && !ends(head);
    });
    const narrower = box => box.scrollWidth > box.clientWidth + 1;
    const scrolled = shown('.pb-scroll').filter(narrower);
    // What is said in a cell is in the window; a name below 40 letters may scroll with its numbers.
    const cut = cell => cell.textContent.trim().length > 40 && !cell.matches('.pb-number') &&
        cell.getBoundingClientRect().right > innerWidth + 1;
    // Only numbers scroll, beside the choices of a figure's states, below a column that stays.
    const ofWords = box => !box.querySelector('.pb-states') &&
        box.querySelector('tbody td:not(.pb-number, :first-child, [data-label="Verdict"])');
    const leavesHead = box => {
        const head = box.querySelector('tbody tr > :first-child');
        const own = box.getBoundingClientRect();
        box.scrollLeft = 30;
        const left = head.getBoundingClientRect().left;
        box.scrollLeft = 0;
        return head.checkVisibility() && Math.abs(left - own.left) > 1;
    };
    return {
        edges: ['.md-header__button:first-child svg', '.md-header__title a', 'article h1',
            'article > :last-child', '.md-footer p'].map(left),
        leaves: cells.filter(leaves).map(said),
        misplaced: shown('.pb-table').flatMap(misplaced).map(said),
        cut: cells.filter(cut).map(said),
        ofWords: scrolled.filter(ofWords).map(said),
        leavesHead: scrolled.filter(leavesHead).map(said),
        scrolls: scrolled.map(box => [box.querySelector('tr').cells.length, said(box)]),
        clipped: scrolled.filter(box =>
            !/auto|scroll/.test(getComputedStyle(box).overflowX)).map(said),
        levels: [...document.querySelectorAll('article :is(h1, h2, h3, h4, h5, h6)')]
            .map(one => Number(one.tagName[1])),
    };
}"""


def _edges(found, width):
    """The left edges that have to be one: on a phone, a button stands before the site's name."""
    button, name, *others = found
    return [name if width > min(WIDTHS) else button, *others]


def test_pages_share_an_edge_tables_are_whole_and_headings_few(built_site, open_page):
    known = {path for one in PAGES for path in built_site.glob(one)}
    paths = sorted(known.intersection(pages(built_site)))
    page, wrong, num_cells, num_scrolled = open_page("about:blank"), [], 0, 0
    lefts = {width: set() for width in WIDTHS}
    for path in paths:
        page.goto(path.as_uri())
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 900})
            found = page.evaluate(MEASURED)
            edges = [one for one in _edges(found["edges"], width) if one is not None]
            lefts[width].update(map(round, edges))
            if max(edges) - min(edges) > 1:
                wrong.append((path.name, width, "edges", edges))
            num_scrolled += len(found["scrolls"]) if width == min(WIDTHS) else 0
            wide = [one for num, one in found["scrolls"] if num <= MOST_COLUMNS]
            found["scrolls"] = wide if width == max(WIDTHS) else []
            wrong += [
                (path.as_posix()[-40:], width, asked, found[asked][:3])
                for asked in ASKED
                if found[asked]
            ]
            levels = found["levels"]
            if max(levels) > 3 or levels.count(2) > MOST_SECTIONS:
                wrong.append((path.as_posix()[-40:], "headings", levels))
            num_cells += page.locator("article .pb-table td").count()
        page.emulate_media(media="print")
        page.set_viewport_size({"width": PAPER, "height": 900})
        if not page.evaluate(FITS):
            wrong.append((path.as_posix()[-40:], "wider than paper"))
        page.emulate_media(media="screen")
    apart = {width: one for width, one in lefts.items() if max(one) - min(one) > 1}
    assert apart == {}
    assert wrong == []
    assert num_scrolled <= MOST_SCROLLED
    assert len(paths) > 100
    assert num_cells > 5_000
