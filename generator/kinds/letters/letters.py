"""Letters of formulas: each has its meaning in its topic's `letters:`, or its page defines it.

A page defines the letters of a formula in emphasis, as in *with *$m$* matrices*, and the left side
of an equation. A sum binds its index, and a letter that touches a bracket is a function.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator

from proofbook.generator.content import formulas, prose
from proofbook.generator.content.documents import TEXTS, Document, TextField
from proofbook.generator.content.errors import ContentError
from proofbook.generator.content.topic import TopicFile
from proofbook.generator.content.words import Written
from proofbook.generator.content.yaml_source import Path
from proofbook.generator.pages.elements.element import Made
from proofbook.generator.printing.folio import Folio
from proofbook.generator.values.evaluation import Evidence

PAGES = ("build_up", "items")  # keys of lists of which each entry defines letters for itself
_GREEK = "alpha|beta|gamma|delta|epsilon|eta|theta|lambda|mu|rho|sigma|tau|phi|omega"
_NAME = re.compile(  # a word, which needs no meaning; what has no letter; a letter
    r"\\text\{(\w+)\}|\\(?:text|math(?!cal)\w+|operatorname|begin|end)\{[^{}]*\}|"
    rf"(\\mathcal\{{\w\}}|\\(?:{_GREEK})(?![a-zA-Z]))|\\[a-zA-Z]+|([a-zA-Z])"
)
_BOUND = re.compile(r"\\(?:sum|prod|max|min)_\{?\s*(\w)|(?<![\\\w])(?:(\w)\(|(e)\^)")
_GIVEN = re.compile(r"(?:^|[,;]|quad)\s*(\w)(?:_\w)?\s*=")
_EMPHASIS = re.compile(r"\*\$([^$]+)\$\*")
_CODE = re.compile(r"`([^`]+)`")
_IN_CODE = re.compile(r"(?<![\w-])((?<!\d )B|[AC-Za-z])(?!\w)")  # a number before B makes it bytes


def _names(latex: str) -> dict[str, int]:
    """The letters and words of a formula, but for those that it binds, each with its place."""
    bound = {name for names in _BOUND.findall(latex) for name in names}
    found = [(one[one.lastindex], one.start()) for one in _NAME.finditer(latex) if one.lastindex]
    return {name: at for name, at in reversed(found) if name not in bound}


def _defined(text: str) -> set[str]:
    given = {name for _, latex in prose.formulas_of(text) for name in _GIVEN.findall(latex)}
    return given.union(*map(_names, _EMPHASIS.findall(text)))


def mistakes(evidence: Evidence, document: Document[Written]) -> Iterator[ContentError]:
    """Letters in formulas that neither the topic of a file nor their page defines."""
    topics, file = evidence.book.topics, document.source.file
    own = [topic.file.letters for topic in topics if f"/topics/{topic.id}/" in file]
    texts = [field for field in document.fields if field.mark in TEXTS and "$" in field.text]
    defined: dict[Path, set[str]] = defaultdict(lambda: set().union(*own))
    for field in texts:
        defined[_page(field)] |= _defined(field.text)
    for field in texts:
        for at, latex in prose.formulas_of(field.text):
            for name, place in _names(latex).items():
                if name not in defined[_page(field)] and (name[0] == "\\" or not name[1:]):
                    says = f"letter {name} has no meaning; give it one under letters: of topic.yml,"
                    says += f" or write *${name}$* where its page defines it"
                    yield document.error_in(field, at + place, says)


def _page(field: TextField) -> Path:
    """The part of a file that is a page, or a question, of its own."""
    return field.path[: 2 * (field.path[0] in PAGES)]


def of_topic(topic: TopicFile, folio: Folio, texts: Collection[str]) -> Iterator[Made]:
    """What those letters of a topic stand for that formulas of some texts have; laws' are code."""
    laws = {claim.formula or "" for claim in folio.book.claims.values()}.intersection(texts)
    codes = " ".join(code for text in laws for code in _CODE.findall(text))
    latex = (latex for text in texts for _, latex in prose.formulas_of(text))
    used = {*_IN_CODE.findall(codes)}.union(*map(_names, latex))
    rows = [
        (folio.line(f"${formulas.as_latex(name) if name[1:] else name}$"), folio.line(says))
        for name, says in topic.letters.items() if name in used
    ]  # fmt: skip
    if rows:
        yield Made("Letters", rows=rows, is_found=False, is_read=False)
