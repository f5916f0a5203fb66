"""The items of the frozen book's topic `asking` as a reader works them, and what is right there.

What is right was worked out by hand from `tests/book/content/traces`: 36 parameters of 4 bytes make
144 bytes, 164,000 bytes are 160 KiB, and so on. Nothing is read from the page's own key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

CHALLENGE = "topics/asking/challenge.html"
RECALL = "topics/asking/recall.html"
RIGHT, WRONG = "Correct.", "Not quite."


@dataclass(frozen=True)
class Known:
    """One item: answers as `give` takes them, and a piece of what explains each."""

    id: str
    kind: str
    right: Any
    wrong: Any
    wrong_too: Any  # for a second try
    why_right: str
    why_wrong: str
    num_attempts: int = 2


ITEMS = (
    Known("how-many-bytes", "choice", 0, 1, 2, "Each parameter has a gradient", "all ranks send"),
    Known("which-hold", "several", [0, 1], [0, 2], [2], "Their digests differ", "ran out of mem"),
    Known("what-peak", "number", "160", "78.1", "77", "some activations", "the parameters alone"),
    Known("how-many-parameters", "number", "20,000", "19,999", "19,998", "of its bytes", "too low"),
    Known("who-needs-most", "order", [2, 1, 0], [0, 1, 2], [1, 0, 2], "smaller layer",
          "its gradient stand"),
    Known("what-belongs", "match", [0, 1, 2], [1, 0, 2], [0, 2, 1], "over the rows as",
          "Each rank is"),
    Known("how-slow", "predict", "2.2", "0.6", "0.5", "Averaging took", "shared between", 1),
    Known("where-is-the-fault", "faulty_line", 2, 0, 1, "must be divided", "begins with the sum"),
    Known("what-comes-out", "number", "20 × 4", "20 × 8", "20 × 9", "one number a class",
          "that went in"),
    Known("what-accuracy", "number", "28", "30", "31", "both shares are low", "of the training"),
)  # fmt: skip
BY_ID = {one.id: one for one in ITEMS}


# What a reader does with an item, without the time that a mouse takes; gives what is then said.
WORK = """(box, { kind, answer, sure, press }) => {
    const all = (chosen) => [...box.querySelectorAll(chosen)];
    const pieces = () => all(".pb-pieces > li");
    const set = (one, value, type) => {
        one.value = value;
        one.dispatchEvent(new Event(type, { bubbles: true }));
    };
    const pressed = (chosen, name) => {
        const one = all(chosen).filter((one) => one.checkVisibility())
            .find((one) => one.innerText.trim() === name);
        one.focus();
        one.click();
    };
    const sort = (position, at) => {
        const piece = pieces().find(({ dataset }) => Number(dataset.position) === position);
        while (pieces().indexOf(piece) > at) piece.querySelector("button").click();
    };
    const mark = (one) => {
        const isWanted = [answer].flat().includes(Number(one.value));
        if (one.checked !== isWanted && (isWanted || one.type === "checkbox")) one.click();
    };
    if (kind === "order") answer.forEach(sort);
    else if (kind === "match") all("select").forEach((one, at) => set(one, answer[at], "change"));
    else if (typeof answer === "string") set(all(".pb-number-field")[0], answer, "input");
    else if (kind) all(".pb-asked input").forEach(mark);
    if (sure) pressed("label", sure);
    pressed("button", press);
    return document.getElementById(box.id).querySelector("[role=status]").innerText;
}"""


def _plain(text: str) -> str:
    """A text with plain spaces."""
    return " ".join(text.split())


def field_of(box: Locator) -> Locator:
    """The number field of an item."""
    return box.locator(".pb-number-field")


class Asking:
    """One item on an open page."""

    def __init__(self, page: Page, name: str) -> None:
        self.page = page
        self.known = BY_ID[name]
        self.box: Locator = page.locator(f"#item-{name}")
        self.status: Locator = self.box.locator("[role=status]")

    def by_mouse(self, answer: Any) -> str:
        """Answer with the mouse; what the status region then says."""
        kind = self.known.kind
        if kind in ("choice", "faulty_line"):
            self.box.locator(f".pb-asked input[value='{answer}']").check()
        elif kind == "several":
            for box in self.box.locator(".pb-asked input").all():
                box.set_checked(int(str(box.get_attribute("value"))) in answer)
        elif kind == "order":
            self._sort(answer)
        elif kind == "match":
            for select, value in zip(self.box.locator("select").all(), answer, strict=True):
                option = select.locator(f"option[value='{value}']")  # labels look like values here
                select.select_option(index=option.evaluate("option => option.index"))
        else:
            field_of(self.box).fill(answer)
        self.box.get_by_role("button", name="Check", exact=True).click()
        return self.said()

    def _sort(self, wanted: list[int]) -> None:
        for place, position in enumerate(wanted):
            piece = self.box.locator(f".pb-pieces > li[data-position='{position}']")
            while self.order().index(position) > place:
                piece.get_by_role("button", name="Move up").click()

    def order(self) -> list[int]:
        """The pieces as they stand."""
        pieces = self.box.locator(".pb-pieces > li").all()
        return [int(str(piece.get_attribute("data-position"))) for piece in pieces]

    def said(self) -> str:
        """What the status region says, with plain spaces."""
        return _plain(self.status.inner_text())

    def give(self, answer: Any, sure: str | None = None) -> str:
        """Answer, perhaps with a word on how sure; what the status region then says."""
        work = {"kind": self.known.kind, "answer": answer, "sure": sure, "press": "Check"}
        return _plain(self.box.evaluate(WORK, work))

    def press(self, name: str) -> str:
        """Press a button of the item; what the status region then says."""
        return _plain(self.box.evaluate(WORK, {"press": name}))

    def text(self) -> str:
        """All that can be seen of it, with plain spaces."""
        return _plain(self.box.inner_text())

    @property
    def worked(self) -> Locator:
        """What waits until the item is answered."""
        return self.page.locator(f"[data-after='{self.known.id}']")


def kept(page: Page) -> dict[str, Any]:
    """What this browser keeps, by item."""
    found: dict[str, Any] = page.evaluate(
        """() => Object.fromEntries(Object.keys(localStorage)
            .filter(key => key.startsWith('proofbook:item:'))
            .map(key => [key.slice(15), JSON.parse(localStorage[key])]))"""
    )
    return found
