"""Questions → the files of `python -m generator export`, and what each format has no place for.

In: a checked book, topics, and the path of each format's file. Out: the files, the same bytes from
the same book, and lines that say what stands in them and what does not.
"""

import hashlib
import io
import re
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import groupby
from pathlib import Path

from markupsafe import Markup

from proofbook.companions.export.questions import ExportedQuestion, questions
from proofbook.generator.content.book import Book, Topic
from proofbook.generator.pages.environment import environment
from proofbook.generator.printing.folio import Folio
from proofbook.generator.printing.markdown import plain
from proofbook.generator.values.evaluation import Evidence

LACKS = {  # format → kind of question → why it has none
    "gift": {
        "order": "GIFT has no question that puts pieces in order",
        "picture": "GIFT holds no files, and these show a picture",
        "predict": "predictions are not graded",
    },
    "qti-1.2": {
        "order": "Canvas reads no order of pieces from QTI 1.2",
        "predict": "predictions are not graded",
    },
    "anki": {},
}
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # of the calendar of ZIP files
_SPECIAL = re.compile(r"([\\~=#{}:])")  # of GIFT
_FIELDS = ("Id", "Question", "Hints", "Answer")
_CARD = {
    "name": "Question",
    "qfmt": "{{Question}}{{#Hints}}<details><summary>Hint</summary>{{Hints}}</details>{{/Hints}}",
    "afmt": '{{Question}}<hr id="answer">{{Answer}}',
}
_CSS = """.card { font: 17px/1.45 sans-serif; max-width: 42em; margin: auto; }
pre { white-space: pre-wrap; } td, th { padding: 0.1em 0.6em; }"""


def write(evidence: Evidence, topics: Sequence[Topic], paths: Mapping[str, Path]) -> Iterator[str]:
    """Write the topics' questions to a new file per format; yield lines on what is in and left out.

    Raises:
        OSError: a file cannot be written, or is there already.
    """
    asked, left_out = questions(evidence, topics)
    for name, path in paths.items():
        lacking = {question.id: _lacking(question, LACKS[name]) for question in asked}
        kept = [question for question in asked if not lacking[question.id]]
        content = file_content(name, kept, evidence.book, Folio(evidence, evidence))
        with path.open("xb") as file:
            file.write(content)
        count = len({question.topic for question in kept})
        yield f"{path}: {len(kept)} questions of {count} topic{'s' if count != 1 else ''}"
        for kind, why in LACKS[name].items():
            if left := [question for question, lacks in lacking.items() if lacks == kind]:
                yield f"  left out, since {why}: {', '.join(left)}"
        if name != "anki" and (hinted := sum(bool(question.hints) for question in kept)):
            yield f"  {hinted} of them without their hints, for which {name} has no place"
    for why, names in left_out.items():
        yield f"in no file, since {why}: {', '.join(names)}"


def _lacking(asked: ExportedQuestion, lacks: Mapping[str, str]) -> str:
    """For which reason a format has no place for a question, if it has none."""
    kinds = (asked.kind, "picture" if asked.pictures else "")
    return next((kind for kind in kinds if kind in lacks), "")


def file_content(name: str, asked: Sequence[ExportedQuestion], book: Book, folio: Folio) -> bytes:
    """The questions `asked` as bytes, by format: GIFT text, an Anki deck, or a ZIP of QTI."""
    topics = [(topic, _pools([*own])) for topic, own in groupby(asked, lambda of: of.topic)]
    if name == "gift":
        return _filled("gift.txt", topics=topics, line=_gift_line)
    if name == "anki":
        recorded = (trace.trace.recorded_at for trace in book.traces.values())
        newest = max(datetime.fromisoformat(time).timestamp() for time in recorded)
        return _decks(asked, plain(folio.line(book.home.title)), newest)
    files = {
        f"{topic}.xml": _filled("qti-1.2.xml", topic=topic, pools=own) for topic, own in topics
    }
    pictures = _pictures(asked)
    types = dict.fromkeys(files, "imsqti_xmlv1p2") | dict.fromkeys(pictures, "webcontent")
    return _zipped({"imsmanifest.xml": _filled("manifest.xml", types=types), **files, **pictures})


def _pools(asked: Sequence[ExportedQuestion]) -> dict[str, list[ExportedQuestion]]:
    """The questions of a topic, and apart from them those that one item asks in several cases."""
    pools: dict[str, list[ExportedQuestion]] = {"": []}
    for question in asked:
        pools.setdefault(question.alike, []).append(question)
    return pools


def _filled(template: str, **values: object) -> bytes:
    return environment().get_template(f"export/forms/{template}.j2").render(values).encode()


def _gift_line(html: str) -> Markup:
    """A text on one line, with GIFT's special characters escaped."""
    return Markup(_SPECIAL.sub(r"\\\1", str(html)).replace("\n", "\\n"))


def _pictures(asked: Iterable[ExportedQuestion]) -> dict[str, bytes]:
    return {name: content for question in asked for name, content in question.pictures.items()}


def _zipped(files: Mapping[str, bytes]) -> bytes:
    """A ZIP file without times, so that equal files give equal bytes."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as package:
        for name, content in files.items():
            package.writestr(zipfile.ZipInfo(name, _FIRST_DAY), content, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def _decks(asked: Sequence[ExportedQuestion], title: str, moment: float) -> bytes:
    """A package for Anki with a deck for each topic.

    A card is known by the ids of its book and its item, so that importing a later book changes the
    cards that are there, and they stay due when they were.
    """
    import genanki  # type: ignore[import-untyped]

    fields = [{"name": name} for name in _FIELDS]
    model = genanki.Model(_number("card"), "Proofbook", fields, [_CARD], css=_CSS)
    decks: dict[str, genanki.Deck] = {}
    for question in asked:
        name = f"{title}::{question.topic_title}"
        front, back = (
            _filled("card.html", one=question, side=side).decode() for side in ("front", "back")
        )
        texts = [question.id, front, "<br>".join(question.hints), back]
        guid, tags = genanki.guid_for(title, question.id), [question.topic, question.kind]
        note = genanki.Note(model, texts, guid=guid, tags=tags)
        decks.setdefault(name, genanki.Deck(_number(f"{title} {question.topic}"), name)).add_note(
            note
        )
    with tempfile.TemporaryDirectory() as folder:
        path, media = Path(folder, "cards.apkg"), []
        for name, content in _pictures(asked).items():
            media.append(Path(folder, name))
            media[-1].write_bytes(content)
        genanki.Package([*decks.values()], media).write_to_file(path, timestamp=moment)
        with zipfile.ZipFile(path) as package:
            return _zipped({name: package.read(name) for name in package.namelist()})


def _number(of: str) -> int:
    """An id for Anki: 31 bits of the hash of a name."""
    return int.from_bytes(hashlib.sha256(of.encode()).digest()[:4], "big") >> 1
