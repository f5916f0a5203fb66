"""An item as its reader sees it: what each option says, its values printed, and the key.

In: an item and the evidence. Out: a `Seen`, which the checks of item writing look at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from generator.content import prose
from generator.content.errors import ContentError
from generator.content.quiz import Item, Option
from generator.content.yaml_source import Path
from generator.evidence.value import AbsentError, ExpressionError, Value
from generator.items.keys import Key, key_of

if TYPE_CHECKING:
    from generator.evidence.evaluation import Evidence


@dataclass(frozen=True)
class Seen:
    """An item as its reader sees it, with its key.

    Attributes:
        options: what each option says, its values printed; empty where the item has none.
        values: for each option the one number that it prints; None where it prints none or more.
    """

    item: Item
    key: Key
    evidence: Evidence
    options: tuple[str, ...] = ()
    values: tuple[Value | None, ...] = ()

    @property
    def written(self) -> Sequence[Option]:
        """The options as the author wrote them."""
        found: Sequence[Option] = getattr(self.item, "options", ())
        return found

    @property
    def wrong(self) -> list[int]:
        """The positions of the options that are wrong; none where the key is open."""
        if self.key.is_open:
            return []
        return [place for place in range(len(self.options)) if place not in self.key.right]


class Finding(NamedTuple):
    """One thing badly written: by which rule, where in the item, what and how to fix it."""

    rule: str
    path: Path
    message: str


def seen(item: Item, evidence: Evidence) -> Seen | None:
    """The item with its options printed; None where something fails that is said elsewhere."""
    options: Sequence[Option] = getattr(item, "options", ())
    try:
        return Seen(
            item, key_of(item, evidence), evidence,
            tuple(evidence.plain(option_text(option)) for option in options),
            tuple(_number(evidence, option_text(option)) for option in options),
        )  # fmt: skip
    except (ContentError, ExpressionError):
        return None


def option_text(option: Option) -> str:
    """What an option says, as a Line; a slip says its number."""
    return f"{{{{ {option.slip.gives} }}}}" if option.slip else option.text or ""


def _number(evidence: Evidence, text: str) -> Value | None:
    """The one number that a text prints; None where it prints none, or more than one."""
    found = []
    for one in prose.expressions(text):
        try:
            value = evidence.value(one.text)
        except AbsentError:
            return None
        if isinstance(value, Value) and not isinstance(value.number, str):
            found.append(value)
    return found[0] if len(found) == 1 else None
