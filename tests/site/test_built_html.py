"""Built pages, without a browser: where links lead and numbers stand, what may run, and weighs."""

import gzip
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.conftest import ROOT
from tests.popovers import popovers_of
from tests.site.html_reading import Reading, Tag, leads_to, pages, read


@pytest.fixture(scope="module")
def readings(built_site: Path) -> dict[Path, Reading]:
    return {path.resolve(): read(path) for path in pages(built_site)}


def _inside(link: str) -> bool:
    return not urlsplit(link).scheme and not link.startswith("//")


@cache
def _target(page: Path, link: str) -> tuple[Path, str]:
    parts = urlsplit(link)
    path = (page.parent / unquote(parts.path)).resolve() if parts.path else page
    return (path / "index.html" if path.is_dir() else path), parts.fragment


def test_every_link_leads_to_a_file_and_an_anchor_that_exist(readings):
    broken = []
    for page, reading in readings.items():
        for link in filter(_inside, reading.links):
            target, anchor = _target(page, link)
            if not target.is_file():
                broken.append(f"{page.name}: {link}")
            elif anchor and target in readings and anchor not in readings[target].ids:
                broken.append(f"{page.name}: {link} has no such anchor")
    assert not broken


@pytest.mark.parametrize("site", ["built_site", "frozen_site"])
def test_every_address_is_relative_or_has_an_allowed_scheme(site, request):
    every = [tag for page in pages(request.getfixturevalue(site)) for tag in read(page).tags]
    names = ("href", "src", "xlink:href", "action", "formaction")
    found = {urlsplit(tag.attributes[name]).scheme for tag in every for name in names
             if name in tag.attributes and tag.attributes.get("rel") != "canonical"}  # fmt: skip
    assert "" in found
    assert found <= {"", "https", "mailto"}


def test_a_page_draws_a_figure_once(built_site):
    """Recall asks one question at a time, each beside what it is about."""
    drawn_again = [
        path.name
        for path in pages(built_site)
        if path.name != "recall.html"
        and any(num > 1 for num in Counter(_drawings(path.read_text())).values())
    ]
    assert drawn_again == []


def _drawings(page: str) -> list[str]:
    """The shapes of each narrow drawing, without its titles and what they say."""
    found = re.findall(r'<svg class="pb-drawing pb-narrow[^>]*>(.*?)</svg>', page, re.DOTALL)
    return [re.sub(r"<(title|desc) id.*?</\1>|data-say=\"[^\"]*\"", "", one) for one in found]


def test_every_page_is_reached_by_links_from_home(built_site, readings):
    home = (built_site / "index.html").resolve()
    reached, waiting = set(), [home]
    while waiting:
        page = waiting.pop()
        if page in reached:
            continue
        reached.add(page)
        links = (_target(page, link)[0] for link in filter(_inside, readings[page].links))
        waiting += [target for target in links if target in readings]
    assert reached == set(readings)


@pytest.mark.parametrize(
    ("lists", "pattern"), [("labs", "topics/*/lab-*.html"), ("teach", "topics/*/index.html")]
)
def test_a_page_that_lists_labs_or_topics_names_all(built_site, readings, lists, pattern):
    page = (built_site / f"{lists}.html").resolve()
    linked = {_target(page, link)[0] for link in filter(_inside, readings[page].links)}
    listed = {path.resolve() for path in built_site.glob(pattern)}
    assert listed
    assert listed <= linked


def test_no_two_pages_have_one_title(readings):
    titles = defaultdict(list)
    for page in readings:
        title = re.search(r"<title>(.*?)</title>", page.read_text(encoding="utf-8"))[1]
        titles[title].append(page.name)
    assert {title: names for title, names in titles.items() if len(names) > 1} == {}


def test_every_value_opens_to_its_provenance(readings):
    num_opened = 0
    for page, reading in readings.items():
        sources = popovers_of(page.read_text(encoding="utf-8"))
        for tag in reading.tags:
            opens = tag.attributes.get("data-v")
            if opens is not None:
                one = sources[int(opens)]
                of_a_claim = one.kind == "stated" and "#claim-" in tag.attributes.get("href", "")
                assert one.formula or (one.source and one.on) or of_a_claim, (page, tag)
                num_opened += 1
    assert num_opened > 100


# Where a digit may stand: in a value that opens, in what it opens to, in code, in a formula, in a
# drawing whose numbers stand in a table, in the foot, in what is cited, and in labels that count.
NUMBERS_MAY_STAND_IN = frozenset(["pb-value", "pb-label", "pb-foot", "pb-cited", "pb-given"])
EXEMPT_TAGS = frozenset(["code", "math", "pre", "svg", "script", "style", "title"])
LABEL = re.compile(r"\b(?:rank|step|epoch|stage|layer)s?[\s\u00a0]\d+\b", re.IGNORECASE)
# fp32, A100, FSDP2; 1F1B and 3D; Llama 3.1 8B, 1.5B. Not x10, 10ms or 2GB.
NAME = re.compile(
    r"\bLlama\s\d(?:\.\d)?\b|\b\d+(?:\.\d+)?B\b"
    r"|\b(?![xX]\d)[A-Za-z]+[A-Za-z_-]*\d[\w.-]*|\b(?:\d[A-Z]){2}\b|\b\dD\b"
)


def _is_exempt(ancestors: tuple[Tag, ...]) -> bool:
    return any(tag.name in EXEMPT_TAGS or tag.classes & NUMBERS_MAY_STAND_IN for tag in ancestors)


def bare_numbers(reading: Reading) -> list[str]:
    """Texts of the article that hold a digit outside every place where one may stand."""
    found = []
    for text, ancestors in reading.texts:
        if not any(tag.name == "article" for tag in ancestors) or _is_exempt(ancestors):
            continue
        if re.search(r"\d", NAME.sub("", LABEL.sub("", text))):
            found.append(text.strip())
    return found


VERBATIM = {"script", "style", "pre", "code"}


def faults(page: Path, reading: Reading) -> Iterator[str | Tag]:
    """What no page may have."""
    html = page.read_text(encoding="utf-8")
    if html.index("Content-Security-Policy") > html.index("<script"):
        yield "a script before the policy that governs it"
    ids = Counter(tag.attributes["id"] for tag in reading.tags if "id" in tag.attributes)
    yield from (f"twice: id {name}" for name, num in ids.items() if num > 1)
    yield from (inner for _, inner in reading.nested)  # a link or button in another
    for tag in reading.tags:
        if any(name == "style" or name.startswith("on") for name in tag.attributes):
            yield tag  # styled or scripted inline
        urls = (tag.attributes.get(name, "") for name in ("src", "href", "srcset", "action"))
        is_name = tag.attributes.get("rel") == "canonical"  # of the page itself; nothing is loaded
        loads = tag.name != "a" and not is_name
        if loads and any(re.match(r"(?:https?:)?//", url) for url in urls):
            yield tag  # points to another host, and no reader chose to follow it
    tables = re.findall(r"<thead>.*?</table>", html, re.DOTALL)
    yield from (table for table in tables if table.count("<tr") < 2)  # a head and no row
    yield from bare_numbers(reading)  # without their kind
    yield from (
        text
        for text, within in reading.texts
        if "`" in text and VERBATIM.isdisjoint(tag.name for tag in within)
    )


def test_no_page_has_what_none_may_have(readings):
    found = {page: list(faults(page, reading)) for page, reading in readings.items()}
    assert {page.name: some[:3] for page, some in found.items() if some} == {}


LEVELS = ("h1", "h2", "h3", "h4", "h5", "h6")


def test_headings_link_to_themselves_and_skip_no_level(readings):
    without, num_linked = [], 0
    for page, reading in readings.items():
        levels = [int(tag.name[1]) for tag in reading.tags if tag.name in LEVELS]
        assert all(lower <= upper + 1 for upper, lower in pairwise(levels)), page
        for text, within in reading.texts:
            heading = [one for one in within if one.name in LEVELS[1:]]
            link = [one.attributes["href"] for one in within if one.name == "a"]
            if heading and not (link and link[0][0] == "#" and link[0][1:] in reading.ids):
                without.append((page, text))
            num_linked += bool(heading)
    assert without == []
    assert num_linked > 1000


def test_a_figure_calls_a_run_by_its_strategy_only_where_it_is_that(built_site):
    """`summed` of `hangs` is an all-reduce of vectors, that of `batch_parts` a sum by mistake."""
    topics = built_site / "topics"
    summed = topics / "multi-gpu" / "deep-sum-or-mean-of-the-gradients.html"
    assert "all-reduce of vectors" not in summed.read_text()
    assert "DDP, training" in (topics / "ddp" / "why.html").read_text()


# --- what a page may weigh

LESSON_ELEMENTS, LESSON_BYTES = 6_000, 266_240
PAGE_ELEMENTS = 15_000  # the evidence of all programs grows with each topic
JS_BYTES, JS_BYTES_WITHOUT_ITEM, CSS_BYTES = 16_384, 8_192, 9_728  # as gzip packs them
HOME_BYTES = 100_000  # all that home loads, the theme's files included
NOT_OURS = ("javascripts", "stylesheets")  # of the theme


def _loaded(page: Path, reading: Reading, suffix: str) -> set[Path]:
    """The scripts or style sheets that a page loads."""
    return {
        (page.parent / link).resolve()
        for tag in reading.tags
        for link in [tag.attributes.get("src" if suffix == ".js" else "href", "")]
        if tag.name in ("script", "link") and link.endswith(suffix)
    }


@cache
def _packed(path: Path) -> int:
    return len(gzip.compress(path.read_bytes(), 9))


def _gzipped(paths: Iterable[Path]) -> int:
    return sum(map(_packed, paths))


def test_drawings_of_questions_are_light_and_so_is_home(built_site, readings):
    asked = "".join(path.read_text(encoding="utf-8") for path in built_site.rglob("recall.html"))
    figures = re.findall(r'<figure class="pb-exhibit">.*?</figure>', asked, re.DOTALL)
    assert len(figures) >= 2
    assert max(map(len, figures)) < 20_000
    home = (built_site / "index.html").resolve()
    assert not [tag for tag in readings[home].tags if tag.name in ("img", "iframe")]
    loaded = _loaded(home, readings[home], ".js") | _loaded(home, readings[home], ".css")
    assert len(loaded) > 5
    assert _gzipped({home, *loaded}) <= HOME_BYTES


def test_no_page_has_more_elements_bytes_script_or_style_than_it_may(built_site, readings):
    heavy = []
    assets = (built_site / "assets").resolve()
    of_the_theme = {one for name in NOT_OURS for one in (assets / name).rglob("*")}
    ours = set(assets.rglob("*")) - of_the_theme
    for page, reading in readings.items():
        is_lesson = page.parents[1].name == "topics" and page.name != "index.html"
        asks = any("pb-item" in tag.classes for tag in reading.tags)
        script, style = (_loaded(page, reading, suffix) & ours for suffix in (".js", ".css"))
        assert script, page
        assert style, page
        for what, num, most in (
            ("elements", len(reading.tags), LESSON_ELEMENTS if is_lesson else PAGE_ELEMENTS),
            ("bytes", page.stat().st_size, LESSON_BYTES if is_lesson else math.inf),
            ("bytes of script", _gzipped(script), JS_BYTES if asks else JS_BYTES_WITHOUT_ITEM),
            ("bytes of style", _gzipped(style), CSS_BYTES),
        ):
            if num > most:
                heavy.append(f"{page}: {num} {what}, {most} allowed")
    assert not heavy


def test_a_page_loads_the_script_of_each_kind_that_it_asks(built_site, readings):
    num_checked = 0
    for script in ("pieces", "numbers"):
        text = (ROOT / f"generator/kinds/questions/assets/{script}.js").read_text(encoding="utf-8")
        kinds = set(re.findall(r"(\w+):", text.partition("KINDS, {")[2]))
        for page, reading in readings.items():
            asked = {tag.attributes.get("data-kind") for tag in reading.tags if tag.name == "form"}
            files = _loaded(page, reading, ".js")
            names = {name for path in files for name in path.stem.split("+")}
            if page.name != "recall.html":  # to which variants come, of any kind
                assert (script in names) == bool(kinds & asked), page
                num_checked += bool(kinds & asked)
    assert num_checked > 50


def test_whatever_led_into_deep_leads_on_from_its_overview(built_site):
    """Its pages were one: an address within it names a heading, a question or a figure of them."""
    named = re.compile(r'id="(item-[^"]+|figure-[^"]+)"|<h2 id="([^"]+)"')
    num_found = 0
    for overview in built_site.glob("topics/*/deep.html"):
        known = set(re.findall(r'id="([^"]+)"', overview.read_text(encoding="utf-8")))
        for page in overview.parent.glob("deep-*.html"):
            found = {a or b for a, b in named.findall(page.read_text(encoding="utf-8"))}
            assert found - known <= {"result"}, page
            num_found += len(found)
    assert num_found > 100


def test_the_guide_leads_to_each_reported_failure_in_two_clicks(built_site):
    """The first opens a symptom, the second its cause; each cause is shown, and says its fix."""
    symptoms = {link for link in read(built_site / "guide.html").links if link.startswith("guide/")}
    seconds = {
        link.removeprefix("../")
        for one in symptoms
        for link in read(built_site / one.partition("#")[0]).links
    }
    page = read(built_site / "reports.html")
    failures = [tag.attributes["id"] for tag in page.tags if tag.name == "h3" and tag.attributes]
    assert len(failures) > 15
    assert [one for one in failures if f"reports.html#{one}" not in seconds] == []


def test_the_guide_rules_out_five_causes_at_most_before_its_first_question(built_site):
    counts = []
    for page in built_site.glob("guide/*.html"):
        above, asks, _ = page.read_text(encoding="utf-8").partition('class="pb-edges"')
        assert asks, page
        counts.append(above.partition("Rule th")[2].count("<li"))
    assert max(counts) == 5


def test_each_reported_failure_says_its_cause_its_fix_and_where_it_was_reported():
    text = (ROOT / "content/pages/reports.md").read_text(encoding="utf-8")
    for section in text.split("\n### ")[1:]:
        title, said = section.split("\n", 1)
        assert "**Cause.**" in said, title
        assert "**Fix.**" in said, title
        assert re.search(r"\]\(https://|dmesg", said), title


# That readers may have kept: the pages and anchors of the site before its last topic.
ADDRESSES = json.loads((ROOT / "tests" / "site" / "addresses.json").read_text(encoding="utf-8"))


def test_every_page_and_anchor_that_the_site_had_still_resolves(built_site, readings):
    others = [one.name for one in (ROOT / "content" / "traces").iterdir()]  # not in the test's book
    others = [one for one in others if not (built_site / "machines" / f"{one}.html").is_file()]
    gone = []
    for name, all_anchors in ADDRESSES.items():
        if any(one in name for one in others):
            continue
        anchors = [a for a in all_anchors.split() if not any(one in a for one in others)]
        page = built_site / name
        if not page.is_file():
            gone.append(name)
            continue
        reading = readings.get(page.resolve()) or read(page)
        gone += [f"{name}#{one}" for one in anchors if one not in reading.ids]
        if target := leads_to(reading):
            assert target in [tag.attributes.get("href") for tag in reading.tags if tag.name == "a"]
            path, _, anchor = target.partition("#")
            assert anchor in read(page.parent / path).ids, f"{name} leads to {target}"
    assert gone == []
