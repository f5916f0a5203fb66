"""What a rerun changed: the verdicts, the sentences of claims, and the keys of items.

In: the evidence now, and what was noted beside the pages when they were written from other traces.
Out: one line for each difference. What an author has rewritten since is the author's own change and
not told.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from generator.content.quiz import Choice, FaultyLine, Item, Match, Order, Several
from generator.content.words import Written
from generator.evidence import verdicts
from generator.evidence.evaluation import Evidence
from generator.items.keys import Key, key_of

NOTE = ".standing.json"  # beside the pages; files that begin with a dot stay there
LEFT_OPEN = "left open"


class Said(BaseModel):
    """What a claim or an item came to, and the digest of what its author wrote."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    written: str
    says: str


class Standing(BaseModel):
    """What the traces of one machine came to."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    machine: str
    traces: str  # their digest
    verdicts: dict[str, Said]
    sentences: dict[str, Said]
    keys: dict[str, Said]


def changes(folder: Path, evidence: Evidence, traces: Mapping[str, bytes]) -> list[str]:
    """What has changed since the pages in a folder were written from other traces; notes it.

    Args:
        folder: where the pages are.
        evidence: what they say now.
        traces: the bytes of every trace that they are made from, by name.
    """
    machine, digest = evidence.book.machine.name, _digest(traces)
    noted = _text(folder / NOTE)
    if f'"machine": "{machine}"' in noted and f'"traces": "{digest}"' in noted:
        return []
    before = _read(noted)
    now = standing(evidence, digest)
    text = json.dumps(now.model_dump(), indent=1, sort_keys=True, ensure_ascii=False)
    (folder / NOTE).write_text(f"{text}\n", encoding="utf-8")
    return list(differences(before, now)) if before and before.machine == machine else []


def _text(note: Path) -> str:
    try:
        return note.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _read(noted: str) -> Standing | None:
    """What was noted; nothing where the note is none."""
    try:
        return Standing.model_validate_json(noted)
    except ValidationError:
        return None


def _digest(traces: Mapping[str, bytes]) -> str:
    found = hashlib.sha256()
    for name in sorted(traces):
        found.update(f"{name}\0{len(traces[name])}\0".encode() + traces[name])
    return found.hexdigest()[:16]


def standing(evidence: Evidence, traces: str) -> Standing:
    """The present standing of the evidence."""
    claims = evidence.book.claims
    items = {name: item for topic in evidence.book.topics for name, item in topic.items.items()}
    return Standing(
        machine=evidence.book.machine.name,
        traces=traces,
        verdicts={
            name: Said(written=_written(claim), says=verdicts.WORDS[evidence.outcome(name).verdict])
            for name, claim in claims.items()
        },
        sentences={
            name: Said(written=_written(claim), says=evidence.plain(evidence.sentence(name)))
            for name, claim in claims.items()
            if claim.showed is not None
        },
        keys={
            name: Said(written=_written(item), says=key_in_words(item, evidence))
            for name, item in items.items()
        },
    )


def _written(model: Written) -> str:
    return hashlib.sha256(model.model_dump_json().encode()).hexdigest()[:16]


def key_in_words(item: Item, evidence: Evidence) -> str:
    """What is right, as a reader sees it."""
    key = key_of(item, evidence)
    return LEFT_OPEN if key.is_open else _in_words(item, key, evidence)


def _in_words(item: Item, key: Key, evidence: Evidence) -> str:
    if key.value is not None:
        return str(key.value)
    if isinstance(item, Choice | Several):
        options = [evidence.plain(item.options[place].says) for place in key.right]
        return " and ".join(f"“{option}”" for option in options)
    if isinstance(item, Order):
        return ", ".join(evidence.plain(item.pieces[place].text) for place in key.right)
    if isinstance(item, FaultyLine):
        return item.lines[key.right[0]].code.strip()
    assert isinstance(item, Match), item.kind
    return ", ".join(f"{evidence.plain(p.left)}: {evidence.plain(p.right)}" for p in item.pairs)


def differences(before: Standing, now: Standing) -> Iterator[str]:
    """One line for each verdict, sentence and key that came out otherwise."""
    for kind in ("verdict", "sentence", "key"):
        old: Mapping[str, Any] = getattr(before, f"{kind}s")
        for name, said in getattr(now, f"{kind}s").items():
            was = old.get(name)
            if was and was.written == said.written and was.says != said.says:
                yield f"{kind} {name}: {was.says} → {said.says}"
