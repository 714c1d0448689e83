"""Where a generated text ends: stop strings in text, and the same rule applied while tokens appear."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def find_stop(text: str, stops: Sequence[str]) -> int | None:
    """Where the earliest stop string begins in ``text``, or None.

    Small models often begin with a space or a line break. A stop string of whitespace alone, such as a
    line break, therefore counts only after the first other character; any other counts from the start.

    >>> find_stop("\\n A quiet stay\\nreview: more", ["\\n"])
    14
    >>> find_stop("\\n A quiet", ["\\n"]) is None
    True
    >>> find_stop("\\nreview: more", ["\\nreview:"])
    0
    """
    begin = len(text) - len(text.lstrip())
    found = [text.find(stop, 0 if stop.strip() else begin) for stop in stops]
    return min((place for place in found if place >= 0), default=None)


class StopStrings:
    """A stopping criterion of transformers' ``generate``: which rows have just reached a stop string.

    Works row by row, for greedy and for beam search alike: a beam that reaches a stop string counts as
    finished just as one that reaches the end-of-sequence token. The new tokens of a row are decoded only
    when its last token can complete a stop string, which is looked up per token, so a step costs next to
    nothing.

    Parameters
    ----------
    stops: the stop strings.
    decode: token ids -> text.
    start: number of leading tokens of a row that are not new (the prompt, or the decoder's start token).
    completes: memory of which token ids can complete a stop string; share it between calls.
    """

    def __init__(
        self, stops: Sequence[str], decode: Callable[[list[int]], str], start: int, completes: dict[int, bool]
    ) -> None:
        self.stops = stops
        self.decode = decode
        self.start = start
        self.completes = completes

    def __call__(self, input_ids: Tensor, scores: Any = None, **_: Any) -> Tensor:
        """(rows, tokens) -> (rows,) bool: True where the row ends here."""
        import torch

        ended = [
            self._can_complete(token)
            and find_stop(self.decode(input_ids[row, self.start :].tolist()), self.stops) is not None
            for row, token in enumerate(input_ids[:, -1].tolist())
        ]
        return torch.tensor(ended, device=input_ids.device)

    def _can_complete(self, token: int) -> bool:
        known = self.completes.get(token)
        if known is None:
            known = self.completes[token] = self._holds_a_last_character(self.decode([token]))
        return known

    def _holds_a_last_character(self, piece: str) -> bool:
        # U+FFFD: the token ends within a character. A piece alone may lose its leading space when decoded.
        return "\ufffd" in piece or any(stop[-1] in piece or stop[-1] == " " for stop in self.stops)
