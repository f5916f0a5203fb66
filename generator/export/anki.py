"""Questions → a package of flash cards for Anki, with a deck for each topic.

In: `Question`s. Out: the package. A card is known by the id of its item, so that importing a later
book changes the cards that are there, and they stay due when they were.
"""

import hashlib
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import genanki  # type: ignore[import-untyped]

from generator.export.qti import zipped
from generator.export.questions import Question

_FIELDS = ("Id", "Question", "Hints", "Answer")
_CARD = {
    "name": "Question",
    "qfmt": "{{Question}}{{#Hints}}<details><summary>Hint</summary>{{Hints}}</details>{{/Hints}}",
    "afmt": '{{Question}}<hr id="answer">{{Answer}}',
}
_CSS = """.card { font: 17px/1.45 sans-serif; max-width: 42em; margin: auto; }
pre { white-space: pre-wrap; } td, th { padding: 0.1em 0.6em; }"""


def written(questions: Sequence[Question], title: str, moment: float) -> bytes:
    """A package of decks.

    Args:
        questions: a card each.
        title: the book's, under which the decks of topics stand.
        moment: when the cards count as changed, in seconds since the epoch.
    """
    model = genanki.Model(
        _number("card"), "Proofbook", [{"name": name} for name in _FIELDS], [_CARD], css=_CSS
    )
    decks: dict[str, genanki.Deck] = {}
    for one in questions:
        new = genanki.Deck(_number(one.topic), f"{title}::{one.topic_title}")
        texts = [one.id, _front(one), "<br>".join(one.hints), _back(one)]
        card = genanki.Note(
            model, texts, guid=genanki.guid_for("proofbook", one.id), tags=[one.topic, one.kind]
        )
        decks.setdefault(one.topic, new).add_note(card)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cards.apkg")
        genanki.Package([*decks.values()]).write_to_file(path, timestamp=moment)
        with zipfile.ZipFile(path) as made:
            return zipped({name: made.read(name) for name in made.namelist()})


def _number(of: str) -> int:
    """The id of a deck or of a kind of card, 31 bits of a name."""
    return int.from_bytes(hashlib.sha256(f"proofbook {of}".encode()).digest()[:4], "big") >> 1


def _front(question: Question) -> str:
    texts = question.replies if question.kind == "match" else question.shown
    listed = "".join(f"<li>{one.text}</li>" for one in texts)
    front = f"{question.stem}<ul>{listed}</ul>" if listed else str(question.stem)
    if question.kind == "match":
        front += f"<p>Choose from: {'; '.join(one.beside for one in question.shown)}</p>"
    return front


def _back(question: Question) -> str:
    if question.is_arranged:
        return str(question.solution)
    replies = sorted(question.replies, key=lambda one: not one.is_right)
    said = (
        f"<p><b>{'Right' if one.is_right else 'Wrong'}:</b> {one.text}<br>{one.why}</p>"
        for one in replies
    )
    return "".join(said) + question.explains
