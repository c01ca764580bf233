"""Requirements of requests: hand-written texts in the styles of all releases, and what holds for any text."""

from __future__ import annotations

import re
import time

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolshift.text.requirements import MAX_REQUIREMENTS, merge_similar, requirements
from toolshift.text.spans import spans

CHAINS = [
    (
        "Find the weather in Oslo, and then book a hotel near the harbour, and send me the address",
        ("Find the weather in Oslo", "book a hotel near the harbour", "send me the address"),
    ),
    (
        "find me a cheap flight to lima then tell me the weather there and also convert 300 usd to soles",
        ("find me a cheap flight to lima", "tell me the weather there", "convert 300 usd to soles"),
    ),
    (
        "Could you first geocode the town hall of Bergen, then show me cafes near it? After that, I'd like the tide "
        "table. Finally, search for ferries.",
        (
            "Could you first geocode the town hall of Bergen",
            "show me cafes near it?",
            "I'd like the tide table.",
            "search for ferries.",
        ),
    ),
    (
        "Fetch the exchange rate of the krone. Additionally, provide me with a chart of the last month.",
        ("Fetch the exchange rate of the krone.", "provide me with a chart of the last month."),
    ),
    (
        "Compute the mean of column b; convert the result to hex",
        ("Compute the mean of column b", "convert the result to hex"),
    ),
    ("transcribe talk.wav, followed by translating the text", ("transcribe talk.wav", "translating the text")),
    (
        "Can you recommend some tracks by the quartet and provide details about its members?",
        ("Can you recommend some tracks by the quartet", "provide details about its members?"),
    ),
    ("turn the photo by 20 degrees and flip it", ("turn the photo by 20 degrees", "flip it")),
]


@pytest.mark.parametrize(("text", "expected"), CHAINS)
def test_chains_are_cut_where_the_next_request_starts(text: str, expected: tuple[str, ...]) -> None:
    assert requirements(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("What is the weather in Oslo?", ("What is the weather in Oslo?",)),
        (
            "What is the weather in Oslo? How many people live there?",
            ("What is the weather in Oslo?", "How many people live there?"),
        ),
        ("Is it raining in Oslo, and what should I wear?", ("Is it raining in Oslo", "what should I wear?")),
        ("Where is the nearest pharmacy and when does it close?",) * 1
        + (("Where is the nearest pharmacy", "when does it close?"),),
        ("What is the capital of Peru, what is its anthem?", ("What is the capital of Peru", "what is its anthem?")),
        ("a quiet hotel in Bergen?", ("a quiet hotel in Bergen?",)),
    ],
)
def test_questions_are_requests(text: str, expected: tuple[str, ...]) -> None:
    assert requirements(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "Give me songs and list prices",  # "list" without an object is a noun here
        "Fetch the volume, and supply of the coin",
        "Identify and label the objects in cat.jpg",
        "It would be great if you could also provide the address",
        "I'm also looking for a quiet hotel",
        "I'd like to check Pine Books and Open Shelf",
        "Show the entries starting from the first record of the log",
        "I'm looking for a bakery that can bake a cake and deliver it by noon",
        "Find hotels in Rome, Paris, and Oslo",
        "Show me books about plants, birds and fish",
        "Once you have the list, show me the cheapest one",
        "After finding the song with key 42, can you show me its play count?",
        "If the shop is open, order two pizzas",
        "Tell me the population of the U.S. coast",
        "Show flights with e.g. Air North vs. Sky Ltd. on the route, at 3.5 hours or less.",
        "Fetch https://example.org/a.b?c=1;d=2 and mail.ann@example.org for me",
        "Read notes.v2.txt for Dr. Lee",
        "What are the opening hours (Mon. to Fri. and then Sat.) of the museum?",
        "Convert [1; 2; 3] to a string",
    ],
)
def test_one_request_stays_whole(text: str) -> None:
    assert requirements(text) == (text,)


@pytest.mark.parametrize(
    "text",
    [
        "Translate 'Find the key and then open the door. Call me!' into Dutch",
        'Translate "Find the key, then open the door. Call me!" into Dutch',
        "Translate \u201cFind the key; then open the door\u201d into Dutch",
        "Translate \u2018It\u2019s late. Find the key\u2019 into Dutch",
        "Translate 'It's late, and then call me' into Dutch",
    ],
)
def test_quotations_are_never_cut(text: str) -> None:
    assert requirements(text) == (text,)


def test_a_quoted_sentence_may_end_the_outer_one() -> None:
    assert requirements('Translate "Find the key." Then read it aloud') == (
        'Translate "Find the key."',
        "read it aloud",
    )
    assert requirements("Play 'Who Are You?' loudly") == ("Play 'Who Are You?' loudly",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Show homes in the U.S. Find a bank too.", ("Show homes in the U.S.", "Find a bank too.")),
        ("Show homes in St. Louis", ("Show homes in St. Louis",)),
        ("Follow plan B. Then call Dr. Will Ames", ("Follow plan B.", "call Dr. Will Ames")),
        ("Show songs by J. Stone", ("Show songs by J. Stone",)),
        ("Give ratings etc. Plot the result", ("Give ratings etc.", "Plot the result")),
        ("Give me row no. 5 of sheet 3.14", ("Give me row no. 5 of sheet 3.14",)),
        ("Find a bank.Show me the way", ("Find a bank.", "Show me the way")),
        ("Run np.Array on a.B", ("Run np.Array on a.B",)),
    ],
)
def test_full_stops_that_end_no_sentence(text: str, expected: tuple[str, ...]) -> None:
    assert requirements(text) == expected


def test_quotation_marks_around_the_whole_request_are_no_quotation() -> None:
    assert requirements('"Find the key. Open the door."') == ("Find the key.", "Open the door.")


@pytest.mark.parametrize(
    "text",
    [
        "1. Find a dentist in Bern 2. Book a slot 3. Mail me the details",
        "1) Find a dentist in Bern\n2) Book a slot\n3) Mail me the details",
        "Tasks: (1) Find a dentist in Bern (2) Book a slot (3) Mail me the details",
        "- Find a dentist in Bern\n- Book a slot\n- Mail me the details",
        "Tasks:\n\u2022 Find a dentist in Bern\n\u2022 Book a slot\n\u2022 Mail me the details",
    ],
)
def test_list_items_are_requests_without_their_markers(text: str) -> None:
    first, *rest = requirements(text)
    assert first.removeprefix("Tasks ") == "Find a dentist in Bern"
    assert rest == ["Book a slot", "Mail me the details"]


def test_a_single_number_is_no_list_marker() -> None:
    assert requirements("Show room 1. It has a balcony") == ("Show room 1. It has a balcony",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Find a flat in Turin. It should be quiet.", ("Find a flat in Turin. It should be quiet.",)),
        (
            "My user id is 77. Show my orders. Cancel the last order.",
            ("My user id is 77. Show my orders.", "Cancel the last order."),
        ),
        (
            "I am planning a trip to Egypt. Can you find hotels?",
            ("I am planning a trip to Egypt. Can you find hotels?",),
        ),
        ("Hello! I am a student. I love maps. Can you find a map of Turin? Thanks!", ("Can you find a map of Turin?",)),
        ("I want to surprise my aunt. Suggest a gift", ("Suggest a gift",)),
        ("I'm a fan of opera and I need a list of theatres", ("I need a list of theatres",)),
        ("My printer is broken. Can you help me with that?", ("My printer is broken.",)),
        (
            "My firm follows the price of tin. Can you fetch this data for us? Also, list the mines in Peru.",
            ("My firm follows the price of tin.", "list the mines in Peru."),
        ),
        ("I'm curious about Verdi. Can you help me with this?", ("I'm curious about Verdi.",)),
    ],
)
def test_constraints_are_attached_and_idle_talk_is_dropped(text: str, expected: tuple[str, ...]) -> None:
    assert requirements(text) == expected


def test_what_the_other_side_of_a_dialogue_asks_is_no_requirement() -> None:
    text = "Can you delete my alarm?\nSure. What is your username?\nIt is ann7."
    assert requirements(text) == ("Can you delete my alarm? It is ann7.",)


@pytest.mark.parametrize(
    "text",
    [
        "hi",
        "?",
        "weather Oslo",
        "Can you help me?",
        "I cannot find any good resources on beekeeping.",
        "\u6211\u60f3\u77e5\u9053\u5965\u65af\u9646\u7684\u5929\u6c14\u3002\u987a\u4fbf\u6362\u7b97\u6210\u534e\u6c0f\u5ea6\u3002",
        "Necesito un vuelo a Lima y un hotel barato. Gracias.",
        "\u041d\u0430\u0439\u0434\u0438 \u043e\u0442\u0435\u043b\u044c \u0432 \u041e\u0441\u043b\u043e.",
    ],
)
def test_without_a_request_the_whole_text_is_the_requirement(text: str) -> None:
    assert requirements(text) == (text,)


def test_a_question_in_another_script_keeps_its_context() -> None:
    text = "\u5965\u65af\u9646\u7684\u5929\u6c14\u5982\u4f55\uff1f\u8bf7\u7528\u6444\u6c0f\u5ea6\u3002"
    assert requirements(text) == (text,)


@pytest.mark.parametrize("text", ["", " ", "\n\t ", "\u00a0"])
def test_only_a_blank_text_has_no_requirement(text: str) -> None:
    assert requirements(text) == ()


def test_white_space_and_trailing_marks_do_not_matter() -> None:
    assert requirements("  Find \t the   key  ") == ("Find the key",)
    assert requirements("Next week's weather in Oslo") == ("Next week's weather in Oslo",)
    assert requirements("Specifically, show the weather in Oslo") == ("show the weather in Oslo",)
    assert requirements("Next, show the weather in Oslo") == ("show the weather in Oslo",)


def test_near_duplicates_merge_to_the_longer_by_content_not_by_phrasing() -> None:
    text = "Fetch the weather in Bonn. Can you please fetch the current weather in Bonn tomorrow morning?"
    assert len(requirements(text)) == 2  # 3 of 6 content tokens in common
    assert requirements(text, jaccard=0.5) == ("Can you please fetch the current weather in Bonn tomorrow morning?",)
    assert requirements("Find the weather in Bonn. Please find the weather in Bonn.") == ("Find the weather in Bonn.",)
    # The same phrase around another value is another requirement.
    assert len(requirements("Can you please tell me about gold? Can you please tell me about silver?")) == 2


def test_the_longest_four_stay_in_text_order() -> None:
    text = (
        "Find red maple trees. List cars. Show old stone bridges. Play jazz music. Book a quiet hotel room. Buy milk."
    )
    assert requirements(text) == (
        "Find red maple trees.",
        "Show old stone bridges.",
        "Play jazz music.",
        "Book a quiet hotel room.",
    )
    assert requirements(text, limit=2) == ("Find red maple trees.", "Show old stone bridges.")
    assert len(requirements(text, limit=9)) == 6


@pytest.mark.parametrize("bad", [{"limit": 0}, {"jaccard": 0.0}, {"jaccard": 1.1}])
def test_parameters_out_of_range_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must"):
        requirements("Find it", **bad)  # pyright: ignore[reportArgumentType]


def test_spans_of_a_requirement_do_not_come_from_its_neighbour() -> None:
    first, second = requirements("Find hotels in Oslo, and book 2 seats on flight 'SK 12'")
    assert "Oslo" in spans(first)
    assert "Oslo" not in spans(second)
    assert {"SK 12", "2 seats"} <= set(spans(second))


# -------------------------------------------------------------------------------------------------------- invariants

WORDS = (
    "find show me the weather in Oslo and then , . ? ! ; also I need can you please 'a b' \" ' ( ) 3.5 1. 2. - hi what "
    "is \u2019 \u3002 \u6771\u4eac caf\u00e9 U.S. e.g. https://ex.org/a.b so that thanks it"
)
PARTS = st.sampled_from((*WORDS.split(), "\n"))
TEXTS = st.one_of(st.text(max_size=120), st.lists(PARTS, max_size=40).map(" ".join))


@given(TEXTS, st.integers(1, 5))
@example("\ue000", 4)
@example('"find x" \'find y', 4)
def test_invariants_of_any_text(text: str, limit: int) -> None:
    found = requirements(text, limit=limit)
    assert found == requirements(text, limit=limit)
    assert bool(found) == bool(text.strip())
    assert len(found) <= limit
    assert all(item and item == " ".join(item.split()) for item in found)
    # Nothing is made up and nothing is used twice: the characters are a sub-multiset of the text's.
    left = "".join(sorted("".join(found).replace(" ", "")))
    assert re.fullmatch(".*".join(map(re.escape, ("", *left, ""))), "".join(sorted(text)), re.DOTALL) if left else True


@given(TEXTS)
def test_outer_white_space_never_matters(text: str) -> None:
    assert requirements(f" \n{text}  \n") == requirements(text)


@given(TEXTS)
def test_default_and_wider_limits_agree_on_what_stays(text: str) -> None:
    assert set(requirements(text)) <= set(requirements(text, limit=50))
    assert len(requirements(text)) <= MAX_REQUIREMENTS


@pytest.mark.parametrize("expected", [pieces for _, pieces in CHAINS])
def test_a_requirement_is_its_own_only_requirement(expected: tuple[str, ...]) -> None:
    assert [requirements(piece) for piece in expected] == [(piece,) for piece in expected]


def test_long_texts_take_linear_time() -> None:
    started = time.process_time()
    for text in ("a, " * 30_000, "'" * 30_000, "find the key and then " * 5_000, "x." * 30_000, "1. " * 20_000):
        assert len(requirements(text)) == 1
    assert time.process_time() - started < 20


# -------------------------------------------------------------------------------------------------------- the 2nd merge


def test_similar_vectors_merge_to_the_longer_text() -> None:
    texts = ("find hotels", "find cheap hotels", "book flights")
    vectors = np.array([[1.0, 0.0], [0.95, np.sqrt(1 - 0.95**2)], [0.0, 1.0]])
    assert merge_similar(texts, vectors) == (1, 2)
    assert merge_similar(texts, vectors, cosine=0.96) == (0, 1, 2)
    assert merge_similar(("find hotels", "book hotels"), np.eye(2)[[0, 0]]) == (0,)  # equal length: the earlier
    assert merge_similar((), np.zeros((0, 3))) == ()


def test_merging_does_not_chain_through_a_dropped_text() -> None:
    angles = np.deg2rad([0, 20, 40])  # neighbours have cosine .94, the ends .77
    vectors = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    assert merge_similar(("find red old trees", "find trees", "find tall green trees"), vectors) == (0, 2)


@pytest.mark.parametrize(
    ("vectors", "cosine"), [(np.eye(3), 0.9), (np.ones(2), 0.9), (2 * np.eye(2), 0.9), (np.eye(2), 0.0)]
)
def test_wrong_vectors_are_refused(vectors: np.ndarray, cosine: float) -> None:
    with pytest.raises(ValueError, match=r"expected one row|unit rows|cosine must"):
        merge_similar(("find it", "book it"), vectors, cosine=cosine)
