"""The systems that PGraphRAG compares, over profiles of own and neighbour documents.

A :class:`Recipe` says which documents a system may show and how it chooses among them; :func:`build_system` makes
it the :class:`ropg.evaluation.systems.System` that evaluation knows.

======================  ==========================================================================
PGraphRAG (``both``)    k documents of the user and k of neighbours, or k altogether: ``budget``
PGraphRAG-N             k documents of neighbours
PGraphRAG-U, or LaMP    k of the user's own documents
No-Retrieval            none
Random-Retrieval        k documents from the profiles of all users
``*``                   k documents of the profile in random order instead of ranked
``**``                  as many ranked documents as the prompt's token budget holds whole
======================  ==========================================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ropg.evaluation.systems import System, rank_examples
from ropg.examples import Document, Example
from ropg.graph.random_documents import random_documents
from ropg.retrievers import ProvenanceFilter, Quota, Random, Ranked, Retriever

#: Whose documents a system shows: of the user and the neighbours, of either, of anyone in the data set, of no one.
Mode = Literal["both", "neighbors", "own", "anyone", "none"]
#: What k means where a system shows both sides: k of each, up to 2k in all, or k in all.
Budget = Literal["each_side", "equal"]
#: How a system chooses: the retriever's best k, k in random order, the retriever's best that fit the prompt.
Choice = Literal["ranked", "random", "all_that_fits"]

PROVENANCES = {"both": ("own", "neighbor"), "neighbors": ("neighbor",), "own": ("own",)}
_NAMES = {
    "both": "pgraphrag",
    "neighbors": "pgraphrag_n",
    "own": "lamp",
    "anyone": "random_retrieval",
    "none": "none",
}
_LABELS = {
    "both": "PGraphRAG",
    "neighbors": "PGraphRAG-N",
    "own": "LaMP",
    "anyone": "Random-Retrieval",
    "none": "No-Retrieval",
}
_STARS = {"ranked": "", "random": "*", "all_that_fits": "**"}
_SUFFIXES = {"ranked": "", "random": "_random", "all_that_fits": "_all"}


@dataclass(frozen=True, slots=True)
class Recipe:
    """One system. ``retriever``: the name of what ranks (bm25, dense, ropg_kd). ``k``: documents per side or prompt.

    >>> Recipe("both", "bm25", 4).name, Recipe("both", "bm25", 4, budget="equal").name
    ('pgraphrag-bm25-k4', 'pgraphrag_equal-bm25-k4')
    >>> Recipe("own", "bm25", 4, choice="all_that_fits").name, Recipe("none").name
    ('lamp_all-bm25', 'none')
    """

    mode: Mode
    retriever: str = "bm25"
    k: int = 4
    budget: Budget = "each_side"
    choice: Choice = "ranked"

    def __post_init__(self) -> None:
        for value, known in ((self.mode, Mode), (self.budget, Budget), (self.choice, Choice)):
            if value not in get_args(known):
                raise ValueError(f"{value!r} is none of {', '.join(get_args(known))}")
        if self.k < 1:
            raise ValueError(f"k={self.k}: a system shows at least one document; the mode 'none' shows none")

    @property
    def name(self) -> str:
        """What tells systems of one task apart: only what the system depends on is in it."""
        parts = [_NAMES[self.mode] + _SUFFIXES[self.choice] + ("_equal" if self._is_equal else "")]
        parts += [self.retriever] if self.uses_retriever else []
        parts += [f"k{self.k}"] if self.uses_k else []
        return "-".join(parts)

    @property
    def label(self) -> str:
        """How tables write it, retriever and k left out.

        >>> Recipe("own", choice="random").label, Recipe("both", budget="equal").label
        ('LaMP*', 'PGraphRAG, equal budget')
        """
        return _LABELS[self.mode] + _STARS[self.choice] + (", equal budget" if self._is_equal else "")

    @property
    def baseline(self) -> Recipe:
        """What it is tested against: LaMP, the best k of the user's own documents by the same retriever."""
        return Recipe("own", self.retriever, self.k)

    @property
    def _is_equal(self) -> bool:
        return self.mode == "both" and self.budget == "equal" and self.choice != "all_that_fits"

    @property
    def uses_retriever(self) -> bool:
        """Whether it depends on the retriever."""
        return self.mode in PROVENANCES and self.choice != "random"

    @property
    def uses_k(self) -> bool:
        """Whether it depends on k."""
        return self.mode != "none" and self.choice != "all_that_fits"


def build_system(
    recipe: Recipe,
    retrievers: Mapping[str, Retriever],
    task: Any,
    llm: Any,
    everyone: Sequence[Example],
    *,
    label: str | None = None,
    seed: int = 0,
) -> System:
    """The system of a recipe.

    Parameters
    ----------
    retrievers: name -> what ranks whole profiles. task, llm: whose prompts and token budget decide what fits.
    everyone: the examples of the whole data set, from whose profiles Random-Retrieval draws. seed: of what is random.

    Raises ValueError where the recipe's retriever is not among ``retrievers``.
    """
    label = label or recipe.label
    if recipe.mode == "none":
        return System(recipe.name, label, lambda examples: [[] for _ in range(len(examples))])
    if recipe.mode == "anyone":
        return System(
            recipe.name,
            label,
            lambda examples: (random_documents(example, everyone, recipe.k, seed) for example in examples),
        )
    if recipe.choice != "random" and recipe.retriever not in retrievers:
        raise ValueError(
            f"{recipe.name}: there is no retriever {recipe.retriever!r} among {', '.join(retrievers)}"
        )
    base = Random(seed) if recipe.choice == "random" else retrievers[recipe.retriever]
    if not base.fills_prompt:
        raise ValueError(
            f"the retriever {recipe.retriever} puts nothing into a prompt; No-Retrieval is that system"
        )
    retriever = of_mode(base, recipe)

    def rank(examples: Sequence[Example]) -> Iterator[list[Document]]:
        rankings = rank_examples(retriever, task, examples)
        for example, ranking in zip(examples, rankings, strict=True):
            yield chosen(recipe, example, ranking, task, llm)

    return System(recipe.name, label, rank)


def of_mode(retriever: Retriever, recipe: Recipe) -> Retriever:
    """The retriever over the documents of the recipe's mode, by a quota of k for each side where both have one."""
    if recipe.mode != "both":
        return ProvenanceFilter(retriever, PROVENANCES[recipe.mode])
    if recipe.budget == "equal" or recipe.choice == "all_that_fits":
        return retriever
    return Quota(retriever, dict.fromkeys(PROVENANCES["both"], recipe.k))


def chosen(
    recipe: Recipe, example: Example, ranking: Sequence[Ranked], task: Any, llm: Any
) -> list[Document]:
    """The documents of a ranking that the recipe shows, best first."""
    documents = [ranked.document for ranked in ranking]
    if recipe.choice == "all_that_fits":
        return documents[: fitting(example.input, documents, task, llm)]
    if recipe.mode == "both" and recipe.budget == "each_side":
        return documents  # the quota has cut them
    return documents[: recipe.k]


def fitting(input: str, documents: Sequence[Document], task: Any, llm: Any) -> int:
    """How many of the best documents stand whole in one prompt; at least one, which the prompt may then shorten.

    The prompt builder shares its budget out among all documents it is given: given hundreds, it would show a word
    of each. So as many are given as fit uncut, found by doubling and halving: a longer list is a longer prompt.
    """
    if llm.max_input_tokens is None:
        return len(documents)

    def fits(n: int) -> bool:
        return bool(llm.count_tokens(task.prompt(input, documents[:n])) <= llm.max_input_tokens)

    most = len(documents)
    low, high = 0, 1  # the first `low` are known to fit
    while high <= most and fits(high):
        low, high = high, 2 * high
    high = min(high, most + 1)  # the first `high` do not fit, or are more than there are
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return max(low, min(1, most))


def available(recipe: Recipe, examples: Sequence[Example]) -> int:
    """How many documents of the recipe's mode the profiles hold altogether, from which the system chooses."""
    wanted = PROVENANCES.get(recipe.mode, ())
    return sum(document.provenance in wanted for example in examples for document in example.profile)
