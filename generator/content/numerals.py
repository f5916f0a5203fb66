"""Numbers that somebody typed: which words of a text hold a numeral, or spell a quantity.

In: a text without its expressions and its code. Out: the places that a value should fill.
"""

import ast
import re
from collections.abc import Iterator

_WORD = re.compile(r"[^\W_](?:[^\W_]|[_.,:/·×^%°'’-](?=[^\W_]))*%?")
HYPHENED = re.compile(r"\b(?:ZeRO-[123]|GPT-[234]|[Aa]ll-(?:gather|reduce)|[Rr]educe-scatter)\b")
_NAME = re.compile(  # fp32, 1F1B, 3D, but not took37ms
    r"(?!x\d|\w*\d(?:[mµun]s|min|[KMGT]i?B)$)[^\W\d]\w*|\dF\dB|\dD", re.IGNORECASE
)
_NUMBERS = (
    "five|six|seven|eight|nine|ten|eleven|twelve|(?:thir|four|fif|six|seven|eigh|nine)teen|twenty|"
    "(?:thir|for|fif|six|seven|eigh|nine)ty|hundreds?|thousands?|millions?|billions?|trillions?"
)
_SHARE = r"%|per\s?cent"
_SIZE = r"(?:[KMGTP]i?|kilo|mega|giga|tera|kibi|mebi|gibi|tebi)(?:B|b|bits?|bytes?)(?:/s)?"
_LONG_UNIT = (
    rf"(?:{_SHARE}|[mµun]s|mins?|(?:m|nano-?|micro-?|milli-?)?sec(?:ond)?s?|(?:minute|hour|day|week|month|year)s?|"
    rf"{_SIZE}|(?:bytes?|bits?|B)/s|[kMGT]?Hz|[KMGTPE]?FLOPs?(?:/s)?|(?:steps|samples|tokens)/s|watts?|joules?|°C|dollars?|euros?)"
)
# Few enough to count, which only with a unit or in a ratio are a quantity.
_FEW = "two|three|four|several|a few|(?<!as )(?<!how )many"
_COMPARED = r"\s+(?:as|more|less|fewer|the|over|\w+er)"
_WHOLE_UNIT = rf"(?:milli|micro|nano)-?second|{_SIZE}|[mµ]s"
_SPELLED_UNIT = (
    rf"(?:{_FEW})\s+(?:times{_COMPARED}|{_LONG_UNIT})|(?<!of\s)an?\s+(?:{_WHOLE_UNIT})|"
    rf"(?:one|an?\s+(?:full|whole))\s+(?:{_WHOLE_UNIT}|second|byte|bit|minute|hour|day|week)|"
    r"(?:for|takes?|took|lasts?|lasted)\s+an?\s+(?:minute|hour|day|week)"
)
# What names of methods hold: double hashing, half precision.
_NAMED = "precision|hashing|buffer(?:s|ing)?|descent|linked"
SPELLED = re.compile(
    rf"\b(?=\w)(?:twice|thrice|hal(?:f|ves?|ved|ving)|quarter(?:s|ed|ing)?|dozens?|orders?\s+of\s+magnitude|"
    rf"(?:doubl|tripl|trebl|quadrupl|quintupl|sextupl|octupl|decupl)(?:e[sd]?|ing|y)|"
    rf"(?:couple|handful|tens|a\s+score)\s+of|scores\s+of\s+times|myriads?|umpteen|zillions?|"
    rf"(?:single|double|two|three|four)-digit|(?:one|two|three)[- ](?:third|fourth)s?|decades?|"
    rf"(?:every|each)\s+(?:second|third|fourth)|(?:one|two|three)\s+(?:in|out\s+of)\s+(?:two|three|four)|"
    rf"(?:two|three|four)[- ]to[- ](?:one|two|three)|(?:sub|multi)-?\w*(?:second|byte)s?|"
    rf"a\s+third(?=\s*(?:[.,;:!?)]|$))|"
    rf"thirds?\s+(?:of|as|less|more|\w+er)|point\s+(?:zero|one|two|three|four)|"
    rf"(?:fif|six|seven|eigh|nin|ten|eleven|twelf|[a-z]+teen|twentie|hundred|thousand|million)ths?|per\s?(?:cent|mille)|"
    rf"percentage\s+points?|factors?\s+of\s+(?:two|three|four)|{_SPELLED_UNIT}|"
    rf"(?-i:[IVX]{{2,}}|[IVX]+(?=[- ](?:times|fold)))|"
    rf"(?:{_FEW}|multi|{_NUMBERS})-?fold|{_NUMBERS})\b(?![- ](?:{_NAMED})\b)",
    re.IGNORECASE,
)

# What no program sets: a quantity with its unit, or a ratio. No comment of a program states it.
MEASURE = re.compile(
    rf"(?<![\w.])(?:\d[\d.,]*[\s-]*(?:{_LONG_UNIT}|[sB]|bytes?|bits?)|\d[\d.,]*\s*[x×]{_COMPARED}|"
    rf"(?:\d[\d.,]*|{_NUMBERS})[\s-]*(?:times|fold){_COMPARED}|(?:{_NUMBERS})\s+{_LONG_UNIT}|"
    rf"(?:twice|thrice|half|double|quarter|third){_COMPARED}|{_SPELLED_UNIT})(?!\w)",
    re.IGNORECASE,
)

UNIT = rf"(?:{_LONG_UNIT}|[Bbsh]|bits?|bytes?)"  # of time, bytes, operations and shares
NAMED_UNIT = re.compile(rf"(?<!\w)(?:{UNIT}|operations?|ops)(?!\w)", re.IGNORECASE)
_NUMBER = r"\d[\d.,]*(?:e[+-]?\d+)?"
QUANTITY = re.compile(  # a number with its unit
    rf"[<>=~≈≤≥±+−-]?\s*{_NUMBER}\s*(?:{UNIT}|[x×](?:\s+(?:\w+er|more|less))?|"
    r"(?:times|-?fold)(?:\s+[a-z]+)?)",  # but a factor before a name is a formula: 4 × layers
    re.IGNORECASE,
)
_SIDE = re.compile(rf"{QUANTITY.pattern}|[+−-]?(?![01]$){_NUMBER}", re.IGNORECASE)
_RELATION = re.compile(r"[<>!:~]?=+|[<>≤≥≈≠~→←∈]|:\s|\b(?:is|was|of|to|by|at|took|takes)\b")
_COMMANDS = ("python ", "torchrun ", "--")
_WITHIN = re.compile(
    rf"(?<![\w.])(?:\d+\.\d+|^\d+/\d+$|^(?:\d,?){{5,}}$|{_NUMBER}\s*{_LONG_UNIT})(?![\w.])",
    re.IGNORECASE,
)
# Several words, one of them long enough to be one of a language.
_WORDS = re.compile(r"(?=.*[a-z]{4})[\w%.,;:’'-]+(?: [\w%.,;:’'-]+)+")
NOUN = re.compile(  # what is sent or computed; but a unit in a head, and as in: bytes: 12
    r"(?<!\bin )\b(?:bytes|bits|FLOPs?)\b(?!:)", re.IGNORECASE
)
NAMED = re.compile(  # a unit in words; its group is the power that a value in it has
    rf"(?<![\w-])(?:(?P<style>{_SHARE})|(?P<num_bytes>{_SIZE}|(?:bytes?|bits?|B)/s|bytes|bits|"
    r"(?:(?<=, )|(?<=\())B(?=\)|$))|"
    r"(?P<num_flops>[KMGTPE]?FLOPs?(?:/s)?)|(?P<num_seconds>[mµn]s|(?:milli|micro|nano)-?seconds?|seconds|"
    r"minutes?|hours?|days?|(?:(?<=, )|(?<=\())s(?=\)|$)))(?![\w-])",
    re.IGNORECASE,
)
AFTER_VALUE = re.compile(  # of a text with a private-use character for each expression
    r"\ue000~*(?![~])(?:[\s*_`{[(-]|\\(?:[,;:! ]|[a-z]+(?=\{)))*"
    rf"((?:(?:per|an?|each|every|full|whole|GPU)\s+)?(?:{UNIT}|k))(?![\w'’])(?!\s+time)",
    re.IGNORECASE,
)  # fmt: skip


def blank(match: re.Match[str]) -> str:
    """White space as long as a match."""
    return re.sub(r"\S", " ", match[0])


def states_quantity(code: str) -> bool:
    """Whether a code span is a quantity, compares one, or holds a decimal or a number with unit."""
    parts = re.split(r"[,;&|]|\band\b", re.sub(r"[()\[\]{}]", "", code))
    sides = [[side.strip() for side in _RELATION.split(part)] for part in parts]
    is_compared = any(len(part) > 1 and any(map(_SIDE.fullmatch, part)) for part in sides)
    is_stated = QUANTITY.fullmatch(code.strip()) or _WITHIN.search(code)
    is_command = code.removeprefix(".venv/bin/").startswith(_COMMANDS) and " =" not in code
    is_said = _reads_as_words(code) and (SPELLED.search(code) or any(numerals(code)))
    return bool(is_stated or ((is_compared or is_said) and not is_command))


def _reads_as_words(code: str) -> bool:
    """Whether code is several words, one of them of a language, and no Python."""
    try:
        return bool(_WORDS.fullmatch(code)) and not ast.parse(code)
    except SyntaxError:
        return " -" not in code


def numerals(plain: str) -> Iterator[tuple[int, str]]:
    """Yield (offset, word) for each word with digits that is no name; no spelled numbers.

    A word that begins with a letter is a name (fp32), and so are a few others of the field (1F1B).
    """
    plain = HYPHENED.sub(blank, plain)
    if any(map(str.isnumeric, plain)):
        for word in _WORD.finditer(plain):
            letters = "".join(char if char.isalnum() or char == "%" else " " for char in word[0])
            if any(map(_is_numeral, letters.split())):
                yield word.start(), word[0]


def _is_numeral(piece: str) -> bool:
    digits = [char for char in piece if char.isnumeric()]  # of any script
    is_name = _NAME.fullmatch(piece) and all(map(str.isascii, digits))
    return bool(digits) and not is_name
