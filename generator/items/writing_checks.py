"""Checks of how an item is written: what gives a key away, and what teaches nothing.

In: an item as the reference machine shows it. Out: findings, each by a named rule, at a path that
starts at the item. An author who means it says so on the item, and why:

    accepts:
      negative_stem: the exception is what the text teaches

A rule that is accepted and does not fire, or that nobody knows, is itself a mistake. What shows
only over all items of a topic is in `quiz_balance.py`; what stands above an item, in
`given_away.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import combinations

from generator.content.errors import ContentError, nearest
from generator.content.quiz import FaultyLine, Item, Option, Order, Predict, believed
from generator.content.yaml_source import Path
from generator.evidence.value import Value, numeric
from generator.items.item_seen import Finding, Seen
from generator.items.keys import slack

Found = tuple[Path, str]
MAX_OPTIONS = 4
MIN_WORDS_OF_WHY = 3
CLEARLY_LONGER, CLEARLY_MORE = 1.4, 20  # times the longest wrong option, and characters more
NEAR = 0.05  # of the larger of two numbers
_ALL_OR_NONE = re.compile(
    r"\b(?:all|none|both|neither) of (?:the )?"
    r"(?:above|below|these|others|options|answers)\b|\bas well as the above\b",
    re.IGNORECASE,
)
_DENIES = r"(?:not|never|cannot|\w+n[’']t)"
_NEGATION = re.compile(rf"\b{_DENIES}\b", re.IGNORECASE)
_ASKED_AWAY = re.compile(  # not beyond "that", where a clause of its own begins
    rf"\b(?:what|who|where|when|which)\b(?:(?!\b(?:that|who)\b).)*?\b(?P<not>{_DENIES})\b"
    r"|\bwhich\b(?:(?!\bthat\b).)*?\b(?P<false>false|untrue|incorrect|wrong)\b"
    r"|\b(?P<except>except)\b",
    re.IGNORECASE,
)
_ABSOLUTE = re.compile(
    r"\b(?:always|never|only|impossible|completely|entirely|absolutely|guaranteed|"
    r"in (?:all|every|any) cases?|under no circumstances|no matter)\b",
    re.IGNORECASE,
)


def findings(one: Seen) -> list[Finding]:
    """Everything badly written in one item, accepted or not."""
    found = []
    for rule, check in RULES.items():
        with suppress(ContentError):  # an expression that fails is said where it is written
            found += [Finding(rule, path, message) for path, message in check(one)]
    return found


def judged(item: Item, found: Iterable[Finding], known: Iterable[str]) -> Iterator[Found]:
    """What remains of findings once the author's acceptances are applied, and what those lack.

    Args:
        item: the item that accepts.
        found: what fired on it, by these rules and by those over topics and pages.
        known: every rule that was tried.
    """
    fired = list(found)
    for finding in fired:
        if finding.rule not in item.accepts:
            how = f"if it is meant, say why: accepts: {{{finding.rule}: …}}"
            yield finding.path, f"{finding.message}; {how}"
    for rule, reason in item.accepts.items():
        path: Path = ("accepts", rule)
        if rule not in ALL_RULES:
            yield path, f"no rule of item writing is {rule!r}{nearest(rule, ALL_RULES)}"
        elif not reason.strip():
            yield path, f"say why {rule} is meant here"
        elif rule in known and all(finding.rule != rule for finding in fired):
            yield path, f"{rule} finds nothing here any more; delete this line"


def _all_or_none(one: Seen) -> Iterator[Found]:
    for place, text in enumerate(one.options):
        found = _ALL_OR_NONE.search(text)
        if found:
            message = f"{found[0]!r} tests who can combine options, and breaks when they are moved"
            yield ("options", place, "text"), f"{message}; say what the option stands for"


def _negative_stem(one: Seen) -> Iterator[Found]:
    sentences = re.split(r"(?<=[.!?…])\s+", " ".join(one.item.stem.split()))
    questions = [sentence for sentence in sentences if sentence.endswith(("?", "…", ":"))]
    for sentence in questions or sentences[-1:]:
        found = _ASKED_AWAY.search(sentence)
        if found and not (found["false"] and isinstance(one.item, FaultyLine)):
            word = found["not"] or found["false"] or found["except"]
            yield ("stem",), f"the question asks for what is {word!r}; ask for what is so"


def _key_longest(one: Seen) -> Iterator[Found]:
    if len(one.key.right) != 1 or not one.wrong:
        return
    place = one.key.right[0]
    key, longest = len(one.options[place]), max(len(one.options[other]) for other in one.wrong)
    if key > CLEARLY_LONGER * longest and key > longest + CLEARLY_MORE:
        message = f"the right option has {key} characters, the longest wrong one {longest}"
        yield ("options", place, "text"), f"{message}; shorten it, or move its reason to why:"


def _words(text: str) -> list[str]:
    return re.findall(r"[^\W_]+(?:[.,’'][^\W_]+)*", text.lower())


def _overlapping_options(one: Seen) -> Iterator[Found]:
    for (before, first), (after, second) in combinations(enumerate(map(_words, one.options)), 2):
        if first == second:
            message = f"reads like option {before + 1}: {one.options[before]!r}"
            yield ("options", after), f"{message}; let each say something of its own"
        elif _holds(first, second) or _holds(second, first):
            message = f"overlaps option {before + 1}: one says all that the other says"
            yield ("options", after), f"{message}, so both could be right; tell them apart"


def _holds(long: list[str], short: list[str]) -> bool:
    """Whether an option says another one word for word and goes on, without denying it."""
    if len(short) < 2 or len(short) >= len(long):
        return False
    for start in range(len(long) - len(short) + 1):
        if long[start : start + len(short)] == short:
            rest = long[:start] + long[start + len(short) :]
            return not _NEGATION.search(" ".join(rest))
    return False


def _twice_said(one: Seen) -> Iterator[Found]:
    """Pieces, left sides and rows that read alike."""
    for key, part in (("pieces", "text"), ("pairs", "left"), ("rows", "title")):
        said: dict[str, int] = {}
        for place, written in enumerate(getattr(one.item, key, ())):
            text = one.evidence.plain(getattr(written, part))
            above = said.setdefault(text.lower(), place)
            if above != place:
                yield (key, place, part), f"reads like the one above it: {text!r}; tell them apart"


def _absolutes(one: Seen) -> Iterator[Found]:
    if any(_ABSOLUTE.search(one.options[place]) for place in one.key.right if one.options):
        return
    for place in one.wrong:
        found = _ABSOLUTE.search(one.options[place])
        if found:
            message = f"{found[0]!r} stands in wrong options alone and gives them away"
            yield ("options", place, "text"), f"{message}; say it without"


def _unexplained_option(one: Seen) -> Iterator[Found]:
    """Answers whose explanation says nothing; a slip's name explains it."""
    for path, why, text in _explanations(one.item):
        words = _words(one.evidence.plain(why))
        if len(words) < MIN_WORDS_OF_WHY:
            message = f"{why!r} explains nothing"
            yield path, f"{message}; say what is so, with its evidence, and why"
        elif words == _words(one.evidence.plain(text)):
            yield path, "the explanation says the answer again; say why it is right or wrong"


def _explanations(item: Item) -> Iterator[tuple[Path, str, str]]:
    for key, part in (
        ("options", "text"),
        ("pieces", "text"),
        ("pairs", "left"),
        ("lines", "code"),
    ):
        for place, written in enumerate(getattr(item, key, ())):
            if written.why is not None and getattr(written, "slip", None) is None:
                text = getattr(written, part)
                yield (key, place, "why"), written.why, "" if key == "lines" else text
    why = item.reveal if isinstance(item, Predict) else getattr(item, "why", None)
    if why is not None:
        yield ("reveal" if isinstance(item, Predict) else "why",), why, ""


def _unnamed_misconception(one: Seen) -> Iterator[Found]:
    item = one.item
    for place, option in enumerate(one.written):
        named = option.slip.misconception if option.slip else option.misconception
        if not named and not _may_be_right(one, option):
            message = "an option that is never right names its misconception"
            yield ("options", place), f"{message}: the belief of readers who pick it"
    if isinstance(item, FaultyLine):
        for place, line in enumerate(item.lines):
            if place not in one.key.right and line.misconception is None:
                yield ("lines", place), "a line that is not at fault names its misconception"
    elif not one.written and not believed(item):
        how = "misconceptions:" if isinstance(item, Order) else "slips: or misconceptions:"
        yield ("id",), f"no wrong answer to {item.id!r} names what is believed; add {how}"


def _may_be_right(one: Seen, option: Option) -> bool:
    """Whether another machine, or this one, can make an option right."""
    if option.right_if is None:
        return False
    claim = one.evidence.book.claims[option.right_if.claim]
    return claim.kind == "observation" or option.right_if.verdict == "holds"


def _near_options(one: Seen) -> Iterator[Found]:
    for (before, first), (after, second) in combinations(enumerate(one.values), 2):
        if first is None or second is None or first.unit != second.unit:
            continue
        if _bare(one.options[before], first) != _bare(one.options[after], second):
            continue  # they differ in words too
        low, high = sorted((abs(numeric(first)), abs(numeric(second))))
        if high - low <= NEAR * high:
            message = f"{second} can hardly be told from option {before + 1}, {first}"
            yield ("options", after), f"{message}; let them lie further apart"


def _bare(text: str, value: Value) -> str:
    return " ".join(text.replace(" ".join(str(value).split()), "").lower().split())


def _too_many_options(one: Seen) -> Iterator[Found]:
    if len(one.options) > MAX_OPTIONS:
        message = f"{len(one.options)} options; three good ones test as much"
        yield ("options", MAX_OPTIONS), f"{message}, so keep those that people believe"


def _slider_middle(one: Seen) -> Iterator[Found]:
    """A slider starts in its middle; a reader who leaves it there must not be close."""
    if not isinstance(one.item, Predict) or one.key.ends is None or one.key.value is None:
        return
    low, high = (float(numeric(end)) for end in one.key.ends)
    middle = (low * high) ** 0.5 if one.item.logarithmic else (low + high) / 2
    distance = abs(middle - numeric(one.key.value))
    if distance <= slack(one.item.close, one.key.value):
        yield ("high",), "the answer lies in the middle, where the slider starts; move low or high"


RULES: dict[str, Callable[[Seen], Iterator[Found]]] = {
    "all_or_none": _all_or_none,
    "negative_stem": _negative_stem,
    "key_longest": _key_longest,
    "overlapping_options": _overlapping_options,
    "said_twice": _twice_said,
    "absolutes": _absolutes,
    "unexplained_option": _unexplained_option,
    "unnamed_misconception": _unnamed_misconception,
    "near_options": _near_options,
    "too_many_options": _too_many_options,
    "slider_middle": _slider_middle,
}
TOPIC_RULES = ("key_often_longest", "key_position")
PAGE_RULES = ("answer_above",)
ALL_RULES = (*RULES, *TOPIC_RULES, *PAGE_RULES)
