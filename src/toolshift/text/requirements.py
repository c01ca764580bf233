"""The requirements of a task: at most four action clauses with their local constraints, read off the task text alone.

Deterministic, no model, no candidate information, so the same tuple serves every candidate and every view. Tags: [G]
is given by the paper, [R] is our reconstruction (spec tact.md section 3.1). Extensions of the [R] algorithm that real
requests made necessary are marked [R+]: a bare "and" or comma also separates clauses, but only before a verb with an
object; quotations, brackets, addresses and abbreviations are never cut; numbered and bulleted items are sentences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from toolshift.text.lexical import tokens

__all__ = ["MAX_REQUIREMENTS", "longest", "merge_similar", "requirements"]

MAX_REQUIREMENTS = 4

# Stands for every protected character. Private use: neither a word, a space nor punctuation to any pattern below.
_HIDDEN = "\ue000"


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# ------------------------------------------------------------------------------------------------------------- words

# Lemmas of what a request asks for. Broad on purpose: they only count where a request can start.
_VERBS = _words(
    "access achieve acquire activate add adjust advise alert align allocate allow analyse analyze annotate announce "
    "answer append apply approve arrange assemble assess assign assist attach authenticate authorize autocomplete "
    "automate book bookmark boost brainstorm browse build buy calculate call cancel caption capture cast categorise "
    "categorize change charge chat check choose cite clarify classify clean clear clone close cluster collect combine "
    "comment compare compile compose compress compute conduct configure confirm connect construct consult contact "
    "continue convert copy correct count craft create crop customise customize cut deactivate debug decide decode "
    "decrease decrypt define delete deliver demonstrate deploy describe design detail detect determine develop "
    "diagnose differentiate disable discover discuss display divide do donate double download draft draw edit "
    "elaborate email embed enable encode encrypt engage enhance enlighten enroll enter enumerate establish estimate "
    "evaluate examine exchange execute exhibit expand explain explore export extract fetch figure file fill filter "
    "find finish fix flip fly follow forecast format forward fund gather generate geocode get give go google grab "
    "grant group guess guide handle help highlight identify illustrate implement import improve include increase "
    "indicate inform initialise initialize initiate insert inspect install integrate interpret introduce invest "
    "investigate invite join judge keep label launch lead learn line list listen load locate lock log look lookup "
    "lower mail make manage map mark match measure merge message minimize mix modify monitor move multiply mute name "
    "navigate note notify obtain offer open optimise optimize order organise organize outline paint paraphrase park "
    "parse pause pay perform pick pinpoint place plan play plot point populate post practice predict prepare present "
    "preview print prioritize process produce promote pronounce propose provide publish pull purchase push put query "
    "quote raise rank rate read recall recognise recognize recommend record reduce refer refine register remind "
    "remove rename render renew rent repeat rephrase replace reply report represent request reschedule research "
    "reserve reset resize resolve respond restart retrieve return reveal reverse reverse-geocode review revise "
    "rewrite roll rotate round run sample save scan schedule scrape search secure seek segment select sell send "
    "separate set share shorten show shuffle simplify simulate solve sort specify split start stop store stream "
    "subscribe subtract suggest sum summarise summarize supply switch synthesise synthesize tag take talk teach tell "
    "test text toggle touch trace track train transcribe transfer transform translate transmit trim turn tweet unlock "
    "unsubscribe update upgrade upload use utilise utilize validate verify view visualise visualize walk watch "
    "withdraw work write"
)
# Verbs that mostly continue a purpose ("... and make an informed decision"), hence no cut at a bare "and" or comma.
_WEAK_VERBS = _words(
    "achieve allow do engage enhance enlighten ensure follow go google guess handle help improve include keep learn "
    "let line make manage point practice raise secure start touch use utilise utilize work"
)
# Nouns at least as often as verbs: even ", and supply of Bitcoin" needs an object to be a request.
_NOUN_VERBS = _words(
    "access alert answer book boost cast change charge chat clean clear close comment contact copy correct count "
    "design detail email estimate exchange file filter forecast fund grant group guide handle help highlight judge "
    "label launch lead light line list lock log look mail map mark market match measure move name note offer open "
    "order outline paint park pause place plan play plot point post present preview print process purchase query "
    "quote rank rate record refer register rent reply report request research reserve reset return review run sample "
    "schedule search secure segment separate share show sort split start stop store stream supply switch tag talk "
    "test text touch trace track train transfer turn tweet update upgrade use view walk watch work"
)
# Verbs whose object follows a particle: "and search for flights".
_PARTICLE_VERBS = _words(
    "apply check connect convert filter listen log look navigate search sort subscribe switch turn wait"
)
_PARTICLES = _words("at by for in into off on out over through to up with")
# What one may want to do without asking for an action, and what else a request may want ("I want to know ...").
_AIMS = _words(
    "achieve develop engage enhance explore improve invest invite keep learn make organise organize plan practice "
    "prepare raise start write"
)
_WANTED = _words("ask attend be buy eat have hear know receive rent see stay travel try understand use visit")
_NO_GERUND = _words("allow do follow go include lead let use utilise utilize work")


def _gerund(verb: str) -> Iterator[str]:
    """The regular -ing forms of a verb; a consonant after one vowel may double or not ("cancelling", "canceling")."""
    if verb.endswith("e") and not verb.endswith(("ee", "ye", "oe")):
        yield verb[:-1] + "ing"
        return
    yield verb + "ing"
    if re.search(r"[^aeiou][aeiou][bdglmnprt]$", verb):
        yield verb + verb[-1] + "ing"


_GERUNDS = frozenset(form for verb in _VERBS - _NO_GERUND for form in _gerund(verb))
_OBJECT_STARTS = _words(
    "a all an another any both details each every five four her him his how if information it its me more my one "
    "other our several some that the their them these this those three two us what when where whether which who why "
    "your"
)
_QUESTION_WORDS = _words("how how's what what's when when's where where's which who whom who's whose why")
_STOP = _words(
    "a about additionally after all also am an and any anyone are as at be been but by can could d did do does etc "
    "finally first for from furthermore had has have hello help hey hi how i if in into is it its just kindly know "
    "lastly let like ll m make may me might more my need needed next of oh ok on or our out over please re s same see "
    "should since so some such t thank thanks that the their them then there these they this those to too up us ve "
    "very want was we well were what when where which while who why will with would you your"
)

# ------------------------------------------------------------------------------------------------------------ patterns

_APOSTROPHE = "['\u2019]"
_PROTECTED = re.compile(
    r"https?://[^\s'\"<>]*[^\s'\"<>.,;:!?)]|(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+"
    r'|"[^"\n]+"|\u201c[^\u201d\n]+\u201d|\u00ab[^\u00bb\n]+\u00bb|\u300c[^\u300d\n]+\u300d|`[^`\n]+`'
    r"|(?<!\w)'(?:[^'\n]|(?<=\w)'(?=\w))+'(?!\w)|(?<!\w)\u2018(?:[^\u2018\u2019\n]|(?<=\w)\u2019(?=\w))+\u2019(?!\w)"
    r"|\((?!\d{1,2}\))[^()\n]*\)|\[[^\[\]\n]*\]|\{[^{}\n]*\}"
)
_OUTER_QUOTES = re.compile(r'\s*"([^"]*)"\s*|\s*\u201c([^\u201c\u201d]*)\u201d\s*')
_SPEECH_END = re.compile(r"[.?!]+[\"'\u2019\u201d)]\Z")
# Abbreviations that never end a sentence, and those that do where a request or a pronoun follows ("the U.S. Find").
_NEVER_LAST = re.compile(
    r"\b(?:e\.g|i\.e|cf|vs|viz|dr|mrs?|ms|mx|prof|rev|gen|sen|gov|capt|lt|sgt|nrs?|vol|ver|fig|approx|ca|dept|resp)\.\Z",
    re.IGNORECASE,
)
_MAYBE_LAST = re.compile(
    r"\b(?:etc|inc|ltd|corp|co|jr|sr|bros|llc|min|max|hrs?|lbs?|oz|sq|st|mt|ft|nos?|est|ave|blvd|rd|jan|feb|mar|apr|jun"
    r"|jul|aug|sept?|oct|nov|dec|(?:[a-z]\.)*[a-z])\.\Z",
    re.IGNORECASE,
)
_END = re.compile(
    rf"[?!;]+(?:\.|[?!])*[\"')\]\u201d\u2019]*(?=\s|\Z|[A-Z])|\.+[\"')\]\u201d\u2019]*(?=\s|\Z|[A-Z]|{_HIDDEN})"
    r"|[\u3002\uff01\uff1f\uff1b\u0964\u061f\u06d4]+|\n"
)
_NUMBERED = re.compile(r"(?:(?<=\s)|\A)(?:\((\d{1,2})\)|(\d{1,2})[.)])(?=\s+\S)")
_BULLET = re.compile(r"^[ \t]*[-*\u2022\u2023\u25aa\u00b7\u2013\u2014+][ \t]+", re.MULTILINE)

_LINK = (
    r"(?:and|but|plus|as well as|followed by|in addition|additionally|furthermore|moreover|besides that|besides"
    r"|also|then|next|after that|after this|afterwards?|subsequently|finally|lastly|last but not least|last|later"
    r"|at the same time|along with that|first of all|firstly|first|secondly|second|thirdly|third|to start|oh|so|okay"
    r"|ok|well|now|sure|alright|great|hi there|hi|hello there|hello|hey|greetings|on top of that|once done|by the way)"
)
_JOINT = re.compile(rf"(?:\s*[,:]\s*|\s+)(?:{_LINK}\b(?:\s*,)?\s+)+|\s*,\s+", re.IGNORECASE)
_SEQUENCE = re.compile(r"\b(?:then|next|after|afterwards?|subsequently|finally|lastly|last|first|second|third)")
_LEAD = re.compile(rf"{_LINK}\b[\s,.!:]*|[a-z]+ly,\s|[\s,;:.!?\-\u2013\u2014]+", re.IGNORECASE)
# "Next, find ..." but "next week's weather": without a comma these need a request behind them.
# In the middle of a clause these are parts of speech of their own: "from the first record".
_NOT_ALWAYS_JOINT = re.compile(
    r"\s+(?:(?:first|second|third|next|last|now|later|well|great|sure|ok|okay|oh|so|hi|hello|hey|plus)\s+)+",
    re.IGNORECASE,
)
# Nothing ends here: "It would be nice if you could also provide ...".
_OPEN_END = re.compile(
    rf"\b(?:i|you|we|they|he|she|can|could|would|will|shall|should|must|may|might|to|the|a|an|of|please|and|or"
    rf"|i{_APOSTROPHE}(?:d|m|ve|ll)|we{_APOSTROPHE}(?:d|re|ve|ll))\Z",
    re.IGNORECASE,
)
_NOT_ALWAYS_LEAD = re.compile(
    r"(?:first|second|third|next|last|now|later|well|great|sure|so|plus|besides|to start) *\Z", re.IGNORECASE
)
_WORD = re.compile(rf"[^\W_](?:[^\W_]|[-{_APOSTROPHE[1:-1]}](?=[^\W_]))*")
_CAPITAL = re.compile(r"\s[A-Z]")
_SPACES = re.compile(r"[\s,]+")

_ADVERB = r"(?:(?:also|just|really|still|then|now|only|actually|currently|urgently|definitely|simply|even|all) )*"
_SUBJECT = r"(?:i|we|he|she|they|you|someone|(?:my|our|his|her|their|the|a|an) [\w-]+(?: [\w-]+)?)"
_FRAME_TEXT = (
    rf"(?:please|kindly)\b(?=\s+[\w{_HIDDEN}])"
    r"|(?:can|could|would|will|may|might|should|shall) (?:you|we|i|someone|anyone|it)\b"
    rf"|(?:{_SUBJECT} {_ADVERB})?(?:need|want|wish|require|request)s?\b(?! (?:of|from|for|is|are|was)\b)"
    r"|would (?:like|appreciate)\b"
    rf"|(?:i|we)(?:{_APOSTROPHE}d| would| should) {_ADVERB}(?:like|love|appreciate|prefer to|be (?:grateful|interested|"
    r"delighted|happy|curious|thankful|glad|very))\b"
    rf"|(?:(?:i|we)(?:{_APOSTROPHE}(?:m|re|ve been)| am| are| was| were|(?: have)? been) {_ADVERB})?"
    r"(?:(?:desperately |specifically |actively )?(?:looking (?:for|to|into)|looking up|searching|seeking)"
    r"|(?:very |particularly |especially |specifically )?(?:interested|curious|keen)|wondering|trying to|hoping to"
    r"|in (?:desperate |urgent )?(?:need|search) of|in (?:desperate |urgent )?search for)\b"
    rf"|(?:i|we) {_ADVERB}(?:wonder|hope you)\b|let{_APOSTROPHE}?s\b|let me (?:know|see|have)\b"
    rf"|(?:it(?:{_APOSTROPHE}d| would| will)|that would) (?:also )?be \w+|do you\b|would you mind\b|feel free to\b"
    r"|(?:is|are) there\b|how about\b|any (?:chance|idea|suggestion|recommendation)s?\b"
)
_FRAME = re.compile(_FRAME_TEXT, re.IGNORECASE)
_AIM = re.compile(r"(?:(?<=\bto)|\sto)\s(?:\w+ly\s)?(\w+)", re.IGNORECASE)
# A request that follows something else in its clause: "For my research, I need ...", "My dog is ill, can you ...".
_EMBEDDED = re.compile(
    r"\b(?:can|could|would|will) you\b|\bplease\b|\bhelp (?:me|us)\b"
    rf"|,\s(?:and |but |so )?(?:{_FRAME_TEXT})",
    re.IGNORECASE,
)
_PREAMBLE = re.compile(
    r"(?:after|before|once|when|while|if|since|as|for|from|using|based|given|with|in|on|at|by|to|following|upon|during"
    r"|among|out|through|regarding|concerning|considering|because|due|whenever|where|until|assuming|instead|without"
    r"|thanks|having|between|within|alongside|along|according)\b",
    re.IGNORECASE,
)
_AUXILIARY = re.compile(
    rf"(?:is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|should|shall|may|might|isn{_APOSTROPHE}t"
    rf"|aren{_APOSTROPHE}t|don{_APOSTROPHE}t|doesn{_APOSTROPHE}t|didn{_APOSTROPHE}t)\b",
    re.IGNORECASE,
)
# A cut here would tear a relative or purpose clause: "a bakery that can bake a cake and deliver it".
_DEPENDENT = re.compile(
    r"\b(?:that|which|who)\s(?:\w+\s)?(?:can|could|will|would|should|may|might)\b"
    r"|\bso (?:that )?(?:i|we|they|he|she|it|my)\b|\bin order to\b|\b(?:to|will|would) (?:be able|help|allow|enable)\b"
    r"|\bthat (?:[a-z]+s|allows?|lets?|helps?)\b(?!\W+(?:is|are)\b)",
    re.IGNORECASE,
)
_ASKS_BACK = re.compile(
    r"\b(?:what(?: i|'|\u2019)s|(?:tell|give|provide)(?: me)?(?: with)?|may i (?:have|know|ask))"
    r" your (?:\w+ ){0,2}(?:name|username|id|password|e-?mail|token|number|address|age|account|identifier)\b"
    r"|\bwould you like\b|\bdo you (?:want|need)\b|\bhow (?:else )?(?:can|may) i (?:help|assist)\b"
    r"|\b(?:can|may) i (?:help|assist) you\b|\banything else\b|\blet me (?:check|search|see|look|authenticate)\b",
    re.IGNORECASE,
)
# A request whose only object is what was said before: "Can you help me with this?".
_EMPTY_REQUEST = re.compile(
    r"(?:please |(?:can|could|would|will) (?:you|someone|anyone) )(?:please |kindly )*(?:be able to )?"
    r"(?:(?:help|assist) (?:me|us|him|her|them) (?:in |with )?\w+(?= (?:this|that|it)\b)"
    r"|help|assist|advise|do|find|get|provide|fetch|show|give|tell|guide|support|suggest|recommend|enlighten)"
    r"(?: (?:me|us|him|her|them|out|with|in|on|about|this|that|it|these|those|one|some|any|all|of|the|for|please"
    r"|find|finding|information|info|details|data|task|matter|request|issue))*\W*\Z",
    re.IGNORECASE,
)
_COURTESY = re.compile(
    r"(?:thank|thanks|cheers|regards|best regards|hi|hello|hey|greetings|good (?:morning|afternoon|evening|day)"
    r"|sure|certainly|of course|okay|ok|great|got it|i see|alright|i understand|i appreciate|i(?:'m|\u2019m| am)"
    r" (?:so |really |very )?(?:excited|eager|thrilled|looking forward)|i (?:can't|can\u2019t|cannot) wait|i hope)\b",
    re.IGNORECASE,
)
_FIRST_PERSON = re.compile(
    rf"(?:i|we|my|our|it{_APOSTROPHE}?s|there|this|today|lately|recently|as)\b|(?:i|we){_APOSTROPHE}", re.IGNORECASE
)
_NAME = re.compile(r"(?<=[^\W_][\s,])(?!I\b)[A-Z][^\W_]|\b[a-z]+[A-Z]|\b[A-Z]{2,}")
_ASCII_WORD = re.compile(r"[A-Za-z]{2,}")


# ------------------------------------------------------------------------------------------------------------- public


def requirements(text: str, *, limit: int = MAX_REQUIREMENTS, jaccard: float = 0.8) -> tuple[str, ...]:
    """The M <= ``limit`` requirements of a task in text order, single-spaced; none exactly for a blank text.

    [G] deterministic, task text only: action clauses with their local constraints, near-duplicates merged, at most 4.
    [R] how (spec tact.md section 3.1): sentences; clauses; a clause that requests nothing is a constraint of the one
    before it, or of the first; courtesy and motivation without detail are dropped; of two clauses with content-token
    Jaccard >= ``jaccard`` the longer stays; the ``limit`` clauses with most content tokens stay; without any request
    (among them all texts in languages other than English) the whole text is the only requirement.

    The caller that has embeddings may go on with ``merge_similar``.

    Raises:
        ValueError: if ``limit`` < 1 or ``jaccard`` lies outside (0, 1].
    """
    if limit < 1:
        raise ValueError(f"limit must be at least 1, got {limit}")
    if not 0 < jaccard <= 1:
        raise ValueError(f"jaccard must lie in (0, 1], got {jaccard}")
    whole = " ".join(text.split())
    if not whole:
        return ()
    lines = _normalised(text)
    found = _attached(list(_clauses(lines)), lines)
    content = [_content(clause) for clause in found]
    kept = _without_near_duplicates(
        [len(words) for words in content],
        similar=lambda i, j: _jaccard(content[i], content[j]) >= jaccard,
    )
    return tuple(found[i] for i in _longest(kept, content, limit=limit)) or (whole,)


def longest(texts: Sequence[str], *, limit: int = MAX_REQUIREMENTS) -> tuple[str, ...]:
    """The ``limit`` texts with most content tokens, ties to the earlier, in their order (spec tact.md section 3.1, [R]
    step 6); for a caller that merged further."""
    content = [_content(text) for text in texts]
    return tuple(texts[i] for i in _longest(range(len(texts)), content, limit=limit))


def merge_similar(texts: Sequence[str], vectors: NDArray[Any], *, cosine: float = 0.9) -> tuple[int, ...]:
    """Indices of the requirements that stay when those with embedding cosine >= ``cosine`` merge, ascending.

    [R] spec tact.md section 3.1, step 5: the longer text (in content tokens; ties: the earlier) stays.

    Args:
        texts: M requirements.
        vectors: their unit vectors, (M, d).
        cosine: similarity from which two requirements are one.

    Raises:
        ValueError: if the shapes disagree, a row is no unit vector, or ``cosine`` lies outside (0, 1].
    """
    vectors = np.asarray(vectors, dtype=np.float64)
    if vectors.ndim != 2 or len(vectors) != len(texts):
        raise ValueError(f"expected one row per text, (M, d) with M={len(texts)}, got shape {vectors.shape}")
    if not 0 < cosine <= 1:
        raise ValueError(f"cosine must lie in (0, 1], got {cosine}")
    if not np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-3):
        raise ValueError("vectors must have unit rows: normalise them first")
    similarity = vectors @ vectors.T
    sizes = [len(_content(text)) for text in texts]
    return tuple(_without_near_duplicates(sizes, similar=lambda i, j: bool(similarity[i, j] >= cosine - 1e-6)))


# ------------------------------------------------------------------------------------------------- steps 1 and 2: cuts


class _Kind(Enum):
    ACTION = "requests something"
    REFERENCE = "requests what was said before: can you help me with this?"
    CONSTRAINT = "restricts a request"
    MOTIVATION = "the speaker's situation, without any detail"
    COURTESY = "greetings, thanks, and what the other side of a dialogue asks"


@dataclass(frozen=True, slots=True)
class _Clause:
    sentence: int
    start: int
    end: int
    kind: _Kind


def _normalised(text: str) -> str:
    """Single spaces inside lines, no blank lines, no quotation marks around the whole text [R, step 1]."""
    outer = _OUTER_QUOTES.fullmatch(text)
    if outer is not None:
        text = outer.group(1) or outer.group(2) or text
    return "\n".join(line for raw in text.splitlines() if (line := " ".join(raw.split())))


def _hide(match: re.Match[str]) -> str:
    """Mask of a protected piece; the full stop of a quoted sentence stays visible, it may end the outer one too."""
    piece = match.group()
    end = _SPEECH_END.search(piece)
    tail = end.group() if end is not None else ""
    return _HIDDEN * (len(piece) - len(tail)) + tail


def _clauses(text: str) -> Iterator[_Clause]:
    """Clauses in text order; ``text`` is normalised."""
    mask = _PROTECTED.sub(_hide, text)
    for number, (start, end) in enumerate(_sentences(mask)):
        sentence = mask[start:end]
        asks = sentence.rstrip("\"')]\u201d\u2019 ").endswith(("?", "\uff1f", "\u061f"))
        for low, high in _pieces(sentence):
            head = low + _head(sentence[low:high])
            clause = sentence[head:high].rstrip(" ,;:\n")
            if clause:
                kind = _classified(clause, asks=low > 0 or (asks and high == len(sentence)))
                yield _Clause(number, start + head, start + head + len(clause), kind)


def _sentences(mask: str) -> Iterator[tuple[int, int]]:
    """Half-open ranges between sentence ends, line ends and list markers, markers left out [R, step 1; R+ lists]."""
    cuts = [(m.start(), m.end()) for m in _BULLET.finditer(mask)] + list(_numbered(mask))
    marked = [range(low, high) for low, high in cuts]
    for match in _END.finditer(mask):
        inside = any(match.start() in span for span in marked)
        if not inside and _ends_sentence(mask, match):
            cuts.append((match.end(), match.end()))
    start = 0
    for low, high in sorted(cuts):
        if low > start:
            yield start, low
        start = max(start, high)
    if start < len(mask):
        yield start, len(mask)


def _numbered(mask: str) -> Iterator[tuple[int, int]]:
    """Markers "1." "2." ... that count up from one; a single one is no list."""
    run: list[tuple[int, int]] = []
    for match in _NUMBERED.finditer(mask):
        if int(match.group(1) or match.group(2)) == len(run) + 1:
            run.append(match.span())
    if len(run) > 1:
        yield from run


def _ends_sentence(mask: str, match: re.Match[str]) -> bool:
    mark = match.group()
    if mark[0] in "\n?!;" and mark[-1] not in "\"')]\u201d\u2019":
        return True
    if mark[0] > "\u0300":
        return True
    tail = mask[max(0, match.start() - 12) : match.start() + 1]
    if mark == "." and _NEVER_LAST.search(tail):
        return False
    glued = match.end() < len(mask) and not mask[match.end()].isspace()
    if glued or mark[-1] in "\"')]\u201d\u2019" or (mark == "." and _MAYBE_LAST.search(tail)):
        return _opens_sentence(mask, match.end())
    return True


def _opens_sentence(mask: str, position: int) -> bool:
    """True at the end of the text, and where a capitalised request, connector, pronoun or question follows."""
    rest = mask[position : position + 60].lstrip()
    if not rest:
        return True
    if not rest[0].isupper():
        return False
    starts = (_LEAD, _FIRST_PERSON, _AUXILIARY, _PREAMBLE, _COURTESY)
    return _starts_request(rest, 0) or any(pattern.match(rest) for pattern in starts)


class _Link(Enum):
    """What stands in front of a possible request; the weaker the link, the more the words behind it must show."""

    HEAD = "the start of a clause"
    SEQUENCE = "then, next, finally ..."
    LIST = "a comma and a conjunction, as well as, also ..."
    AND = "a bare conjunction"
    COMMA = "a bare comma"

    @classmethod
    def of(cls, joint: str) -> _Link:
        link = joint.strip().lower()
        if link in (",", ":"):
            return cls.COMMA
        if link in ("and", "plus", "but", "so"):
            return cls.AND
        return cls.SEQUENCE if _SEQUENCE.search(link) else cls.LIST


def _pieces(sentence: str) -> Iterator[tuple[int, int]]:
    """Clauses of one (masked) sentence as half-open ranges, without the links [R, step 2; R+ bare "and", comma]."""
    low = position = 0
    while (joint := _JOINT.search(sentence, position)) is not None:
        position = joint.end()
        if _separates(sentence[low : joint.start()], joint.group(), sentence, position):
            yield low, joint.start()
            low = position
    yield low, len(sentence)


def _separates(left: str, joint: str, sentence: str, right: int) -> bool:
    """Whether ``left`` is complete and another request starts at ``right``, behind the joint."""
    link = _Link.of(joint)
    if _NOT_ALWAYS_JOINT.fullmatch(joint) or _OPEN_END.search(
        left[-16:]
    ):  # the end only, or long texts take quadratic time
        return False
    if not _starts_request(sentence, right, link=link):
        return False
    size = len(_content(left)) + left.count(_HIDDEN * 2)
    if _FRAME.match(sentence, right) or joint.strip().lower().endswith("so"):
        return size > 0 and (_requests(left) or not _starts(_PREAMBLE, left))
    if link in (_Link.AND, _Link.COMMA) and (_DEPENDENT.search(left) or _ends_in_verb(left)):
        return False
    return size > 1 and _requests(left)


def _starts_request(mask: str, position: int, *, link: _Link = _Link.HEAD) -> bool:
    """Whether a verb of the list, a question word or a request phrase stands at ``position``, behind ``link``.

    Behind a sequence word any listed verb is a request. In a list, verbs that are nouns too need an object ("and list
    the songs", not "and list prices"); behind a bare conjunction or comma, verbs that rather continue a purpose do not
    count at all, nor do gerunds.
    """
    word = _WORD.match(mask, position)
    if word is None:
        return False
    lower = word.group().lower().replace("\u2019", "'")
    if lower in _QUESTION_WORDS:
        relative = link is _Link.COMMA and lower[:3] not in ("wha", "how")
        return not relative and _is_question(lower, mask, word.end())
    gerund = link in (_Link.SEQUENCE, _Link.LIST) and lower in _GERUNDS
    if not gerund and lower not in _VERBS:
        return _is_request_phrase(mask, position)
    if link in (_Link.HEAD, _Link.SEQUENCE):
        return True
    if link is not _Link.LIST and lower in _WEAK_VERBS:
        return False
    if word.group()[0].isupper() and _CAPITAL.match(mask, word.end()):
        return False  # a name: "search Google Books and Open Library"
    return lower not in _NOUN_VERBS or _has_object(lower, mask, word.end())


def _is_request_phrase(mask: str, position: int) -> bool:
    """ "Can you", "I need", "I want to find"; not the mere aim "I want to surprise my friends" [R, step 4]."""
    frame = _FRAME.match(mask, position)
    if frame is None:
        return False
    aim = _AIM.match(mask, frame.end())
    if aim is None:
        return True
    verb = aim.group(1).lower()
    return verb in _WANTED or (verb in _VERBS and verb not in _AIMS)


def _is_question(word: str, mask: str, position: int) -> bool:
    """ "what", "who", "how" and "why" always ask; the others only before an auxiliary: "when I arrive" does not."""
    if word[:3] in ("wha", "who", "how", "why") or word.endswith("'s"):
        return True
    return _AUXILIARY.match(mask, _skip(_SPACES, mask, position)) is not None or word == "which"


def _has_object(verb: str, mask: str, position: int) -> bool:
    position = _skip(_SPACES, mask, position)
    if position >= len(mask):
        return False
    word = _WORD.match(mask, position)
    if word is None:
        return mask[position] in f"{_HIDDEN}\"'$#"
    if verb in _PARTICLE_VERBS and word.group().lower() in _PARTICLES:
        return True
    first = word.group()[0]
    return first.isdigit() or first.isupper() or word.group().lower() in _OBJECT_STARTS


def _ends_in_verb(left: str) -> bool:
    """ "identify and label the objects" is one action."""
    last = left.rsplit(maxsplit=1)[-1].lower() if left.strip() else ""
    return last in _VERBS and last not in _NOUN_VERBS


def _skip(pattern: re.Pattern[str], mask: str, position: int) -> int:
    match = pattern.match(mask, position)
    return match.end() if match is not None else position


def _head(clause: str, position: int = 0) -> int:
    """Where a clause starts behind connectors, greetings and punctuation."""
    while (lead := _LEAD.match(clause, position)) is not None:
        if _NOT_ALWAYS_LEAD.match(lead.group()) and not _starts_request(clause, lead.end()):
            break
        position = lead.end()
    return position


def _starts(pattern: re.Pattern[str], clause: str) -> bool:
    return pattern.match(clause, _head(clause)) is not None


# ------------------------------------------------------------------------------------- steps 3 and 4: what a clause is


def _requests(clause: str) -> bool:
    """Whether a (masked) clause requests something: at its head, or behind an introduction ("Once done, show ...")."""
    head = _head(clause)
    if _starts_request(clause, head) or _EMBEDDED.search(clause, head):
        return True
    if _PREAMBLE.match(clause, head) is None:
        return _AUXILIARY.match(clause, head) is not None
    return any(_starts_request(clause, joint.end()) for joint in _JOINT.finditer(clause, head) if "," in joint.group())


def _classified(clause: str, *, asks: bool) -> _Kind:
    """What a (masked) clause does [R, steps 3 and 4].

    ``asks`` says that the clause is known to be a request: a question, or cut off because a request starts there.
    """
    if _EMPTY_REQUEST.match(clause):
        return _Kind.REFERENCE
    asks_back = _ASKS_BACK.search(clause) is not None
    if not asks_back and (asks or _requests(clause)):
        return _Kind.ACTION
    if _has_detail(clause):
        return _Kind.CONSTRAINT
    if asks_back or _COURTESY.match(clause):
        return _Kind.COURTESY
    return _Kind.MOTIVATION if _FIRST_PERSON.match(clause) else _Kind.CONSTRAINT


def _has_detail(clause: str) -> bool:
    """Digits, quotations or brackets, capitalised names; text without English words is never called idle."""
    if _HIDDEN in clause or any(char.isdigit() for char in clause):
        return True
    return _NAME.search(clause) is not None or _ASCII_WORD.search(clause) is None


def _attached(clauses: list[_Clause], text: str) -> list[str]:
    """Action clauses, each with its constraints in text order; empty if there is no action [R, steps 3 and 4].

    Motivation comes before the first request; what follows a request ("It should be free.") restricts it and stays.
    A first request that only refers back makes what was said before it the request.
    """
    groups: list[list[int]] = []
    waiting: list[int] = []
    for number, clause in enumerate(clauses):
        if clause.kind is _Kind.ACTION:
            groups.append([*waiting, number])
            waiting = []
        elif clause.kind is _Kind.REFERENCE:
            said = waiting or [i for i in (number - 1,) if i >= 0 and clauses[i].kind is _Kind.MOTIVATION]
            if said and not groups:
                groups.append(said)
                waiting = []
        elif clause.kind is _Kind.CONSTRAINT or (clause.kind is _Kind.MOTIVATION and groups):
            (groups[-1] if groups else waiting).append(number)
    return [_joined(group, clauses, text) for group in groups]


def _joined(group: list[int], clauses: list[_Clause], text: str) -> str:
    """The clauses of a group; those of one sentence keep the words between them, others get a space if need be."""
    joined = text[clauses[group[0]].start : clauses[group[0]].end]
    for left, right in pairwise(group):
        before, clause = clauses[left], clauses[right]
        adjacent = right == left + 1 and (before.sentence == clause.sentence or before.end == clause.start)
        joined += text[before.end : clause.end] if adjacent else " " + text[clause.start : clause.end]
    return " ".join(joined.split())


# ---------------------------------------------------------------------------------------------- steps 5 and 6: how many


def _content(text: str) -> frozenset[str]:
    return frozenset(tokens(text)) - _STOP


def _jaccard(a: frozenset[str], b: frozenset[str]) -> float:
    """Share of common content tokens; two clauses without any are the same."""
    union = len(a | b)
    return len(a & b) / union if union else 1.0


def _without_near_duplicates(sizes: Sequence[int], *, similar: Callable[[int, int], bool]) -> list[int]:
    """Indices that stay, ascending: longest first, each unless similar to one that stays [R, step 5]."""
    kept: list[int] = []
    for i in sorted(range(len(sizes)), key=lambda i: (-sizes[i], i)):
        if not any(similar(i, j) for j in kept):
            kept.append(i)
    return sorted(kept)


def _longest(kept: Iterable[int], content: Sequence[frozenset[str]], *, limit: int) -> list[int]:
    """The ``limit`` indices with most content tokens, ties to the earlier, in text order [R, step 6]."""
    return sorted(sorted(kept, key=lambda i: (-len(content[i]), i))[:limit])
