"""Find examples and documents by their ids without holding all profiles."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ropg.examples import Document, Example


def examples_by_id(examples: Sequence[Example], wanted: Iterable[str]) -> dict[str, int]:
    """Example id -> index into ``examples`` for the wanted ids.

    Raises ValueError for an id that comes twice or not at all.
    """
    need = dict.fromkeys(wanted)
    found: dict[str, int] = {}
    for index in range(len(examples)):
        example_id = examples[index].id
        if example_id not in need:
            continue
        if example_id in found:
            raise ValueError(f"example {example_id!r} comes twice; ids must be unique")
        found[example_id] = index
    missing = [example_id for example_id in need if example_id not in found]
    if missing:
        raise ValueError(
            f"{len(missing)} examples of the table are not among the {len(examples)} examples given, "
            f"such as {missing[0]!r}; the table belongs to other data: build it again"
        )
    return found


def documents_by_id(example: Example, wanted: Sequence[str]) -> list[Document]:
    """The documents of a profile with the wanted ids, in that order.

    Raises ValueError, naming example and document, where the profile has no such document.
    """
    need = set(wanted)
    found = {document.id: document for document in example.profile if document.id in need}
    for document_id in wanted:
        if document_id not in found:
            raise ValueError(
                f"example {example.id!r}: its profile has no document {document_id!r}; the table belongs to "
                "other data: build it again"
            )
    return [found[document_id] for document_id in wanted]
