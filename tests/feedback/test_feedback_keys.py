"""Keys: two different requests never share a stored answer, and equal ones always do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropg.feedback import canonical_json, generation_key, likelihood_key

anything = st.text(st.characters(), max_size=12)  # surrogates included
settings_ = st.dictionaries(
    st.text(max_size=3), st.none() | st.booleans() | st.integers() | st.text(max_size=3), max_size=3
)


@given(settings_, anything, settings_, settings_, anything, settings_)
def test_keys_are_equal_exactly_where_the_parts_are(i1, p1, d1, i2, p2, d2):
    """If this fails, an answer of another model, prompt or decoding is taken for the one asked for."""
    same = (canonical_json(i1), p1, canonical_json(d1)) == (canonical_json(i2), p2, canonical_json(d2))
    assert (generation_key(i1, p1, d1) == generation_key(i2, p2, d2)) == same


def test_pairs_whose_joined_forms_agree_keep_two_keys():
    """Trouble C29: "1-1","1" and "1","1-1" collide as soon as keys are joined by a dash."""
    pairs = [("1-1", "1"), ("1", "1-1")]
    assert len({generation_key({"model": a}, b, {}) for a, b in pairs}) == 2
    assert len({likelihood_key({"model": "m"}, a, b) for a, b in pairs}) == 2


def test_an_emoji_and_its_two_surrogates_keep_two_keys():
    """JSON's escapes write both alike; the store would give one prompt the other's answer."""
    assert generation_key({}, "\U0001f600", {}) != generation_key({}, "\ud83d\ude00", {})


def test_types_are_kept_apart_and_order_is_not():
    """1, 1.0, "1" and true are different settings; the order in which a dict was filled is none."""
    values = [1, 1.0, "1", True]
    assert len({generation_key({}, "p", {"n": value}) for value in values}) == 4
    assert generation_key({"a": 1, "b": [1, 2]}, "p", {}) == generation_key({"b": (1, 2), "a": 1}, "p", {})


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), Path("/models/m"), {1: 2}, {"a", "b"}, b"x"])
def test_what_json_would_change_is_refused_by_name(bad):
    """A NaN, a path or a number as key would make keys that no other process can make again."""
    with pytest.raises((TypeError, ValueError), match=r"value\['identity'\]\['deep'\]"):
        generation_key({"deep": bad}, "p", {})


def test_keys_do_not_depend_on_the_process():
    """If this fails, a second run finds nothing that the first one stored."""
    code = "from ropg.feedback.keys import generation_key as k; print(k({'b': 1, 'a': 'é'}, 'p\\0', {'stop': ['x']}))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert other.stdout.strip() == generation_key({"a": "é", "b": 1}, "p\0", {"stop": ["x"]})
