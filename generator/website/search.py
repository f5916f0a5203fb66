"""What finds the entries of Material's search besides their words.

Flow: the entries that Material made of what pages tell it (`pages/facts.py`) in, with the synonyms
of `content/glossary.yml` out. Material's own search does the rest in the browser, over http and
from disk alike. How pages rank among each other stands in `generator/pages/compose.py`, how fields
weigh and which words are ignored in `mkdocs.yml`.

Material's search has no synonyms of its own. It searches every field that `mkdocs.yml` gives it,
and shows only title and text; so synonyms are fields of the index beside those two.
`assets/search-results.js` cuts endings off what is typed, puts what is found in order once more,
and knows leads, places and the terms of the glossary.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from proofbook.generator.printing.markdown import plain

Entry = dict[str, Any]
# By the first word of a phrase: the number of its group, the phrase, and what finds it in a text.
_Phrases = Mapping[str, Sequence[tuple[int, str, re.Pattern[str]]]]

_WORD = re.compile(r"[^\W_]+")
# Names that people also write in one word, ZeRO-3, or in several, SyncBatchNorm; and where.
_NAME = re.compile(r"\b[A-Za-z]{3,}-\d\b|\b\w*[a-z]{2}[A-Z][A-Za-z]\w*")
_WITHIN = re.compile(r"-|(?<=[a-z])(?=[A-Z])")


def add_words(entries: Sequence[Entry], groups: Iterable[Sequence[str]]) -> None:
    """Set on entries of Material's index synonyms of their words; words of a group mean the same.

    Each gets `title_synonyms` and `text_synonyms`, the other words for what its title and its text
    say, and in a lesson `above`, the titles of its page and its topic. Nobody sees these.
    """
    forms = list(groups)
    known = _by_first_word(forms)
    titles = {section["location"]: section["title"] for section in entries}
    for section in entries:
        if above := " ".join(_titles_above(section["location"], titles)):
            section["above"] = " ".join([above, *_synonyms_of(above, forms, known)])
        for name in ("title", "text"):
            section.pop(f"{name}_synonyms", None)
            words = plain(section[name].replace("<", " <"))
            if synonyms := dict.fromkeys(_synonyms_of(words, forms, known)):
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


def add_places(entries: Sequence[Entry], words: Mapping[str, Any]) -> None:
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
        # Other headings of the page of statements are no sentences.
        is_statement = location.startswith("retracted.html#") and title.endswith(".")
        is_quoted = "#" in location and title.startswith("\N{LEFT DOUBLE QUOTATION MARK}")
        if folder == "machines" and page.endswith(".html"):
            section["leads"] = [page.removesuffix(".html")]
        if topic and mode:
            section["place"] = f"{topic} · {mode}"
        elif is_statement or is_quoted:
            section["place"] = words["search"]["statement"]
        elif "#figure-" in location:
            section["place"] = words["search"]["figure"]
            section["above"] = f"{section.get('above', '')} {section['place']}".strip()
