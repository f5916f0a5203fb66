"""Fences of YAML in a page of Markdown: where they stand, and what a `quiz` asks.

In: the text of a page. Out: its fences, also within a list or an admonition, and not those that
another fence shows as an example; of a fence `quiz`, a document whose mistakes have the line and
column of the page.
"""

import re

from generator.content.documents import Document, validated
from generator.content.errors import ContentError, ContentErrors, place_of
from generator.content.quiz import QuizFence
from generator.content.words import as_list
from generator.content.yaml_source import YamlFile, parse

FENCE = re.compile(
    r"^(?P<indent>[ \t]*)(?P<mark>`{3,}|~{3,})[ \t]*(?P<info>[^\n`]*?)[ \t]*\n"
    r"(?P<yaml>.*?)(?:^[ \t]*(?P=mark)[`~]*[ \t]*$|\Z)",
    re.DOTALL | re.MULTILINE,
)
_SEVERAL = re.compile(r"[a-z0-9-]+([\s,]+[a-z0-9-]+)+")  # ids in lines, without a list


def within(name: str, text: str, start: int, end: int) -> YamlFile:
    """YAML within a text, with the places that it has there."""
    return parse(name, re.sub(r"[^\n]", " ", text[:start]) + text[start:end])


def quiz(name: str, text: str, start: int, end: int) -> Document[QuizFence]:
    """What a fence `quiz` asks.

    Args:
        name: of the page, as messages name it.
        text: of the page.
        start: where the YAML of the fence begins.
        end: where it ends.

    Raises:
        ContentErrors: everything wrong with it.
    """
    if not text[start:end].strip():
        message = "the fence asks nothing; write the id of an item, a list of ids, or an item"
        raise ContentErrors([ContentError(name, *place_of(text, start), message)])
    source = within(name, text, start, end)
    written, places = source.document, source.places
    if isinstance(written, str) and _SEVERAL.fullmatch(written):
        ids = ", ".join(re.findall(r"[\w-]+", written))
        raise ContentErrors([source.error((), f"several ids are a list: write [{ids}]")])
    key = "items" if isinstance(written, dict) else "names"
    at = (key,) if isinstance(written, list) else (key, 0)
    moved = {(*at, *path): place for path, place in places.items()}
    moved = {(): places[()], (key,): places[()], **moved}
    return validated(YamlFile(name, text, {key: as_list(written)}, moved), QuizFence)
