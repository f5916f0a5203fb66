"""The commands `export` and `class` of the generator."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from proofbook.generator.checks import content_checks
from proofbook.generator.content import scaffold
from proofbook.generator.content.book import Topic
from proofbook.generator.content.errors import nearest
from proofbook.generator.content.reading import load
from proofbook.generator.values.evaluation import Evidence
from proofbook.runners.system.kinds import BookCommand

EXPORTS = {  # option → who reads its file
    "gift": "GIFT, for Moodle",
    "qti-1.2": "a package of QTI, for Canvas",
    "anki": "a package of decks, for Anki",
}


def _add_formats(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="all of them by default")
    for name, reader in EXPORTS.items():
        parser.add_argument(f"--{name}", dest=name, type=Path, metavar="FILE", help=reader)


def _add_topic(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic")
    parser.add_argument("folder", nargs="?", type=Path, help="by default class-TOPIC")


def _export(options: argparse.Namespace) -> int:
    from proofbook.companions.export import formats  # which packages of decks take a moment

    paths = {name: path for name in EXPORTS if (path := getattr(options, name))}
    if not paths:
        wanted = ", ".join(f"--{name} FILE" for name in EXPORTS)
        raise scaffold.CannotScaffoldError(f"nothing to write; name at least one of {wanted}")
    scaffold.refuse_existing(*paths.values())
    for line in formats.write(*_topics(options, options.topics), paths):
        print(line)
    return 0


def _class(options: argparse.Namespace) -> int:
    from proofbook.companions.export import lecture

    folder = options.folder or Path(f"class-{options.topic}")
    scaffold.refuse_existing(folder)
    evidence, (topic,) = _topics(options, [options.topic])
    documents = lecture.documents(evidence, topic)
    folder.mkdir(parents=True)
    for name, document in documents.items():
        (folder / name).write_bytes(document)
    print(f"{folder}: {', '.join(documents)}; begin with plan.html, and print from a browser")
    return 0


def _topics(options: argparse.Namespace, names: Sequence[str]) -> tuple[Evidence, list[Topic]]:
    """The evidence of a checked book, and the named topics, or all of them."""
    evidence = content_checks.checked(load(options.content, options.machine))
    if options.machine is None and evidence.reference:
        evidence = evidence.reference  # beside whose numbers the questions were written
    topics = {topic.id: topic for topic in evidence.book.topics}
    for name in names:
        if name not in topics:
            hint = nearest(name, topics) or f"; there are {', '.join(topics)}"
            raise scaffold.CannotScaffoldError(f"no topic {name!r}{hint}")
    return evidence, [topics[name] for name in dict.fromkeys(names or topics)]


EXPORT = BookCommand("write questions as files of other programs", _add_formats, _export)
CLASS = BookCommand("write a class of 90 minutes about a topic, to print", _add_topic, _class)
