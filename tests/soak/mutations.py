"""Changes that break a file of content: by a seed, of YAML, of JSON and of bytes.

make soak ARGS='-k mutation'                            1,500 of them, others each day
PROOFBOOK_SOAK=20000 make soak ARGS='-k mutation'       that day's again
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import yaml

Container = dict[str, Any] | list[Any]
STRINGS = (
    "{{ 1e308*1e308 }}", "{{ nosuch }}", "{{ 7*7 }}", "{{ (1)[0:1] }}", "{{", "{% for %}", "0x1F",
    "5 GB", "twice", "٣", "1e٣", "a \u202e b", "a \0 b", "a \x1b[31m b", "a \u2028 b", "\ufeff",
    "[x](javascript:y)", "[x](java&#115;cript:y)", "[x](../../../../y)", "[x][y]\n\n[y]: data:x",
    "![x](https://a.org/y.png)", "<script>alert(1)</script>", "&#x202e;", "> " * 20 + "x", "`" * 9,
    "word " * 40_000, "[" * 5_000, "../../pyproject.toml", "/etc/hostname", "a.b.c", "x" * 201, "",
)  # fmt: skip
RAW = (
    b"\x00", b"\xff", b"\xed\xa0\x80", b"\t", b"\r", b"\x1b", b"&a ", b"*a ", b"<<: ", b"? ",
    b"!!python/x ", b"---\n", b"...\n", b"[" * 3_000, b"{" * 3_000, b"- " * 2_000, b": ",
    b"\xef\xbb\xbf", b"NaN", b"1e999", b"1e307", b"-Infinity", b"9" * 50, b'"\\ud800"',
    b'"a": 1, "a": 2', b"//", b",", b"}",
)  # fmt: skip
VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 10**39, 1.7e308, -0.0, 1e-320, [], {}, [[]], [None], {"": None}, "x", 3.5,
)  # fmt: skip


def of_yaml(text: str, random_: random.Random) -> bytes:
    """A changed YAML file."""

    def dumped(document: Any) -> bytes:
        return yaml.safe_dump(document, allow_unicode=True, sort_keys=False).encode()

    return _changed(text, yaml.safe_load, dumped, random_)


def of_json(text: str, random_: random.Random) -> bytes:
    """A changed JSON file."""
    return _changed(text, json.loads, lambda one: json.dumps(one, indent=1).encode(), random_)


def _changed(
    text: str,
    parse: Callable[[str], Any],
    dump: Callable[[Any], bytes],
    random_: random.Random,
) -> bytes:
    if random_.random() < 0.4:
        return random_.choice(_BYTES)(text.encode(), random_)
    document = parse(text)
    random_.choice(_STRUCTURES)(document, random_)
    return dump(document)


def _containers(thing: Any) -> Iterator[Container]:
    parts = thing.values() if isinstance(thing, dict) else thing
    if isinstance(thing, dict | list):
        yield thing
        for part in parts:
            yield from _containers(part)


def _place(document: Any, random_: random.Random) -> tuple[Any, Any]:
    """A container that is not empty, and a key or a position in it."""
    holder = random_.choice([one for one in _containers(document) if one])
    return holder, random_.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))


def _delete(document: Any, random_: random.Random) -> None:
    holder, key = _place(document, random_)
    del holder[key]


def _double(document: Any, random_: random.Random) -> None:
    holder, key = _place(document, random_)
    if isinstance(holder, list):
        holder.append(holder[key])
    else:
        holder[f"{key}_"] = holder[key]


def _swap(document: Any, random_: random.Random) -> None:
    (one, first), (other, second) = _place(document, random_), _place(document, random_)
    kept = json.loads(json.dumps((one[first], other[second])))  # not one inside the other
    one[first] = kept[1]
    if second in other if isinstance(other, dict) else second < len(other):
        other[second] = kept[0]


def _retype(document: Any, random_: random.Random) -> None:
    holder, key = _place(document, random_)
    old = holder[key]
    holder[key] = random_.choice([*VALUES, [old], {"x": old}, str(old)])


def _splice(document: Any, random_: random.Random) -> None:
    holders = [one for one in _containers(document) if one]
    random_.shuffle(holders)
    for holder in holders:
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        texts = [key for key in keys if isinstance(holder[key], str)]  # type: ignore[call-overload]
        if texts:
            key = random_.choice(texts)
            old = holder[key]  # type: ignore[call-overload]
            at = random_.randint(0, len(old))
            holder[key] = old[:at] + random_.choice(STRINGS) + old[at:]  # type: ignore[call-overload]
            return


def _rename(document: Any, random_: random.Random) -> None:
    holder = random_.choice([one for one in _containers(document) if one and isinstance(one, dict)])
    key = random_.choice(list(holder))
    holder[random_.choice(STRINGS[:20])] = holder.pop(key)


def _truncate(held: bytes, random_: random.Random) -> bytes:
    return held[: random_.randrange(len(held))]


def _flip(held: bytes, random_: random.Random) -> bytes:
    changed = bytearray(held)
    for _ in range(random_.choice((1, 1, 1, 8))):
        changed[random_.randrange(len(changed))] ^= 1 << random_.randrange(8)
    return bytes(changed)


def _insert(held: bytes, random_: random.Random) -> bytes:
    at = random_.randrange(len(held))
    return held[:at] + random_.choice(RAW) + held[at:]


def _repeat_line(held: bytes, random_: random.Random) -> bytes:
    lines = held.splitlines(keepends=True)
    at = random_.randrange(len(lines))
    return b"".join([*lines[: at + 1], *lines[at:]])


def _swap_lines(held: bytes, random_: random.Random) -> bytes:
    lines = held.splitlines(keepends=True)
    one, other = random_.randrange(len(lines)), random_.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


_BYTES = (_truncate, _flip, _insert, _repeat_line, _swap_lines)
_STRUCTURES = (_delete, _double, _swap, _retype, _splice, _splice, _rename)
