"""Documents and examples travel: to worker processes, through copies, into plain dictionaries."""

from __future__ import annotations

import copy
import dataclasses
import pickle

from ropg.examples import Document, Example

EXAMPLE = Example("q1", "u1", "x", "y", (Document("d1", "text", title="T", date="2012"), Document("d2", "")))


def test_an_example_survives_pickling_and_copying() -> None:
    """Else a pool of workers, a DataLoader or copy.deepcopy fails on the first document without fields."""
    assert pickle.loads(pickle.dumps(EXAMPLE)) == EXAMPLE
    assert copy.deepcopy(EXAMPLE) == EXAMPLE


def test_an_example_becomes_plain_values() -> None:
    """dataclasses.asdict is how a notebook turns examples into JSON or a data frame."""
    plain = dataclasses.asdict(EXAMPLE)
    assert plain["profile"][0]["fields"] == {}
    assert plain["meta"] == {}


def test_documents_share_no_fields() -> None:
    """One mapping for all would carry what is put into one document's fields into every other's."""
    first, second = EXAMPLE.profile
    assert first.fields == second.fields == {}
    assert first.fields is not second.fields
