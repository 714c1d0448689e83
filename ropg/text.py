"""Text as tokenizers take it."""

from __future__ import annotations


def well_formed(text: str) -> str:
    r"""``text`` with every lone surrogate as "?", character for character.

    Half an emoji, cut by whoever made the data, has no UTF-8 form, and a tokenizer refuses the whole text
    for it with an error that names neither.

    >>> well_formed("caf\u00e9 \ud83d!")
    'café ?!'
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
