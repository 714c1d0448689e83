import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ropg.sources.dates import is_after, parse_date


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("2012", (2012,)),
        ("2012-03", (2012, 3)),
        ("2012/3", (2012, 3)),
        ("2012-03-04", (2012, 3, 4)),
        ("2012/03/04", (2012, 3, 4)),
        ("2012.3.4", (2012, 3, 4)),
        ("20120304", (2012, 3, 4)),
        (" 2012-03-04 05:06 ", (2012, 3, 4, 5, 6)),
        ("2012-03-04T05:06:07.89Z", (2012, 3, 4, 5, 6, 7)),
        ("2001-05-11 12:03:00+00:00", (2001, 5, 11, 12, 3, 0)),
        ("2012-12-31 23:30:00-01:00", (2013, 1, 1, 0, 30, 0)),
        ("25/12/2012", (2012, 12, 25)),
        ("12/25/2012", (2012, 12, 25)),
        ("07 23, 2008", (2008, 7, 23)),
        ("May 2001", (2001, 5)),
        ("14 May 2001", (2001, 5, 14)),
        ("September 3rd, 2001", (2001, 9, 3)),
        ("Mon Apr 06 22:19:45 PDT 2009", (2009, 4, 7, 5, 19, 45)),
        ("03/04/2012", None),  # March or April
        ("2012-13-01", None),
        ("2011-02-29", None),
        ("yesterday", None),
        ("", None),
        ("12:30", None),
    ],
)
def test_every_precision(text, parsed):
    """A date read wrongly puts an old document first for the recency retriever."""
    assert parse_date(text) == parsed


@given(
    st.datetimes(min_value=datetime.datetime(1000, 1, 1)),
    st.datetimes(min_value=datetime.datetime(1000, 1, 1)),
)
def test_parsed_dates_compare_as_dates(a, b):
    a, b = a.replace(microsecond=0), b.replace(microsecond=0)
    assert (parse_date(a.isoformat()) < parse_date(b.isoformat(" "))) == (a < b)


@given(st.text(max_size=30))
def test_any_text_is_a_date_or_none(text):
    """A strange date must not stop a run."""
    parsed = parse_date(text)
    assert parsed is None or 1 <= len(parsed) <= 6


def test_coarse_dates_are_never_after_what_they_contain():
    assert not is_after((2012, 12), (2012,))
    assert not is_after((2012,), (2012, 1, 1))
    assert is_after((2013,), (2012, 12, 31))
