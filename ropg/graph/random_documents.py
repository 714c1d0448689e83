"""Random-Retrieval: documents of users who have nothing to do with the one who asks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ropg.examples import Document, Example
from ropg.retrievers.random import uniform

# draws that miss (the user's own, ones drawn before) before everything is looked through instead
_DRAWS_PER_DOCUMENT = 50


def random_documents(example: Example, everyone: Sequence[Example], k: int, seed: int = 0) -> list[Document]:
    """Draw k documents from the profiles of all users, for one example.

    A profile is drawn, then a document of it; nothing that the example's own user wrote is taken, so the target
    never is. All count as a neighbour's. The draw depends on the seed, the example's id and the data set alone;
    fewer than k come back only where there are no more.
    """
    found: dict[str, Document] = {}
    for document in _draws(example, everyone, k, seed):
        if len(found) == k:
            break
        if document.id not in found and not wrote(example, document) and not is_target(example, document):
            found[document.id] = replace(document, provenance="neighbor")
    return list(found.values())


def wrote(example: Example, document: Document) -> bool:
    """Whether the example's user wrote a document; one without author is known by its id in their own profile."""
    if document.author is not None:
        return document.author == example.user
    return document.id in {d.id for d in example.profile if d.provenance == "own"}


def is_target(example: Example, document: Document) -> bool:
    """Whether a document says what the example asks and what it wants: the target, or a copy of it.

    >>> example = Example("e", "u", "slept well", "Quiet", ())
    >>> is_target(example, Document("d", "slept well", "Quiet")), is_target(example, Document("d", "slept well"))
    (True, False)
    """
    asks = (document.title, document.text, f"{document.title}\n{document.text}")
    return example.input in asks and example.target in (document.title, document.text, document.score)


def _draws(example: Example, everyone: Sequence[Example], k: int, seed: int) -> Iterator[Document]:
    """Documents in an order that the seed and the example decide: many draws, then all that there are."""
    for number in range(_DRAWS_PER_DOCUMENT * k):
        profile = everyone[int(uniform(seed, example.id, f"profile {number}") * len(everyone))].profile
        if len(profile):
            yield profile[int(uniform(seed, example.id, f"document {number}") * len(profile))]
    for other in everyone:
        yield from other.profile
