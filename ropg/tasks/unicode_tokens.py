"""Words of any script, for metrics on text that is not plain English."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

# Scripts written without spaces between words: every character (with its marks) is a token.
_UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x31F0, 0x31FF),  # Katakana extensions
    (0x3400, 0x4DBF),  # Han, extension A
    (0x4E00, 0x9FFF),  # Han
    (0xF900, 0xFAFF),  # Han, compatibility
    (0x20000, 0x3FFFF),  # Han, further extensions
)


@lru_cache(maxsize=1 << 16)
def _kind(character: str) -> str:
    """A character: "alone" is a token, "start" begins or continues a word, "mark" only continues one."""
    category = unicodedata.category(character)[0]
    if category == "M":
        return "mark"
    if category not in "LN":
        return "gap"
    point = ord(character)
    return "alone" if any(low <= point <= high for low, high in _UNSPACED) else "start"


def unicode_tokens(text: str) -> list[str]:
    """Case-folded words of letters, marks and digits; a token per character in scripts without spaces.

    The text is normalised (NFKC) first, so composed and decomposed accents are the same.

    >>> unicode_tokens("Coração de maçã!")
    ['coração', 'de', 'maçã']
    >>> unicode_tokens("机器 learning")
    ['机', '器', 'learning']
    >>> unicode_tokens("!!!")
    []
    """
    tokens: list[str] = []
    previous = "gap"
    for character in unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()):
        kind = _kind(character)
        if kind == "mark" and previous != "gap":
            tokens[-1] += character  # the mark belongs to what precedes it
            continue
        if kind in ("start", "mark") and previous == "start":
            tokens[-1] += character
        elif kind != "gap":
            tokens.append(character)
        previous = "start" if kind == "mark" else kind
    return tokens


class UnicodeTokenizer:
    """The same as an object with ``tokenize``, as rouge_score wants it."""

    def tokenize(self, text: str) -> list[str]:
        """Tokens of ``text``; see :func:`unicode_tokens`."""
        return unicode_tokens(text)
