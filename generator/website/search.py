"""What Material's search indexes: which parts of a page, and which other words find them.

Flow: the HTML of a page in, the part of it that the search may show out; then the entries that
Material made of it in, with the synonyms of `content/glossary.yml` out. Material's own search does
the rest in the browser, over http and from disk alike. How pages rank among each other stands in
`generator/pages/views/frame.py`, how fields weigh and which words are ignored in `mkdocs.yml`.

Material's search has no synonyms of its own. It searches every field that `mkdocs.yml` gives it,
and shows only title and text; so synonyms are fields of the index beside those two.
`assets/search-results.js` cuts endings off what is typed, puts what is found in order once more,
and knows leads, places and the terms of the glossary.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import unescape
from typing import Any

from generator.pages.elements.element import Heading

Entry = dict[str, Any]
InterfaceWords = Mapping[str, Any]  # of the interface
# By the first word of a phrase: the number of its group, the phrase, and what finds it in a text.
_Phrases = Mapping[str, Sequence[tuple[int, str, re.Pattern[str]]]]

_TAG = re.compile(r"<[^>]+>")
_WORD = re.compile(r"[^\W_]+")
# Names that people also write in one word, ZeRO-3, or in several, SyncBatchNorm; and where.
_NAME = re.compile(r"\b[A-Za-z]{3,}-\d\b|\b\w*[a-z]{2}[A-Z][A-Za-z]\w*")
_WITHIN = re.compile(r"-|(?<=[a-z])(?=[A-Z])")
_TOKEN = re.compile(r"<(/?)(\w+)[^>]*>|[^<]+")  # templates escape > in attributes
_VOID = frozenset({"br", "img", "input", "hr", "wbr", "source"})
_HEADING = re.compile(r'(<h[2-6]) id="([^"]+)"')
_FOUND = '<h3 class="pb-sentence"'  # a heading that the search shows, whatever is around it
# What a page holds, and what the search reads instead: nothing of what holds none of its kind; an
# entry of its own for a term, for a row with an anchor and for a figure to play with.
_REWRITTEN = (
    (re.compile(r"<(svg|annotation|select|noscript|pre|button|script)\b.*?</\1>", re.DOTALL), ""),
    (re.compile(r"</(?:dt|dd|div|t[hd])>|<br>"), r"\g<0> "),  # where words would touch
    (re.compile(r'(<h\d[^>]*><a[^>]*>)<span class="pb-label">\d+</span>'), r"\1"),
    (re.compile(r'<dt (id="[^"]+").*?>(.*?)</dt>', re.DOTALL), r"<h3 \1>\2</h3>"),
    (
        re.compile(r'<tr (id="[^"]+")[^>]*>\s*<(t[hd])\b[^>]*>(.*?)</\2>', re.DOTALL),
        r"<tr><h3 \1>\3</h3>",
    ),
    (
        re.compile(
            r'(<figure class="[^"]*\bpb-play\b[^>]*?(id="[^"]+")[^>]*>\s*)'
            r"<figcaption.*?>(.*?)</figcaption>",
            re.DOTALL,
        ),
        rf"\1{_FOUND} \2>\3</h3>",
    ),
)
# What gives an answer away or waits for one, or is no text of a page: controls, code, numbers in
# cells, evidence. What else is folded is found, as readers find it.
_KEPT_OUT = re.compile(
    r"<[^>]*\bdata-(?:search-exclude|after)\b|<td[^>]*\bpb-number\b"
    r'|<[^>]*\bclass="[^"]*\bpb-(?:option|pieces|end|typed|sure|status|waits|listing'
    r"|listing-title|printed|suggestions|claim|sources|meta|eyebrow|level|controls|fields"
    r'|answer|hint|whole|backing|runs)[" ]'
)


def searchable_part(html: str, headings: Iterable[Heading]) -> str:
    """The HTML from `<h1>` on without controls, code and answers, for the search to index.

    Terms, rows with an anchor and titles of figures that readers play with become headings here, so
    that each is an entry of its own. Such a title names quantities and answers nothing, so it stays
    where its figure waits for an answer. A heading that no list shows is text of the one above.
    """
    html = html[max(html.find("<h1"), 0) :]
    texts = {heading.anchor for heading in headings if not heading.is_listed}
    html = _HEADING.sub(lambda tag: tag[1] if tag[2] in texts else tag[0], html)
    for pattern, instead in _REWRITTEN:
        html = pattern.sub(instead, html)
    parts, is_kept = [], [True]  # of each element that is open
    for token in _TOKEN.finditer(html):
        is_end, tag = token.groups()
        if tag in _VOID:
            continue
        if tag and not is_end:
            is_read = is_kept[-1] and not _KEPT_OUT.match(token[0])
            is_kept.append(is_read or token[0].startswith(_FOUND))
        if is_kept[-1] or tag == "figure":  # which ends the part of its heading
            parts.append(token[0])
        if is_end:
            is_kept.pop()
    return "".join(parts)


def add_words(entries: Sequence[Entry], groups: Iterable[Sequence[str]]) -> None:
    """Set on entries of Material's index synonyms of their words; words of a group mean the same.

    Each gets `title_synonyms` and `text_synonyms`, the other words for what its title and its text
    say, and in a lesson `above`, the titles of its page and its topic. Nobody sees these.
    """
    forms = list(groups)
    known = _by_first_word(forms)
    titles = {section["location"]: section["title"] for section in entries}
    for section in entries:
        above = " ".join(_titles_above(section["location"], titles))
        if above:
            section["above"] = " ".join([above, *_synonyms_of(above, forms, known)])
        for name in ("title", "text"):
            section.pop(f"{name}_synonyms", None)
            if synonyms := dict.fromkeys(
                _synonyms_of(unescape(_TAG.sub(" ", section[name])), forms, known)
            ):
                section[f"{name}_synonyms"] = ", ".join(synonyms)


def _by_first_word(groups: Iterable[Sequence[str]]) -> _Phrases:
    """Each phrase of some groups, by its first word; its words may be joined, its last a plural."""
    known: dict[str, list[tuple[int, str, re.Pattern[str]]]] = defaultdict(list)
    for number, group in enumerate(groups):
        for form in group:
            spelled = "[ _-]".join(map(re.escape, re.split(r"[\s_-]+", form.lower())))
            pattern = re.compile(rf"(?<!\w){spelled}s?(?!\w)")
            known[_WORD.findall(form.lower())[0]].append((number, form, pattern))
    return known


def _synonyms_of(text: str, groups: Sequence[Sequence[str]], known: _Phrases) -> Iterator[str]:
    """The words that mean the same as those of a text, but do not stand in it."""
    for name in dict.fromkeys(_NAME.findall(text)):
        yield _WITHIN.sub("" if "-" in name else " ", name)
    text = text.lower()
    words = set(_WORD.findall(text))
    words |= {word.removesuffix("s") for word in words}
    present: dict[int, set[str]] = defaultdict(set)
    for word in words & known.keys():
        for number, form, pattern in known[word]:
            if pattern.search(text):
                present[number].add(form)
    for number in sorted(present):
        yield from (form for form in groups[number] if form not in present[number])


def _titles_above(location: str, titles: Mapping[str, str]) -> Iterator[str]:
    """The titles of the page and of the topic that an entry belongs to."""
    page, _, anchor = location.partition("#")
    topic = f"{page.rpartition('/')[0]}/index.html"
    if page.startswith("topics/") and page != topic:
        yield from (titles.get(address, "") for address in ([page, topic] if anchor else [topic]))


def add_leads(
    entries: Iterable[Entry], leads: Mapping[str, Iterable[str]], field: str = "leads"
) -> Iterator[str]:
    """Set `field` of the entry at each address to its searches; yield addresses without an entry.

    The `field` is `leads` for words that lead there among others, `alone` for whole searches,
    `names` for those of a term, which bring it among the first two.
    """
    by_place = {section["location"]: section for section in entries}
    for location, searches in leads.items():
        if location in by_place:
            by_place[location][field] = list(searches)
        else:
            yield location


def add_places(entries: Sequence[Entry], words: InterfaceWords) -> None:
    """Set each entry's `place`: `topic · mode`, statement or figure; a machine's id is its lead.

    A title that is a sentence of others, quoted or on the page of statements, would read among
    results as an answer of the book. A search for the word for figures leads to all of them.
    """
    titles = {section["location"]: section["title"] for section in entries}
    for section in entries:
        location, title = section["location"], section["title"]
        folder, _, page = location.rpartition("/")
        topic = titles.get(f"{folder}/index.html") if folder.startswith("topics/") else None
        mode = words["modes"].get(page.removesuffix(".html").partition("-")[0])
        if folder == "machines" and page.endswith(".html"):
            section["leads"] = [page.removesuffix(".html")]
        if topic and mode:
            section["place"] = f"{topic} · {mode}"
        elif (location.startswith("retracted.html#") and title.endswith(".")) or (
            "#" in location and title.startswith("\N{LEFT DOUBLE QUOTATION MARK}")
        ):  # other headings of that page are no sentences
            section["place"] = words["search"]["statement"]
        elif "#figure-" in location:
            section["place"] = words["search"]["figure"]
            section["above"] = f"{section.get('above', '')} {section['place']}".strip()
