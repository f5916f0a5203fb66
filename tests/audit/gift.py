"""gift-pegjs over the exported questions: each is there once, with its kind and its key."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from proofbook.companions.export.questions import questions
from proofbook.generator.content.reading import load
from proofbook.generator.values.evaluation import Evidence
from proofbook.generator.website.publish import committed_machines
from tests import exported
from tests.audit.tools import output, package
from tests.conftest import ROOT

READER = Path(__file__).with_name("gift.cjs")


def problems() -> Iterator[tuple[str, str]]:
    """Each difference: the question's id, and what was read in place of what.

    Raises:
        ToolError: gift-pegjs could not read the file.
    """
    content = ROOT / "content"
    (folder,) = (path.parent.name for path in content.glob("traces/reference-*/machine.json"))
    evidence = Evidence(load(content, folder, lambda _: False, only=committed_machines(content)))
    found, _ = questions(evidence, evidence.book.topics)
    file, kept = exported.made("gift", found, evidence)
    text = output("node", READER, package("gift-pegjs"), input=file.decode())
    asked = [one for one in json.loads(text) if one["type"] != "Category"]
    read = {one["id"]: one for one in asked}
    if len(read) != len(asked):
        yield "all questions", f"{len(asked)} are read, with {len(read)} ids"
    kinds, keys = exported.gift_kinds(kept), exported.keys(evidence)
    for name in sorted(read.keys() ^ kinds.keys(), key=str):
        yield str(name), "is read, but not a question" if name in read else "is not read"
    for name in (one for one in kinds if one in read):
        kind, right = read[name]["type"], keys[name][1]
        if kind != kinds[name]:
            yield name, f"{kind} is read, not {kinds[name]}"
        elif not _same(key := _key(read[name]), right):
            yield name, f"the key {key} is read, not {right}"


def _key(question: dict[str, Any]) -> object:
    if question["type"] == "Matching":
        return {
            exported.bare(one["subquestion"]["text"]): exported.bare(_unmasked(one["subanswer"]))
            for one in question["matchPairs"]
        }
    right = [one["text"] for one in question["choices"]
             if (one["isCorrect"] if one["weight"] is None else one["weight"] > 0)]  # fmt: skip
    if question["type"] == "Numerical":
        return right[0]["number"] if len(right) == 1 else right
    texts = [exported.bare(one["text"]) for one in right]
    return texts[0] if question["type"] == "Short" and texts else set(texts)


def _unmasked(text: str) -> str:
    """A right side, in which gift-pegjs 1.0.2 leaves its masks of what was escaped: &&058; is :."""
    return re.sub(r"&&(\d{3});", lambda mask: chr(int(mask[1])), text)


def _same(key: object, right: object) -> bool:
    if isinstance(key, int | float) and isinstance(right, int | float):
        return math.isclose(key, right, rel_tol=1e-9)
    return key == right
