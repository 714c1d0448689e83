from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropg.examples import Document, Example
from ropg.sources.report import KINDS, resolve_policies
from ropg.sources.validation import Finding, Rules, inspect, normalise


def _example(profile, *, text="query text", target="the answer", **meta):
    return Example("1", "1", text, target, tuple(profile), meta)


def _found(example, rules=None):
    return list(inspect(example, rules or Rules()))


def test_nothing_is_found_in_a_clean_example():
    assert _found(_example([Document("a", "one"), Document("b", "two", title="other")], date="2012")) == []


def test_normalised_matches():
    assert normalise("Ｃats —  sleep\ta LOT!") == normalise("cats sleep a lot")
    assert normalise("Coração") != normalise("Coracao")
    assert normalise("भाषा") == "भाषा"  # combining vowels are part of words


def test_query_answer_and_leak_are_told_apart():
    """Only a document that gives away the answer to this very query is dropped by default."""
    profile = [
        Document("both", "Query, TEXT", title="The Answer!"),
        Document("query", "query text", title="something else"),
        Document("answer", "other", title="the answer"),
        Document("rated", "query text", score="The answer"),
    ]
    assert _found(_example(profile)) == [
        Finding("leak", 0),
        Finding("query_in_profile", 1),
        Finding("answer_in_profile", 2),
        Finding("leak", 3),
    ]


def test_short_words_inside_a_long_text_are_no_leak():
    """'Great' stands in many texts; a sentence inside a longer one is the same document with additions."""
    assert _found(_example([Document("a", "a great day was had")], target="great")) == []
    sentence = "we had a very great day there"
    assert _found(_example([Document("a", f"P.S. {sentence}. Bye")], text=sentence)) == [
        Finding("query_in_profile", 0)
    ]


def test_texts_without_words_match_nothing():
    assert _found(_example([Document("a", "!!!"), Document("b", "???")], text="...", target="—")) == []


def test_dates():
    profile = [
        Document("a", "x", date="2013-01-01"),
        Document("b", "y", date="2012"),
        Document("c", "z", date="soon"),
    ]
    assert _found(_example(profile, date="2012-05-03")) == [
        Finding("date_after_query", 0),
        Finding("unparsable_date", 2),
    ]


def test_labels_and_empty_parts():
    rules = Rules(labels=("[1]", "[2]"))
    assert _found(_example([], target="[3]"), rules) == [Finding("unknown_gold"), Finding("empty_profile")]
    assert _found(_example([Document("a", "x")], target=" ", text=""), rules) == [
        Finding("empty_input"),
        Finding("empty_target"),
    ]


def test_file_names_instead_of_emails():
    rules = Rules(query_texts=lambda text: (text.partition(": ")[2],), file_names=True)
    text = "Generate a subject for the following email: 038-000123-EM"
    assert _found(_example([Document("a", "038/038-000124-EM.txt")], text=text), rules) == [
        Finding("file_names")
    ]
    assert _found(_example([Document("a", "See you at 5")], text="Generate: hello there"), rules) == []


def test_policies_are_refused_with_the_nearest_name():
    with pytest.raises(ValueError, match="did you mean 'duplicate_text'"):
        resolve_policies({"duplicate_txt": "skip"})
    with pytest.raises(ValueError, match="did you mean 'keep'"):
        resolve_policies({"leak": "kep"})
    with pytest.raises(ValueError, match="duplicate_id"):
        resolve_policies({"duplicate_id": "keep"})  # ids must be unique: nothing to keep
    assert set(resolve_policies(None)) == set(KINDS)


documents = st.builds(Document, st.sampled_from("abc"), st.text(max_size=4), st.text(max_size=3))


@given(st.lists(documents, max_size=8))
def test_repeated_contents_are_found_whatever_the_order(profile):
    """The number of copies cannot depend on where they stand."""

    def count(order):
        return sum(kind == "duplicate_text" for kind, _ in _found(_example(order)))

    assert count(profile) == count(profile[::-1])
    keys = sorted((normalise(d.title), normalise(d.text)) for d in profile)
    with_words = [key for key in keys if any(key)]
    assert count(profile) >= sum(a == b for a, b in pairwise(with_words))
