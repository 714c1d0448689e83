"""Dates of documents and queries, as files write them: a year, a month, a day or an instant.

One parser for every source and for the recency retriever. A date becomes a tuple (year, month, day,
hour, minute, second), cut where the text stops, so that tuples compare as dates do and a coarser date
sorts before the finer ones inside it.
"""

from __future__ import annotations

import datetime
import re
from email.utils import parsedate_tz
from functools import lru_cache

ParsedDate = tuple[int, ...]

_TIME = (
    r"(?:[T\s]+(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,]\d+)?)?"
    r"\s*(?P<zone>Z|UTC|GMT|[+-]\d{2}:?\d{2})?)?\Z"
)
_NAMED = r"(?P<name>[A-Za-z]{3,9})\.?"
_DAY = r"(?P<day>\d{1,2})"
_YEAR = r"(?P<year>\d{4})"
_YEAR_FIRST = re.compile(
    _YEAR + r"(?:(?P<sep>[-/.])(?P<month>\d{1,2})(?:(?P=sep)" + _DAY + _TIME + r")?)?\Z", re.I
)
_YEAR_LAST = re.compile(r"(?P<first>\d{1,2})(?P<sep>[-/.])(?P<middle>\d{1,2})(?P=sep)" + _YEAR + _TIME, re.I)
_COMPACT = re.compile(_YEAR + r"(?P<month>\d{2})(?P<day>\d{2})\Z")
_COMPACT_MONTH = re.compile(r"(?P<year>(?:19|20)\d{2})(?P<month>0[1-9]|1[0-2])\Z")
_SECONDS = re.compile(r"\d{9,10}(?:\.\d+)?\Z")  # of Unix time, 1973 to 2286
_MONTH_YEAR = re.compile(r"(?P<month>\d{1,2})[-/.]" + _YEAR + r"\Z")
#: Amazon reviews: "07 23, 2008".
_MONTH_DAY_COMMA = re.compile(r"(?P<month>\d{1,2})\s+" + _DAY + r",\s*" + _YEAR + r"\Z")
_NAMED_DAY_FIRST = re.compile(r"(?:" + _DAY + r"(?:st|nd|rd|th)?\s+)?" + _NAMED + r",?\s+" + _YEAR + r"\Z")
_NAMED_MONTH_FIRST = re.compile(_NAMED + r"\s+" + _DAY + r"(?:st|nd|rd|th)?,?\s+" + _YEAR + r"\Z")
_MONTHS = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip


@lru_cache(maxsize=65536)
def parse_date(text: str) -> ParsedDate | None:
    """Parse a date of any precision; None where it is no date or its order of day and month is ambiguous.

    Read are ISO dates and times (also with slashes or dots), compact days and months, Unix seconds, month
    names, dates that end with the year as long as day and month cannot be confused, and the dates of e-mails
    and tweets.
    An instant with a time zone is moved to UTC; one without is taken as it is.

    >>> parse_date("2012"), parse_date("2012/3"), parse_date("2012-03-04")
    ((2012,), (2012, 3), (2012, 3, 4))
    >>> parse_date("2012-03-04T01:30:00+02:00")
    (2012, 3, 3, 23, 30, 0)
    >>> parse_date("201203"), parse_date("1330000000")
    ((2012, 3), (2012, 2, 23, 12, 26, 40))
    >>> parse_date("Mon, 14 May 2001 16:39:00 -0700 (PDT)")
    (2001, 5, 14, 23, 39, 0)
    >>> parse_date("23/07/2008"), parse_date("03/04/2008"), parse_date("soon"), parse_date("2012-02-30")
    ((2008, 7, 23), None, None, None)
    """
    text = " ".join(str(text).split())
    if _SECONDS.match(text):
        instant = datetime.datetime.fromtimestamp(int(float(text)), datetime.UTC)
        return tuple(instant.timetuple()[:6])
    if match := _COMPACT_MONTH.match(text):
        return _build(match.groupdict())
    if match := _YEAR_FIRST.match(text):
        return _build(match.groupdict())
    if match := _COMPACT.match(text) or _MONTH_YEAR.match(text) or _MONTH_DAY_COMMA.match(text):
        return _build(match.groupdict())
    if match := _YEAR_LAST.match(text):
        return _year_last(match.groupdict())
    if match := _NAMED_DAY_FIRST.match(text) or _NAMED_MONTH_FIRST.match(text):
        parts = match.groupdict()
        month = _month_number(parts.pop("name"))
        return None if month is None else _build({**parts, "month": str(month)})
    return _mail_date(text)


def is_after(date: ParsedDate, other: ParsedDate) -> bool:
    """Whether ``date`` lies after ``other`` for certain: both are compared at the coarser precision.

    >>> is_after((2012, 5), (2012,)), is_after((2013,), (2012, 5, 3))
    (False, True)
    """
    precision = min(len(date), len(other))
    return date[:precision] > other[:precision]


def _build(parts: dict[str, str | None]) -> ParsedDate | None:
    names = ("year", "month", "day", "hour", "minute", "second")
    numbers: list[int] = []
    for name in names:
        value = parts.get(name)
        if value is None:
            break
        numbers.append(int(value))
    try:
        instant = datetime.datetime(*_padded(numbers))
        zone = parts.get("zone")
        if zone and zone.upper() not in ("Z", "UTC", "GMT"):
            sign = 1 if zone[0] == "+" else -1
            shift = datetime.timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
            instant -= sign * shift
    except (ValueError, OverflowError):
        return None
    return tuple(instant.timetuple()[: len(numbers)])


def _padded(numbers: list[int]) -> tuple[int, int, int, int, int, int]:
    year, month, day, hour, minute, second = (*numbers, *(0, 1, 1, 0, 0, 0)[len(numbers) :])
    return year, month, day, hour, minute, second


def _year_last(parts: dict[str, str | None]) -> ParsedDate | None:
    first, middle = int(parts["first"] or 0), int(parts["middle"] or 0)
    if first <= 12 and middle <= 12 and first != middle:
        return None  # 03/04/2008 is a day in March for some and in April for others
    month, day = (middle, first) if first > 12 else (first, middle)
    return _build({**parts, "month": str(month), "day": str(day)})


def _month_number(name: str) -> int | None:
    lowered = name.lower()
    for number, month in enumerate(_MONTHS, start=1):
        if lowered == month or lowered == month[:3] or (lowered == "sept" and number == 9):
            return number
    return None


def _mail_date(text: str) -> ParsedDate | None:
    if not re.search(r"\d:\d", text):
        return None  # the mail parser guesses at anything; a time of day marks a real mail or tweet date
    parsed = parsedate_tz(text)
    if parsed is None:
        return None
    try:
        instant = datetime.datetime(*parsed[:6]) - datetime.timedelta(seconds=parsed[9] or 0)
    except (ValueError, OverflowError):
        return None
    return tuple(instant.timetuple()[:6])
