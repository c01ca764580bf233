"""What a piece of request text offers as argument values: spans and coarse types. Deterministic, regular expressions
only, no candidate information (spec tact.md section 3.3)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from toolshift.data.types import coarse_type, identifier_words

__all__ = ["MAX_SPANS", "coarse_type", "detected_types", "identifier_words", "spans"]

# Every span is one more text to embed, and a request has up to four requirements. No sentence of ToolBench's 1,100
# test instructions has more than 20 spans; only whole multi-sentence requests reach the cap, and they lose n-grams
# around prepositions first.
MAX_SPANS = 24

_QUOTED = re.compile(
    r'"([^"\n]+)"|\u201c([^\u201d\n]+)\u201d|\u00ab([^\u00bb\n]+)\u00bb|`([^`\n]+)`'
    r"|(?<!\w)['\u2018]([^'\u2019\n]+)['\u2019](?!\w)"
)
_WORD = re.compile(
    r"https?://[^\s'\"<>]*[^\s'\"<>.,;:!?)]"
    r"|[^\W_](?:[^\W_]|[-_'\u2019.:/@&+](?=[^\W_]))*"
)
_NUMBER = re.compile(r"[+-]?\d")
_BREAK = re.compile(r"[.,;:!?()\[\]{}\n\"\u201c\u201d]")


def _word_set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_PREPOSITIONS = _word_set(
    "about above across after against along among around as at before behind below between by during except for from "
    "in inside into near of off on onto over per since through to toward towards under until up upon using via with "
    "within without"
)
_DETERMINERS = _word_set("a an the this that these those my your our their his her its some any each every all both")
# Words that end an n-gram, and that do not make a capitalised sequence when a sentence merely starts with them.
_FUNCTION_WORDS = (
    _PREPOSITIONS
    | _DETERMINERS
    | _word_set(
        "i i'm i'd i've i'll we you he she it they me us them and or but so if then also please can could would should "
        "will may might must do does did is are was were be been have has had what which who when where why how there "
        "here let lastly additionally furthermore moreover finally besides hello hi hey thanks thank want wants need "
        "needs like know"
    )
)
_LONGEST = 3


@dataclass(frozen=True, slots=True)
class _Word:
    text: str
    start: int
    end: int
    after_break: bool  # punctuation, or nothing, stands before it
    opens_sentence: bool

    @property
    def lower(self) -> str:
        return self.text.lower().replace("\u2019", "'")


@dataclass(frozen=True, slots=True)
class _Span:
    text: str
    start: int
    rank: int  # 0 = kept first when the cap is reached


def spans(text: str, *, limit: int = MAX_SPANS) -> tuple[str, ...]:
    """The text itself, then its value-like pieces in order of appearance, unique regardless of case.

    Pieces: quoted strings; numbers with a neighbour word; capitalised sequences; 1-3-grams on either side of
    prepositions, which do not cross punctuation, prepositions, determiners or other function words. At most ``limit``
    spans; the kinds fill it in the order named here. An empty text has none.
    """
    whole = " ".join(text.split())
    if not whole or limit < 1:
        return ()
    words = _words(whole)
    found = [*_quoted(whole), *_numbers(words), *_capitalised(words), *_around_prepositions(words)]
    seen = {whole.lower()}
    unique: list[_Span] = []
    for span in sorted(found, key=lambda s: (s.rank, s.start, len(s.text))):
        if span.text.lower() not in seen:
            seen.add(span.text.lower())
            unique.append(span)
    kept = sorted(unique[: limit - 1], key=lambda s: (s.start, s.rank, len(s.text)))
    return (whole, *(span.text for span in kept))


def _words(text: str) -> list[_Word]:
    words: list[_Word] = []
    end = 0
    for match in _WORD.finditer(text):
        gap = text[end : match.start()]
        after_break = not words or _BREAK.search(gap) is not None
        opens = not words or re.search(r"[.!?\n]", gap) is not None
        words.append(_Word(match.group(), match.start(), match.end(), after_break, opens))
        end = match.end()
    return words


def _quoted(text: str) -> Iterator[_Span]:
    for match in _QUOTED.finditer(text):
        content = next(group for group in match.groups() if group is not None).strip()
        if content:
            yield _Span(content, match.start() + 1, rank=0)


def _numbers(words: list[_Word]) -> Iterator[_Span]:
    """A number with the word after it; with the word before it where a break or a function word follows."""
    for i, word in enumerate(words):
        if not _NUMBER.match(word.text):
            continue
        after = words[i + 1] if i + 1 < len(words) else None
        if after is not None and not after.after_break and after.lower not in _FUNCTION_WORDS:
            yield _Span(f"{word.text} {after.text}", word.start, rank=1)
        elif i and not word.after_break and words[i - 1].lower not in _FUNCTION_WORDS:
            yield _Span(f"{words[i - 1].text} {word.text}", words[i - 1].start, rank=1)
        else:
            yield _Span(word.text, word.start, rank=1)


def _capitalised(words: list[_Word]) -> Iterator[_Span]:
    run: list[_Word] = []
    for word in words:
        if run and (word.after_break or not _is_capitalised(word)):
            yield from _sequence(run)
            run = []
        if _is_capitalised(word):
            run.append(word)
    yield from _sequence(run)


def _is_capitalised(word: _Word) -> bool:
    return word.text[0].isupper() and word.lower not in ("i", "i'm", "i'd", "i've", "i'll")


def _sequence(run: list[_Word]) -> Iterator[_Span]:
    """A run of capitalised words, without the word that is capital only because a sentence starts with it."""
    opener = run[0] if run and run[0].opens_sentence else None
    if opener is not None and (len(run) == 1 or opener.lower in _FUNCTION_WORDS):
        mixed = any(char.isupper() for char in opener.text[1:])  # "YouTube", "NASA": a name anywhere
        if not mixed or opener.lower in _FUNCTION_WORDS:
            run = run[1:]
    if run:
        yield _Span(" ".join(word.text for word in run), run[0].start, rank=2)


def _around_prepositions(words: list[_Word]) -> Iterator[_Span]:
    for i, word in enumerate(words):
        if word.lower not in _PREPOSITIONS:
            continue
        after = _content_after(words, i)
        before = _content_before(words, i)
        for n in range(1, _LONGEST + 1):
            if n <= len(after):
                yield _Span(" ".join(w.text for w in after[:n]), after[0].start, rank=3)
            if n <= len(before):
                yield _Span(" ".join(w.text for w in before[-n:]), before[-n].start, rank=4)


def _content_after(words: list[_Word], i: int) -> list[_Word]:
    j = i + 1
    while j < len(words) and words[j].lower in _DETERMINERS and not words[j].after_break:
        j += 1
    content: list[_Word] = []
    for word in words[j : j + _LONGEST]:
        if word.after_break or word.lower in _FUNCTION_WORDS:
            break
        content.append(word)
    return content


def _content_before(words: list[_Word], i: int) -> list[_Word]:
    content: list[_Word] = []
    broken = words[i].after_break
    for word in reversed(words[max(0, i - _LONGEST) : i]):
        if broken or word.lower in _FUNCTION_WORDS:
            break
        content.append(word)
        broken = word.after_break
    return content[::-1]


_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)"
)
_DAY = r"\b\d{1,2}(?:st|nd|rd|th)?(?: of)?"
_ITEM = r"[^\W_][\w'\u2019&.-]*(?: [\w'\u2019&.-]+){0,3}"
_NUMBER_VALUE = (
    r"(?<![\w.])[+-]?\d+(?:[.,]\d+)*(?:st|nd|rd|th|%|k|m|km|kg|mi|lbs?|gb|mb)?(?!\w)"
    r"|\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|fifty|hundred|thousand|million"
    r"|billion|dozen|half)\b"
)
_DATETIME_VALUE = (
    r"\b\d{4}-\d{1,2}(?:-\d{1,2})?\b|\b\d{1,2}[/.]\d{1,2}[/.]\d{2,4}\b|\b\d{1,2}:\d{2}\b|\b\d{1,2}\s?[ap]\.?m\b"
    rf"|\b(?:19|20)\d{{2}}s?\b|\b{_MONTH}\b\.?(?=\s+\d|,|\s*$)|{_DAY} {_MONTH}\b"
    r"|\b(?:january|february|april|june|july|august|september|october|november|december)\b"
    r"|\b(?:mon|tues|wednes|thurs|fri|satur|sun)days?\b|\b(?:to|yester)day\b|\btomorrow\b|\btonight\b"
    r"|\b(?:this|next|last|past|coming|current|previous) (?:\d+ |few )?"
    r"(?:hour|day|night|morning|week|weekend|month|quarter|season|year|decade)s?\b"
)
# "May" is a month only as a capitalised word beside a number, a comma, the end or a preposition.
_MAY = rf"\bMay\b(?=\s+\d|,|\s*$)|{_DAY} May\b|\b(?:in|of|since|until|by) May\b"
_URL_VALUE = (
    r"\bhttps?://\S+|\bwww\.\S+"
    r"|(?<![@\w.-])(?:[a-z0-9-]+\.)+(?:com|org|net|io|edu|gov|dev|app|ai|co|info)\b(?!@)"
)
_GEO_VALUE = (
    r"[+-]?\d{1,3}\.\d+\s*\u00b0?\s*[NS]?\s*[,;/ ]\s*[+-]?\d{1,3}\.\d+|\b\d{1,3}(?:\.\d+)?\s*\u00b0"
    r"|\b(?:latitudes?|longitudes?|coordinates|geolocation|gps)\b"
)
_DETECTORS: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("number", re.compile(_NUMBER_VALUE, re.IGNORECASE)),
    (
        "boolean",
        re.compile(r"\b(?:true|false|yes\s*(?:/|or)\s*no|whether|(?:en|dis)abled|turn(?:ed)? (?:on|off))\b", re.I),
    ),
    ("datetime", re.compile(_DATETIME_VALUE, re.IGNORECASE)),
    ("datetime", re.compile(_MAY)),
    ("url", re.compile(_URL_VALUE, re.IGNORECASE)),
    ("email", re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)+")),
    ("geo", re.compile(_GEO_VALUE, re.IGNORECASE)),
    ("list", re.compile(rf"{_ITEM}(?:, {_ITEM})+,? (?:and|or) {_ITEM}|\[[^\[\]]+,[^\[\]]+\]|\w+(?:,\w+){{2,}}")),
)


def detected_types(text: str) -> frozenset[str]:
    """Coarse types for which the text offers a value: number, boolean, datetime, url, email, geo, list, string.

    "string" is present whenever there is a span beyond the text itself, since anything named can be passed as text.
    A year or "3 days" counts as number and as datetime where both readings exist. Place names are strings: telling
    them from other names would take a gazetteer.
    """
    types = {name for name, pattern in _DETECTORS if pattern.search(text)}
    if len(spans(text)) > 1:
        types.add("string")
    return frozenset(types)
