"""The index of the search: what stands in which section, in parts that a browser loads on demand.

Flow: the entries that Material made of what pages tell it (`pages/facts.py`) in, with the synonyms
and leads of `content/glossary.yml`; scripts for `site/html/search` out, since a page from disk may
load scripts and nothing else. `assets/search.js` adds up in the browser what is written here.

Sections are ranked by BM25F (Robertson, Zaragoza, Taylor, 2004): a rare word counts more than a
common one, and each field has a weight and a share in which its length counts.

    index.js         the rules of words, and the first word or section of each part
    words-0.js …     word → [weight, [section, score, …], [[section, score, other words], …]]
    sections-0.js …  the place, titles and text of each section
"""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from html import unescape
from itertools import chain
from typing import Any

from proofbook.generator.content.glossary import GlossaryFile, Term
from proofbook.generator.printing.markdown import plain

Entry = Mapping[str, Any]  # of Material's index
Found = dict[int, float]  # by the number of a section, the score that a word gives it

# How words are read here and in search.js: regular expressions that mean the same in both languages.
RULES: dict[str, Any] = {
    "word": r"[A-Za-z0-9]+(?:(?:[-_'’]+|(?:\.(?=\d)))[A-Za-z0-9]+)*",
    "within": r"[-_.'’]+|(?<=[a-z]{2})(?=[A-Z])",  # all_reduce and DeviceMesh have two words each
    "number": r"^\d+\.[\d.]*$|^\d{4,}$",  # what runs measured; nobody searches it
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
    "text": (1.0, 0.6),
    "text_synonyms": (0.7, 0.2),
    "above": (2.0, 0.3),  # the titles of a section's page and topic
}
SATURATION = 6.0  # weighted count of a word that gives it half of its score
KIND = 0.2  # the power of the boost that `pages/compose.py` gives each kind of page
COMMON = 0.8  # the share of sections with a word from which on it says nothing
LEAD, NAME = 2.5, 0.3  # what its words count for more where a lead, or a term's name, is typed
ASKS = ("what", "mean", "define")  # beside a name: then the term is asked for, as by a lead
SCALE = 10  # scores are written as whole numbers
BYTES_OF_WORDS, BYTES_OF_SECTIONS = 12_000, 6_000  # of a part, uncompressed

_BLOCK = re.compile(r"</?(?:p|li|ol|ul|pre)>")
_WORD, _WITHIN, _NUMBER = (re.compile(RULES[name]) for name in ("word", "within", "number"))
_ENDINGS = [
    (re.compile(pattern, re.ASCII), kept.replace("$", "\\")) for pattern, kept in RULES["endings"]
]


@dataclass
class Section:
    """A section as the search shows it, and the words of its fields."""

    location: str
    title: str
    text: str
    page: str  # the title of its page
    place: str  # topic and mode of the page
    kind: str = ""  # a statement or a figure
    factor: float = 1.0
    leads: list[tuple[str, float]] = field(default_factory=list)  # each with its weight
    words: dict[str, Counter[str]] = field(default_factory=dict)

    @property
    def shown(self) -> list[str]:
        """What the browser shows of it."""
        return [self.location, self.title, self.text, self.kind, self.page, self.place]


def _stem(word: str) -> str:
    word = word.lower()
    for pattern, kept in _ENDINGS:
        word = pattern.sub(kept, word)
    return word


@lru_cache(maxsize=20_000)
def words(text: str) -> Sequence[tuple[str, list[str]]]:
    """Each word of a text without its ending, joined, with its parts where it has several."""
    return [_read(word) for word in _WORD.findall(text) if not _NUMBER.match(word)]


@lru_cache(maxsize=None)
def _read(word: str) -> tuple[str, list[str]]:
    parts = [_stem(part) for part in _WITHIN.split(word)]
    return _stem(re.sub(r"[-_.'’]", "", word)), parts if parts[1:] else []


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
        said = _single(text)
        for place, word in enumerate(said):
            for phrase, number, form in self.known.get(word, ()):
                if said[place : place + len(phrase)] == phrase:
                    present[number].add(form)
        others = (form for number in present for form in {*self.groups[number]} - present[number])
        return Counter(chain.from_iterable(map(_all, sorted(others))))


def names(terms: Iterable[Term]) -> dict[str, list[tuple[str, float]]]:
    """By the address of each term of the glossary, its names, also as somebody asks for them."""
    return {
        f"glossary.html#term-{term.id}": [
            *((name, NAME) for name in term.spellings),
            *((f"{asks} {name}", LEAD) for name in term.spellings for asks in ASKS),
        ]
        for term in terms
    }


def sections(
    entries: Sequence[Entry], glossary: GlossaryFile, terms: Sequence[Term], says: Mapping[str, Any]
) -> list[Section]:
    """The sections of Material's entries; `says` are the words of ui.yml."""
    synonyms = Synonyms([*glossary.synonyms, *(term.alike for term in terms)])
    named = names(terms)
    titles = {entry["location"]: _plain(entry["title"]) for entry in entries}
    found = []
    for entry in entries:
        location, title = entry["location"], titles[entry["location"]]
        page, _, anchor = location.partition("#")
        folder, _, name = page.rpartition("/")
        topic = titles.get(f"{folder}/index.html", "") if folder.startswith("topics/") else ""
        mode = says["modes"].get(name.removesuffix(".html").partition("-")[0])
        place = f"{topic} · {mode}" if topic and mode else ""
        own = Section(location, title, _plain(entry["text"]), titles.get(page, title), place)
        # Such a title would read among results as an answer of the book.
        is_statement = page == "retracted.html" and title.endswith(".")
        if anchor and (is_statement or title.startswith("\N{LEFT DOUBLE QUOTATION MARK}")):
            own.kind = says["search"]["statement"]
        elif anchor.startswith("figure-"):
            own.kind = says["search"]["figure"]
        own.factor = entry.get("boost", 1.0) ** KIND
        leads = [*glossary.leads.get(location, ())]
        if folder == "machines":
            leads.append(name.removesuffix(".html"))
        own.leads = [*((lead, LEAD) for lead in leads), *named.get(location, ())]
        above = " ".join([own.page * bool(anchor), topic, own.kind * anchor.startswith("figure-")])
        own.words = {
            "title": _all(title),
            "title_synonyms": synonyms.of(title),
            "leads": _all(" . ".join(leads)),
            "text": _all(own.text),
            "text_synonyms": synonyms.of(own.text),
            "above": _all(above) + synonyms.of(above),
        }
        found.append(own)
    return found


def _plain(html: str) -> str:
    return " ".join(unescape(plain(_BLOCK.sub(" ", html))).split())


def scores(found: Sequence[Section]) -> dict[str, tuple[float, Found]]:
    """By word, its weight, which rare words have more of, and what it adds to a section."""
    counted: dict[str, Found] = defaultdict(lambda: defaultdict(float))
    for name, (weight, share) in FIELDS.items():
        lengths = [section.words[name].total() for section in found]
        mean = sum(lengths) / (sum(map(bool, lengths)) or 1)
        for number, (section, length) in enumerate(zip(found, lengths, strict=True)):
            for word, times in section.words[name].items():
                counted[word][number] += weight * times / (1 - share + share * length / mean)
    weighed = {}
    for word, of in counted.items():
        if len(of) <= COMMON * len(found) or len(of) == 1:
            rarity = math.log(1 + (len(found) - len(of) + 0.5) / (len(of) + 0.5))
            weighed[word] = (
                rarity,
                {
                    number: rarity * found[number].factor * count / (SATURATION + count)
                    for number, count in of.items()
                },
            )
    return weighed


Phrase = tuple[int, int, list[str]]  # a section, what it gains, and the other words of the phrase


def phrases(
    found: Sequence[Section], weighed: Mapping[str, tuple[float, Found]]
) -> dict[str, list[Phrase]]:
    """By the rarest word of each lead: the section that gains where all of its words are typed."""
    by_word = defaultdict(list)
    for number, section in enumerate(found):
        for lead, weight in section.leads:
            needed = {
                one
                for whole, parts in words(lead)
                for one in ([whole] if whole in weighed or not parts else parts)
            }
            if not needed or not needed <= weighed.keys():
                continue
            rarest, *others = sorted(needed, key=lambda word: (-weighed[word][0], word))
            gain = weight * sum(weighed[word][0] for word in needed)
            by_word[rarest].append((number, round(SCALE * gain), others))
    return by_word


def index(found: Sequence[Section]) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each script."""
    weighed = scores(found)
    led = phrases(found, weighed)
    written = []
    for word in sorted(weighed):
        weight, of = weighed[word]
        flat = [n for number in sorted(of) for n in (number, max(1, round(SCALE * of[number])))]
        written.append((word, _json([word, round(SCALE * weight), flat, led.get(word, [])])))
    starts: dict[str, list[str | int]] = {}
    shown = [(number, _json(section.shown)) for number, section in enumerate(found)]
    for kind, rows, limit in (
        ("words", written, BYTES_OF_WORDS), ("sections", shown, BYTES_OF_SECTIONS),
    ):  # fmt: skip
        starts[kind] = []
        for number, part in enumerate(_parts(rows, limit)):
            starts[kind].append(part[0][0])
            rows_of = ",\n".join(row for _, row in part)
            yield f"{kind}-{number}.js", f'proofbookSearch("{kind}-{number}",[{rows_of}])\n'
    yield "index.js", f'proofbookSearch("index",{_json({**RULES, **starts})})\n'


def _parts(rows: Sequence[tuple[Any, str]], limit: int) -> Iterator[list[tuple[Any, str]]]:
    part: list[tuple[Any, str]] = []
    size = 0
    for row in rows:
        if part and size + len(row[1]) > limit:
            yield part
            part, size = [], 0
        part.append(row)
        size += len(row[1])
    if part:
        yield part


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
