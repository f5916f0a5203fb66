"""Questions with options: one is right (`choice`), or any number of them (`several`)."""

from __future__ import annotations

from functools import cached_property

from generator.content.quiz import Choice, Option, Several
from generator.evidence.folio import Folio
from generator.evidence.verdicts import UNDECIDED, Outcome
from generator.items.answers import Answer, against, claim_behind
from generator.items.kinds.kind import OPEN, ItemError, Key, Kind


class OneOption(Kind[Choice | Several]):
    """The one option whose claim has the verdict that it names is right."""

    places = "options"

    @cached_property
    def key(self) -> Key:
        """Which option is right."""
        right = self._right
        if len(right) == 1:
            return Key(right=right)
        if self._is_elsewhere:
            return OPEN
        if right:
            texts = " and ".join(repr(self.item.options[i].text) for i in right)
            said = f"item {self.item.id!r} has {len(right)} keys: {texts} ({self._judgements})"
            raise ItemError(("id",), said)
        said = self._judgements or "no right_if"
        raise ItemError(("id",), f"item {self.item.id!r} has no key ({said})")

    @cached_property
    def _outcomes(self) -> dict[str, Outcome]:
        named = {one.right_if.claim for one in self.item.options if one.right_if}
        return {name: self.evidence.outcome(name) for name in sorted(named)}

    @property
    def _right(self) -> tuple[int, ...]:
        return tuple(
            place
            for place, one in enumerate(self.item.options)
            if one.right_if and self._outcomes[one.right_if.claim].verdict == one.right_if.verdict
        )

    @property
    def _is_elsewhere(self) -> bool:
        """Whether another machine's runs decide."""
        return any(not outcome.on_reference for outcome in self._outcomes.values())

    @property
    def _judgements(self) -> str:
        return ", ".join(f"{claim}: {one.verdict}" for claim, one in self._outcomes.items())

    def answers(self, folio: Folio) -> tuple[Answer, ...]:
        """The options in the order shown."""
        return tuple(
            self._explained(self.item.options[place], place, folio) for place in self.shown_order()
        )

    def _explained(self, option: Option, place: int, folio: Folio) -> Answer:
        verdict = self.verdict(place)
        text, why = folio.line(option.text), folio.line(option.why)
        behind = option.right_if.claim if option.right_if else None
        named = behind if verdict == "right" else option.refuted_by or behind
        backing = (claim_behind(named, folio),) if named else against(option.misconception, folio)
        return Answer(text, why, verdict, folio.ui["item"][verdict], place, backing)


class SeveralOptions(OneOption):
    """Each option stands or falls with its claim; at least one is right, and not all."""

    @cached_property
    def key(self) -> Key:
        """Which options are right."""
        if any(outcome.verdict in UNDECIDED for outcome in self._outcomes.values()):
            return OPEN  # an option that no run decides is neither right nor wrong
        right = self._right
        if 0 < len(right) < self.num_places:
            return Key(right=right)
        if self._is_elsewhere:
            return OPEN
        amount = "every option is" if right else "no option is"
        raise ItemError(("id",), f"item {self.item.id!r}: {amount} right ({self._judgements})")
