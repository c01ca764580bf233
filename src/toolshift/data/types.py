"""Words of identifiers, and the coarse argument types that releases spell in many ways.

It lives beside the records because the adapters need it; the text stage imports it from here.
"""

from __future__ import annotations

import re
import unicodedata

from toolshift.data.records import COARSE_TYPES

_ALPHANUMERIC = re.compile(r"[^\W_]+")
_PARENTHESES = re.compile(r"\([^()]*\)|\[[^\[\]]*\]|<[^<>]*>")
_OPTIONAL = re.compile(r"^optional[\[(](.*)[\])]")
_ALTERNATIVES = re.compile(r"[|,/]|\bor\b")

# The words that occur in the releases at hand (ToolBench, APIBank, APIBench, BFCL with its Java and JavaScript
# halves, TaskBench, ToolEyes, TRAJECT-Bench), plus the usual synonyms of JSON Schema and of typed languages.
_RAW_TYPES: dict[str, str] = {
    word: coarse
    for coarse, words in {
        "number": "number numeric integer int int32 int64 long short byte float double decimal real bigint biginteger",
        "boolean": "boolean bool flag",
        "datetime": "date datetime time timestamp",
        "url": "url uri link",
        "email": "email mail",
        "geo": "geopoint geo point latitude longitude latlng coordinate coordinates",
        "list": "array arraylist list tuple set sequence vector collection",
        "object": "object dict dictionary map hashmap json struct record mapping",
        "string": "string str text char character enum varchar directory file path image audio video literal",
        "unknown": "unknown any binary null none undefined void",
    }.items()
    for word in words.split()
}

_NAME_TYPES: dict[str, str] = {
    word: coarse
    for coarse, words in {
        "datetime": "date datetime time timestamp day month year dob birthday birthdate since until",
        "url": "url uri link href website urls links",
        "email": "email mail emails",
        "geo": "latitude longitude lat lon lng long latlng latlon latlong coordinate coordinates geopoint geolocation",
    }.items()
    for word in words.split()
}
# Raw words that say more than "string": a closed set of values, a payload.
_CLOSED = re.compile(r"\b(enum|literal|binary)\b")
# Tails that leave the head in front of them in charge: "date_from" is a date, "date_format" is not.
_NEUTRAL_TAILS = frozenset(
    ("from", "to", "start", "end", "begin", "min", "max", "gte", "lte", "gt", "lt", "utc", "gmt", "iso", "address")
)


def split_words(text: str) -> list[str]:
    """Lower-case words of any text: non-alphanumerics separate, and so do the humps of camelCase.

    Digits stay with their letters ("mp3", "covid19"); letters of all scripts are kept; text is normalised to NFKC
    first, so that a letter and its combining accent are one letter. Source: spec baselines.md section 1 (BM25 tokens).
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text)
    words: list[str] = []
    for word in _ALPHANUMERIC.findall(text):
        # Only mixed-case words can have humps; this skips the slow path for nearly all running text.
        humps = [word] if word.islower() or word[1:].islower() or word.isupper() else _humps(word)
        words.extend(hump.lower() for hump in humps)
    return words


def _humps(word: str) -> list[str]:
    """Split "getHTTPServer2Go" into get, HTTP, Server2, Go."""
    cuts = [0]
    for i in range(1, len(word)):
        if not word[i].isupper():
            continue
        starts_hump = not word[i - 1].isupper()
        ends_acronym = i + 1 < len(word) and word[i + 1].islower()
        if starts_hump or ends_acronym:
            cuts.append(i)
    return [word[a:b] for a, b in zip(cuts, [*cuts[1:], len(word)], strict=True)]


def identifier_words(name: str) -> str:
    """An identifier as plain lower-case words: "getUser_nameByID" -> "get user name by id" (spec tact.md 3.3)."""
    return " ".join(split_words(name))


def coarse_type(raw: str, name: str = "") -> str:
    """One of ``COARSE_TYPES`` for the type word of a release, refined by the argument's name.

    A specific raw word ("NUMBER", "DATE (YYYY-MM-DD)", "list(str)") always decides. Only where the release says
    merely "string", or nothing, does the name refine it (``start_date``, ``callback_url``): ToolBench has no raw
    word for e-mail addresses and URLs, so these types would otherwise never occur. Unknown words give "unknown".
    """
    coarse = _from_raw(raw)
    if coarse not in ("string", "unknown") or _CLOSED.search(raw.lower()):
        return coarse
    return _from_name(name) or coarse


def _from_raw(raw: str) -> str:
    lowered = _OPTIONAL.sub(r"\1", raw.lower().strip())
    previous = None
    while previous != lowered:  # "list(dict(str))": what stands inside brackets describes the elements
        previous, lowered = lowered, _PARENTHESES.sub(" ", lowered)
    for alternative in _ALTERNATIVES.split(lowered):
        for word in re.findall(r"[a-z]+(?:32|64)?", alternative):
            coarse = _RAW_TYPES.get(word) or _RAW_TYPES.get(word.removesuffix("s"))
            if coarse is not None and coarse != "unknown":
                return coarse
    return "unknown"


def _from_name(name: str) -> str | None:
    words = split_words(name)
    while len(words) > 1 and words[-1] in _NEUTRAL_TAILS:
        words.pop()
    if len(words) > 1 and words[-1] == "long" and words[-2] not in ("lat", "latitude"):
        return None  # "how_long" is a duration, "lat_long" and a bare "long" are positions
    return _NAME_TYPES.get(words[-1]) if words else None


assert set(_RAW_TYPES.values()) == set(COARSE_TYPES), "every coarse type needs at least one raw word"
