"""What pages with questions load in a site that is not ours: one script and one style sheet."""

import re
from pathlib import Path

from proofbook.generator.website import publish

GUEST = "assets/proofbook"  # what pages of another site load
GUEST_STYLE = Path(__file__).with_name("guest.css")
SCRIPTS_OF_ITEMS = (
    "page", "proofbook", "schedule", "kinds", "question", "pieces", "numbers", "asked",
)  # fmt: skip
_SCOPED = re.compile(
    r"(?:\[dir\] )?(?:\.md-content__inner)?\.md-typeset|:root|\.js\b|body\[data-md-color-scheme\]|"
    r"\.md-content__inner"
)
_REM = re.compile(r"(?<![\w.-])(-?[\d.]+)rem\b")


def guest_assets() -> dict[str, bytes]:
    """Bytes of quiz.css, scoped to `.pb-quiz`, and of quiz.js for another site, by path.

    Our sizes count from a root of 20 px, which Material has; `--pb-rem` is that size elsewhere.
    """
    files = publish.assets()
    css = publish.style(("palette", "shared", "tables", "values", "items", "evidence")).decode()
    css = _SCOPED.sub(".pb-quiz", css + files["assets/asking.css"].decode())
    css = _REM.sub(r"calc(\1 * var(--pb-rem))", css)
    scripts = (files[f"assets/{name}.js"] for name in SCRIPTS_OF_ITEMS)
    return {
        f"{GUEST}/quiz.css": publish.asset(GUEST_STYLE) + css.encode(),
        f"{GUEST}/quiz.js": b"".join(scripts),
    }
