"""How pages print what people do not read as words: times, and names too long for a line."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

from markupsafe import Markup


def moment(recorded: str) -> str:
    """An ISO time as `21 November 2026, 20:16:39 UTC`."""
    when = datetime.fromisoformat(recorded).astimezone(UTC)
    return f"{when.day} {when:%B %Y, %H:%M:%S} UTC"


def parted(parts: Iterable[str], limit: int) -> str:
    """Escaped parts of a name, joined by `<wbr>`, also after `_` in parts over `limit` letters."""
    within = (part if len(part) <= limit else part.replace("_", "_<wbr>") for part in parts)
    return "<wbr>".join(within)


def unlinked(markup: Markup | str) -> Markup:
    """HTML without its links, whose words stay."""
    return Markup(re.sub(r"</?a\b[^>]*>", "", str(markup)))
