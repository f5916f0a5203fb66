"""The index of the search: what stands in which section, in parts that a browser loads on demand.

Flow: the entries that Material made of what pages tell it (`pages/facts.py`) in, with the synonyms
and leads of `content/glossary.yml`; scripts for `site/html/search` out, since a page from disk may
load scripts and nothing else. `assets/search.js` adds up in the browser what is written here.

Sections are ranked by BM25F (Robertson, Zaragoza, Taylor, 2004): a rare word counts more than a
common one, and each field has a weight and a share in which its length counts.

    index.js         the rules of words, and the first word or section of each part
    words-0.js …     rows [word, weight, [[section, score], …], [[section, gain, other words], …]]
    sections-0.js …  rows [address, title, text, kind, title of the page, topic and mode]
"""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from html import unescape
from itertools import accumulate, chain, groupby
from typing import Any, NamedTuple

from proofbook.generator.content.book import Book
from proofbook.generator.kinds.glossary.glossary import Glossary
from proofbook.generator.pages.facts import BEHIND
from proofbook.generator.printing.folio import interface_words
from proofbook.generator.printing.markdown import plain

Entry = Mapping[str, Any]  # of Material's index
Scores = dict[int, float]  # by the number of a section, the score that a word gives it

# How words are read, here and in search.js: these mean the same in both languages.
RULES: dict[str, Any] = {
    "word": r"[A-Za-z0-9]+(?:(?:[-_'’]+|(?:\.(?=\d)))[A-Za-z0-9]+)*",
    "within": r"[-_.'’]+|(?<=[a-z]{2})(?=[A-Z])|(?<=\d)x(?=\d)",  # DeviceMesh, 4x8: two words
    "number": r"^\d+\.[\d.]*$|^\d{4,}$|^(?:vs|how|does|works?)$",  # measured, or says nothing
    "endings": [  # `averaged` finds `average`, and `optimiser` finds `optimizer`
        [r"^(\w{2,}(?:ch|sh|ss|x))es$", "$1"],
        [r"^(\w{2,}[^\Ws])s$", "$1"],
        [r"^(\w{4,})i[sz](?:e[drs]?|ers|ing|ations?)$", "$1"],
        [r"^(\w{3,}?)([bdgmnprt])\2(?:ing|ed|ers?)$", "$1$2"],
        [r"^(\w{5,}?)(?:ing|ed|ers?|ations?|isms?)$", "$1"],
        [r"^(\w{5,})e$", "$1"],
    ],
}
FIELDS = {  # by field, what a word counts there, and the share in which the field's length counts
    "title": (8.0, 0.75),
    "title_synonyms": (5.0, 0.3),
    "leads": (8.0, 0.1),
    "text": (2.2, 0.4),
    "text_synonyms": (0.7, 0.2),
    "behind": (0.7, 0.6),  # what waits for an answer, and programs: it finds, and is not shown
    "above": (2.0, 0.3),  # the titles of a section's page and topic
}
SATURATION = 6.0  # weighted count of a word that gives it half of its score
ROW = 0.7  # what a row of a table counts beside a section: few words make it look exact
KIND = 0.2  # the power of the boost that `PageKind` gives each kind of page
LEAD, NAME = 3.5, 0.3  # what its words count for more where a lead, or a term's name, is typed
ASKS = ("what", "mean", "define")  # beside a name: then the term is asked for, as by a lead
SCALE = 10  # scores are written as whole numbers
BYTES = {"words": 12_000, "sections": 6_000}  # of a part, uncompressed

_BLOCK = re.compile(r"</?(?:p|li|ol|ul|pre)>")
_WORD, _WITHIN, _NUMBER = (re.compile(RULES[name]) for name in ("word", "within", "number"))
_ENDINGS = [
    (re.compile(pattern, re.ASCII), kept.replace("$", "\\")) for pattern, kept in RULES["endings"]
]


class Section(NamedTuple):
    """A section: what the browser shows of it, and what finds it."""

    shown: list[str]  # address, title, text, kind; the title of its page, topic and mode of that
    fields: dict[str, Counter[str]]  # the words of each field
    factor: float
    leads: list[tuple[str, float]]  # each with its weight


def _stem(word: str) -> str:
    word = word.lower()
    for pattern, kept in _ENDINGS:
        word = pattern.sub(kept, word)
    return word


@lru_cache(maxsize=20_000)
def words(text: str) -> Sequence[tuple[str, list[str]]]:
    """Each word of a text without its ending, joined, with its parts where it has several."""
    return [_read(word) for word in _WORD.findall(text) if not _NUMBER.match(word)]


@cache
def _read(word: str) -> tuple[str, list[str]]:
    parts = [_stem(part) for part in _WITHIN.split(word)]
    return _stem(re.sub(r"[-_.'’]", "", word)), parts if parts[1:] else []


@lru_cache(maxsize=20_000)
def _all(text: str) -> Counter[str]:
    return Counter(chain.from_iterable((whole, *parts) for whole, parts in words(text)))


def _single(text: str) -> list[str]:
    return [one for whole, parts in words(text) for one in parts or [whole]]


class Synonyms:
    """Groups of words and phrases that mean the same."""

    def __init__(self, groups: Iterable[Sequence[str]]) -> None:
        self.groups = list(groups)
        self.known: dict[str, list[tuple[list[str], int, str]]] = defaultdict(list)
        for number, group in enumerate(self.groups):
            for form in group:
                self.known[_single(form)[0]].append((_single(form), number, form))

    def of(self, text: str) -> Counter[str]:
        """The words of what means the same as phrases of a text, but does not stand in it."""
        present: dict[int, set[str]] = defaultdict(set)
        spoken = _single(text)
        for place, word in enumerate(spoken):
            for phrase, number, form in self.known.get(word, ()):
                if spoken[place : place + len(phrase)] == phrase:
                    present[number].add(form)
        others = (form for number in present for form in {*self.groups[number]} - present[number])
        return Counter(chain.from_iterable(map(_all, sorted(others))))


def files(book: Book, entries: Sequence[Entry]) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each script; a lead to nowhere as ("", what is wrong)."""
    glossary = book.part(Glossary)
    for lost in sorted(glossary.file.leads.keys() - {one["location"] for one in entries}):
        yield "", f"glossary.yml leads to {lost!r}, which the site does not have"
    for name, text in index([*sections(entries, glossary, interface_words())]):
        yield f"search/{name}", text


def sections(
    entries: Sequence[Entry], glossary: Glossary, says: Mapping[str, Any]
) -> Iterator[Section]:
    """The sections of Material's entries; `says` are the words of ui.yml."""
    synonyms = Synonyms([*glossary.file.synonyms, *(term.alike for term in glossary.terms)])
    named = {f"glossary.html#term-{term.id}": term.spellings for term in glossary.terms}
    titles = {entry["location"]: _plain(entry["title"]) for entry in entries}
    for entry in entries:
        location, title, text = entry["location"], *map(_plain, (entry["title"], entry["text"]))
        text, _, behind = map(str.strip, text.partition(BEHIND))
        page, _, anchor = location.partition("#")
        folder, _, name = page.rpartition("/")
        topic = titles.get(f"{folder}/index.html", "") if folder.startswith("topics/") else ""
        mode = says["modes"].get(name.removesuffix(".html").partition("-")[0])
        # Such a title would read among results as an answer of the book.
        is_statement = page == "retracted.html" and title.endswith(".")
        is_statement |= title.startswith("\N{LEFT DOUBLE QUOTATION MARK}")
        figure = says["search"]["figure"] if anchor.startswith("figure-") else ""
        kind = says["search"]["statement"] if anchor and is_statement else figure
        place = (
            " · ".join(filter(None, (topic, mode))) if topic else titles.get(f"{folder}.html", "")
        )
        of_page = titles.get(page, title)
        above = " ".join([of_page if anchor else "", topic, figure])
        leads = glossary.file.leads.get(location, ())
        fields = {
            "title": _all(title),
            "title_synonyms": synonyms.of(title),
            "leads": _all(" . ".join(leads)),
            "text": _all(text),
            "text_synonyms": synonyms.of(text),
            "behind": _all(behind),
            "above": _all(above) + synonyms.of(above),
        }
        weighed = [(lead, LEAD) for lead in leads]
        for spelling in named.get(location, ()):
            weighed += [(spelling, NAME), *((f"{asks} {spelling}", LEAD) for asks in ASKS)]
        shown = [location, title, text, kind, of_page, place]
        factor = entry.get("boost", 1.0) ** KIND * (ROW if anchor.startswith("row-") else 1.0)
        yield Section(shown, fields, factor, weighed)


def _plain(html: str) -> str:
    return " ".join(unescape(plain(_BLOCK.sub(" ", html))).split())


def scores(listed: Sequence[Section]) -> dict[str, tuple[float, Scores]]:
    """By word, its weight, which rare words have more of, and what it adds to a section."""
    counted: dict[str, Scores] = defaultdict(lambda: defaultdict(float))
    for name, (weight, share) in FIELDS.items():
        lengths = [section.fields[name].total() for section in listed]
        mean = sum(lengths) / (sum(map(bool, lengths)) or 1)
        for number, (section, length) in enumerate(zip(listed, lengths, strict=True)):
            for word, times in section.fields[name].items():
                counted[word][number] += weight * times / (1 - share + share * length / mean)
    weighed = {}
    for word, of in counted.items():
        rarity = math.log(1 + (len(listed) - len(of) + 0.5) / (len(of) + 0.5))
        saturated = {
            at: listed[at].factor * count / (SATURATION + count) for at, count in of.items()
        }
        weighed[word] = rarity, {at: rarity * share for at, share in saturated.items()}
    return weighed


Lead = tuple[int, int, list[str]]  # a section, what it gains, and the other words of the lead


def _leads(
    listed: Sequence[Section], weighed: Mapping[str, tuple[float, Scores]]
) -> dict[str, list[Lead]]:
    """By the rarest word of each lead: the section that gains where all of its words are typed."""
    by_word = defaultdict(list)
    for number, section in enumerate(listed):
        for lead, weight in section.leads:
            read = (
                [whole] if whole in weighed or not parts else parts for whole, parts in words(lead)
            )
            needed = {*chain.from_iterable(read)}
            if needed and needed <= weighed.keys():
                ranked = sorted(needed, key=lambda word: (-weighed[word][0], word))
                gain = weight * sum(weighed[word][0] for word in ranked)
                by_word[ranked[0]].append((number, round(SCALE * gain), ranked[1:]))
    return by_word


def index(listed: Sequence[Section]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each script."""
    weighed = scores(listed)
    leads = _leads(listed, weighed)
    rows: dict[str, list[tuple[str | int, str]]] = {"words": [], "sections": []}
    for word, (weight, of) in sorted(weighed.items()):
        scored = [(number, max(1, round(SCALE * of[number]))) for number in sorted(of)]
        row = [word, round(SCALE * weight), scored, leads.get(word, [])]
        rows["words"].append((word, _json(row)))
    rows["sections"] = [(number, _json(section.shown)) for number, section in enumerate(listed)]
    starts: dict[str, list[str | int]] = {kind: [] for kind in rows}
    for kind, limit in BYTES.items():
        parts = (size // limit for size in accumulate(len(row) for _, row in rows[kind]))
        grouped = groupby(zip(parts, rows[kind], strict=True), lambda pair: pair[0])
        for number, (_, part) in enumerate(grouped):
            keys, texts = zip(*(row for _, row in part), strict=True)
            starts[kind].append(keys[0])
            lines = ",\n".join(texts)
            yield f"{kind}-{number}.js", f'proofbookSearch["{kind}-{number}"]=[\n{lines}]\n'
    yield "index.js", f"proofbookSearch.index={_json({**RULES, **starts})}\n"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
