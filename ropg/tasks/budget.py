"""The token budget of a prompt.

Nothing is cut by decoding tokens: texts are cut on the original string, so that what is kept is a verbatim
prefix. With documents, x keeps its place whole; only an x that alone exceeds the budget is trimmed, to
60 % of it, at the end of its body. The rest is shared equally by the documents in rank order, and what one
leaves unused passes on to the next. Within a document body text goes before the title; tags, scores and
wording are never cut. A document of which nothing would be left does not fit: the lowest-ranked document
is then dropped and the others share anew. The whole prompt, special tokens included, is measured last and
shortened further where joining has cost tokens.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ropg.examples import Document
from ropg.tasks.templates import Piece, Question, Template
from ropg.text import well_formed

Tokenizer = Any  # a Hugging Face tokenizer, or a callable text -> number of tokens

INPUT_SHARE = 0.6
_PROBE = 8  # characters per token: a text's first _PROBE x budget characters usually tell that it is too long
_ATTEMPTS = 12
_FILLER = "x"  # stands for a text while its surroundings are measured: it keeps "\n\n" and "\n\n" apart
_WORD = 40  # a cut moves back to the last space if that is at most so many characters away


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt and what became of the documents.

    text: the prompt. kept_ids: documents in it, in rank order. dropped: documents that did not fit.
    trimmed: whether x itself was shortened. shortened: documents in it whose text was cut.
    """

    text: str
    kept_ids: tuple[str, ...]
    dropped: int = 0
    trimmed: bool = False
    shortened: int = 0


#: What :func:`count_cuts` counts.
CUTS = ("trimmed_prompts", "shortened_documents", "dropped_documents")


def count_cuts(counts: dict[str, int], prompt: Prompt) -> None:
    """Add what the token budget cut from a prompt.

    >>> counts = dict.fromkeys(CUTS, 0)
    >>> count_cuts(counts, Prompt("…", ("a",), dropped=2, trimmed=True))
    >>> counts
    {'trimmed_prompts': 1, 'shortened_documents': 0, 'dropped_documents': 2}
    """
    for name, cut in zip(CUTS, (prompt.trimmed, prompt.shortened, prompt.dropped), strict=True):
        counts[name] += cut


class Ruler:
    """Measures texts in tokens of one tokenizer; remembers what it measured."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._is_hf = hasattr(tokenizer, "decode") and hasattr(tokenizer, "encode")
        self._tokenizer = tokenizer
        self._offsets = self._is_hf and bool(getattr(tokenizer, "is_fast", False))
        self._counts: dict[str, int] = {}
        self._characters_per_token = 4.0

    def count(self, text: str) -> int:
        """Tokens of a whole prompt, special tokens included."""
        if text not in self._counts:
            if self._is_hf:
                count = len(self._tokenizer(well_formed(text), verbose=False)["input_ids"])
            else:
                count = int(self._tokenizer(text))
            self._counts[text] = count
        return self._counts[text]

    def size(self, text: str) -> int:
        """Tokens of a part of a prompt: what it adds to the empty prompt."""
        return max(self.count(text) - self.count(""), 0)

    def exceeds(self, text: str, limit: int) -> bool:
        """Whether a whole prompt has more than ``limit`` tokens; a far too long one is not read whole."""
        probe = text[: _PROBE * limit + _WORD]
        if probe:
            self._characters_per_token = len(probe) / max(self.count(probe), 1)
        return self.count(probe) > limit or (len(probe) < len(text) and self.count(text) > limit)

    def prefix(self, text: str, limit: int) -> str:
        """A longest verbatim prefix of about ``limit`` tokens, ending at a word where one ends nearby."""
        if limit <= 0 or not text:
            return ""
        return (self._by_offsets if self._offsets else self._by_measuring)(text, limit)

    def _by_offsets(self, text: str, limit: int) -> str:
        width = _PROBE * limit + _WORD
        while True:
            part = text[:width]
            encoded = self._tokenizer(
                well_formed(part), add_special_tokens=False, return_offsets_mapping=True, verbose=False
            )
            offsets = encoded["offset_mapping"]
            if len(offsets) > limit:
                return _at_word_end(text, offsets[limit - 1][1])
            if len(part) == len(text):
                return text
            width *= 4

    def _by_measuring(self, text: str, limit: int) -> str:
        low, high = 0, len(text)  # text[:low] fits; no prefix longer than high is known to fit
        guess = round(limit * self._characters_per_token)
        for step in range(64):
            if low >= high:
                break
            cut = min(max(guess, low + 1), high)
            size = self.size(text[:cut])
            if size <= limit:
                low = cut
                if size == limit:
                    break
            else:
                high = cut - 1
            if size:
                self._characters_per_token = cut / size
            # proportional steps get near in two or three; halving always ends
            guess = round(cut * limit / size) if size and step < 3 else (low + high + 1) // 2
        end = _word_end(text, low)
        if end != low and self.size(text[:end]) <= limit:
            return text[:end]
        return _at_word_end(text, low)


def _inside_word(text: str, cut: int) -> bool:
    return 0 < cut < len(text) and text[cut - 1].isalnum() and text[cut].isalnum()


def _word_end(text: str, cut: int) -> int:
    end = cut
    while _inside_word(text, end) and end - cut < _WORD:
        end += 1
    return end


def _at_word_end(text: str, cut: int) -> str:
    """``text[:cut]``, or less where that would split a word and a space stands shortly before."""
    if _inside_word(text, cut):
        for start in range(cut - 1, max(cut - _WORD, 0), -1):
            if text[start].isspace():
                return text[:start].rstrip() or text[:cut]
    return text[:cut].rstrip()


def shrink(pieces: Sequence[Piece], limit: int, ruler: Ruler) -> list[str] | None:
    """Texts of the pieces, cut to at most ``limit`` tokens together; None where that leaves nothing.

    Pieces of the lowest ``cut`` are shortened first and may vanish; of the last kind something must stay.
    Pieces of the same kind share what there is equally.

    >>> words = Ruler(lambda text: len(text.split()))
    >>> shrink([Piece("title: "), Piece("a b c", 1), Piece(" text: "), Piece("d e f g", 0)], 7, words)
    ['title: ', 'a b c', ' text: ', 'd e']
    >>> shrink([Piece("title: "), Piece("a b c", 1), Piece(" text: "), Piece("d e f g", 0)], 4, words)
    ['title: ', 'a b', ' text: ', '']
    """
    texts = [piece.text for piece in pieces]
    if not ruler.exceeds("".join(texts), limit + ruler.count("")):
        return texts
    for kind in sorted({piece.cut for piece in pieces if piece.cut is not None}):
        places = [i for i, piece in enumerate(pieces) if piece.cut == kind and piece.text]
        last = not any(piece.text.strip() for piece in pieces if piece.cut is not None and piece.cut > kind)
        for i in places:
            texts[i] = _FILLER
        room = limit - ruler.size("".join(texts)) + len(places) * ruler.size(_FILLER)
        while room > 0:
            for i, text in zip(places, _share([pieces[i].text for i in places], room, ruler), strict=True):
                texts[i] = text
            over = ruler.size("".join(texts)) - limit
            if over <= 0:
                blank = any(pieces[i].text.strip() and not texts[i].strip() for i in places)
                return None if last and blank else texts
            room -= over
        for i in places:
            texts[i] = ""
        if not last and ruler.size("".join(texts)) <= limit:
            return texts
    return None


def _share(texts: Sequence[str], room: int, ruler: Ruler) -> list[str]:
    kept, allowance = [], 0.0
    for text in texts:
        allowance += room / len(texts)
        part = ruler.prefix(text, int(allowance + 1e-9))
        allowance -= ruler.size(part)
        kept.append(part)
    return kept


def _share_among(entries: Sequence[Sequence[Piece]], room: int, ruler: Ruler) -> list[str] | None:
    """Entry texts within ``room`` tokens: equal shares, the unused passed on; None if one does not fit."""
    texts, allowance = [], 0.0
    for entry in entries:
        allowance += room / len(entries)
        parts = shrink(entry, int(allowance + 1e-9), ruler)
        if parts is None:
            return None
        texts.append("".join(parts))
        allowance -= ruler.size(texts[-1])
    return texts


def fit(
    template: Template,
    text: str,
    documents: Sequence[Document],
    tokenizer: Tokenizer | None,
    max_tokens: int | None,
    name: str,
) -> Prompt:
    """Build the prompt of input ``text`` with ``documents`` (best first) in at most ``max_tokens`` tokens.

    ``tokenizer`` or ``max_tokens`` None: no limit. Raises ValueError where a document stands twice or where
    the budget cannot hold the instruction and a word of the question. Warns where x is trimmed.
    """
    ids = tuple(document.id for document in documents)
    if len(set(ids)) < len(ids):
        twice = sorted({i for i in ids if ids.count(i) > 1})
        raise ValueError(f"{name}: chosen twice for one prompt: documents {twice}; choose each at most once")
    question = template.question(text)
    entries = [template.entry(document) for document in documents]
    whole = ["".join(piece.text for piece in entry) for entry in entries]
    prompt = template.render(question, whole, documents)
    if tokenizer is None or max_tokens is None:
        return Prompt(prompt, ids)
    ruler = Ruler(tokenizer)
    if not ruler.exceeds(prompt, max_tokens):
        return Prompt(prompt, ids)

    fits_alone = bool(documents) and not ruler.exceeds(template.render(question, [], []), max_tokens)
    if not fits_alone:
        place = int(INPUT_SHARE * max_tokens) if documents else max_tokens
        question_whole = question
        question = _trim(question_whole, place, ruler) or _trim_or_raise(
            question_whole, max_tokens, ruler, name
        )
        warnings.warn(
            f"{name}: an input alone exceeds the budget of {max_tokens} tokens; the end of its body was cut "
            "(said once; Prompt.trimmed marks each)",
            stacklevel=3,
        )
    fitted = _fit_documents(template, question, documents, entries, ruler, max_tokens)
    n = fitted[1]
    shortened = sum(text != entry for text, entry in zip(fitted[2], whole, strict=False))
    if fits_alone:
        return Prompt(fitted[0], ids[:n], len(ids) - n, shortened=shortened)
    best = _give_back(template, question_whole, question, documents, fitted, ruler, max_tokens)
    return Prompt(best, ids[:n], len(ids) - n, trimmed=True, shortened=shortened)


def _trim(question: Question, limit: int, ruler: Ruler) -> Question | None:
    overhead = ruler.count("")
    texts = shrink(question.pieces, limit - overhead, ruler)
    return None if texts is None else question.with_texts(texts)


def _trim_or_raise(question: Question, limit: int, ruler: Ruler, name: str) -> Question:
    trimmed = _trim(question, limit, ruler)
    if trimmed is None:
        fixed = ruler.count("".join(piece.text for piece in question.pieces if piece.cut is None))
        raise ValueError(
            f"{name}: a budget of {limit} tokens cannot hold the instruction ({fixed} tokens) and a word of "
            "the question; raise max_tokens"
        )
    return trimmed


def _fit_documents(
    template: Template,
    question: Question,
    documents: Sequence[Document],
    entries: Sequence[Sequence[Piece]],
    ruler: Ruler,
    max_tokens: int,
) -> tuple[str, int, list[str]]:
    """The prompt, how many of the best documents are in it, and their texts."""
    for n in range(len(documents), 0, -1):
        joined = ruler.count(template.render(question, [_FILLER] * n, documents[:n]))
        room = max_tokens - joined + n * ruler.size(_FILLER)
        for _ in range(_ATTEMPTS):
            texts = _share_among(entries[:n], room, ruler) if room > 0 else None
            if texts is None:
                break
            prompt = template.render(question, texts, documents[:n])
            over = ruler.count(prompt) - max_tokens
            if over <= 0:
                return prompt, n, texts
            room -= over
    return template.render(question, [], []), 0, []


def _give_back(
    template: Template,
    whole: Question,
    trimmed: Question,
    documents: Sequence[Document],
    fitted: tuple[str, int, list[str]],
    ruler: Ruler,
    max_tokens: int,
) -> str:
    """The prompt again, with what the documents left unused given to the trimmed x."""
    prompt, n, texts = fitted
    used = ruler.count("".join(piece.text for piece in trimmed.pieces))
    spare = max_tokens - ruler.count(prompt)
    while spare > 0:
        longer = _trim(whole, used + spare, ruler)
        if longer is None:
            return prompt
        candidate = template.render(longer, texts, documents[:n])
        over = ruler.count(candidate) - max_tokens
        if over <= 0:
            return candidate
        spare -= over
    return prompt
