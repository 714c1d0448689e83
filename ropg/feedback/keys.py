"""The keys under which the store keeps what an LLM produced."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any


def canonical_json(value: Any) -> str:
    """Write JSON in the one form that equal values share: sorted keys, no spaces, escapes for all but ASCII.

    Raises TypeError for what JSON cannot hold without changing it (a path, a set, a key that is no
    string) and ValueError for NaN and infinities.

    >>> canonical_json({"b": [1, 2.0], "a": "é"})
    '{"a":"\\\\u00e9","b":[1,2.0]}'
    """
    _check(value, "value")
    return json.dumps(value, sort_keys=True, ensure_ascii=True, allow_nan=False, separators=(",", ":"))


def generation_key(identity: Mapping[str, Any], prompt: str, decoding: Mapping[str, Any]) -> str:
    """Name the answer of one LLM to one prompt under one set of decoding settings: 64 hexadecimal digits.

    The parts are members of one JSON object and never joined as strings, so neighbours such as
    ("1-1", "1") and ("1", "1-1") keep different keys. Nothing about where files lie belongs in
    ``identity``: the same model answers the same wherever it lies.

    >>> generation_key({"m": "1-1"}, "1", {}) == generation_key({"m": "1"}, "1-1", {})
    False
    >>> generation_key({"a": 1, "b": 2}, "p", {}) == generation_key({"b": 2, "a": 1}, "p", {})
    True
    """
    return digest({"identity": dict(identity), "prompt": _text(prompt), "decoding": dict(decoding)})


def likelihood_key(identity: Mapping[str, Any], prompt: str, target: str) -> str:
    """Name the likelihood that one LLM gives to ``target`` after ``prompt``; decoding has no part in it."""
    return digest({"identity": dict(identity), "prompt": _text(prompt), "target": _text(target)})


def text_digest(name: str, text: str) -> str:
    """The digest of one text under a name; any text has one."""
    return digest({name: _text(text)})


def digest(value: Any) -> str:
    """The SHA-256 of a value's canonical JSON, in hexadecimal."""
    return hashlib.sha256(canonical_json(value).encode("ascii")).hexdigest()


def _text(text: str) -> str | list[str]:
    # JSON's escapes write a character beyond U+FFFF and the two surrogates of its UTF-16 form alike, yet
    # as Python strings the two differ. Text with surrogates in it (which only broken input has) is
    # therefore given as a list of its code points.
    if not isinstance(text, str):
        raise TypeError(f"a key is made of text, not of {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError:
        return [f"{ord(character):x}" for character in text]
    return text


def _check(value: Any, where: str) -> None:
    if value is None or isinstance(value, str | bool | int):
        return
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{where} is {value}; NaN and infinities have no JSON form and are never stored")
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise TypeError(f"{where} has the key {key!r}; JSON keys are strings: write {str(key)!r}")
            _check(inner, f"{where}[{key!r}]")
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            _check(inner, f"{where}[{index}]")
    else:
        raise TypeError(f"{where} is a {type(value).__name__}, which JSON cannot hold; give text or numbers")
