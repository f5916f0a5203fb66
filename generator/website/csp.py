"""Built HTML in, the same HTML with a Content-Security-Policy out. Pure.

The policy allows what the page itself carries and nothing else: own files, and the inline scripts
that are in the page when it is built, each by its hash. Styles come from files only.
"""

from __future__ import annotations

import base64
import hashlib
import re

_SCRIPT = re.compile(r"<script(?P<attributes>[^>]*)>(?P<body>.*?)</script>", re.DOTALL)
_CHARSET = re.compile(r'<meta charset="utf-8">', re.IGNORECASE)
_NOT_RUN = re.compile(r'\bsrc\s*=|type="application/json"')


def inline_hashes(html: str) -> list[str]:
    """The CSP sources of every script that stands in the page, sorted, without repeats."""
    bodies = {
        match["body"]
        for match in _SCRIPT.finditer(html)
        if not _NOT_RUN.search(match["attributes"])
    }
    digests = (hashlib.sha256(body.encode("utf-8")).digest() for body in bodies)
    return sorted(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)


def policy(html: str) -> str:
    """The Content-Security-Policy that fits one page."""
    scripts = " ".join(["'self'", *inline_hashes(html)])
    return "; ".join(
        [
            "default-src 'self'",
            f"script-src {scripts}",
            "style-src 'self'",
            "img-src 'self' data:",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'none'",
        ]
    )


def with_policy(html: str) -> str:
    """The page with its policy as the first thing after the charset.

    Raises:
        ValueError: the page has no place to put it.
    """
    placed, count = _CHARSET.subn(
        lambda found: (
            f'{found[0]}<meta http-equiv="Content-Security-Policy" content="{policy(html)}">'
        ),
        html,
        count=1,
    )
    if not count:
        raise ValueError('no <meta charset="utf-8"> to put the policy after')
    return placed
