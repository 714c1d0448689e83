"""The likelihood of the target as an Eval: what the store lacks is computed in planned batches and kept."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

from ropg import processes
from ropg.feedback.generation import claimed_batches, planned_batches, progress_bar
from ropg.feedback.keys import digest, likelihood_key
from ropg.feedback.owners import owners_of
from ropg.feedback.store import GenerationStore
from ropg.llms import LLM

_ROUNDING = 1e-4  # how far above 0 rounding may lift a log-probability


def likelihoods_missing(
    llm: LLM,
    pairs: Sequence[tuple[str, str]],
    store: GenerationStore,
    *,
    owners: Sequence[str] | None = None,
    progress: bool = True,
    description: str = "",
) -> tuple[list[str], list[float], int]:
    """Keys and mean log-probabilities per token of each (prompt, target), and how many the LLM computed.

    Batches are planned over all distinct pairs, claimed, committed whole, and shared out among the processes of a
    launcher, and ``owners`` names the user of each pair, as in ``generate_missing``.

    Raises ValueError, naming the prompt's beginning, for a value that is not a log-probability; nothing
    of that batch is stored.
    """
    distinct = list(dict.fromkeys(pairs))
    key_of = {pair: likelihood_key(llm.identity, *pair) for pair in distinct}
    together = processes.count() > 1
    if together:
        processes.require_same(digest(list(key_of.values())), "pairs of prompt and target")
    settings = {"identity": dict(llm.identity)}
    values = store.get_likelihoods(key_of.values())
    batches: list[list[int]] = []
    if len(values) < len(distinct):
        batches = planned_batches(llm, [prompt for prompt, _ in distinct])
        batches = batches[processes.index() :: processes.count()]
    mine = [distinct[index] for batch in batches for index in batch]
    users = owners_of((key_of[pair] for pair in pairs), owners)
    if processes.is_main():
        store.put_owners({key: users[key] for key in users if key in values})
    missing = sum(key_of[pair] not in values for pair in mine)
    n_computed = 0

    def look(keys: Iterator[str]) -> dict[str, float]:
        found = store.get_likelihoods(keys)
        store.put_owners({key: users[key] for key in found if key in users})
        return found

    if missing:
        store.claim_writer()
    with progress_bar(
        len(mine), len(mine) - missing, description or "likelihood", progress and missing > 0
    ) as bar:
        wanted = [[distinct[index] for index in batch] for batch in batches]
        work = claimed_batches(wanted, key_of, values, look, store.claims, bar.update)
        try:
            for todo, computed in itertools.chain.from_iterable(map(llm.likelihood_batches, work)):
                made = {key_of[p]: _checked(value, p) for p, value in zip(todo, computed, strict=True)}
                store.put_likelihoods(made, settings, {key: users[key] for key in made if key in users})
                store.claims.release(made)
                values.update(made)
                n_computed += len(made)
                bar.update(len(made))
        finally:
            store.claims.release_all()
    if together:
        processes.wait()
        values.update(store.get_likelihoods(key for key in key_of.values() if key not in values))
        n_computed = processes.total(n_computed)
    keys = [key_of[pair] for pair in pairs]
    return keys, [values[key] for key in keys], n_computed


def _checked(value: float, pair: tuple[str, str]) -> float:
    if not math.isfinite(value) or value > _ROUNDING:
        raise ValueError(
            f"the mean log-probability of {pair[1][:60]!r} after {pair[0][:60]!r} is {value}; it is a finite "
            "number of at most 0. Try another dtype for the LLM (float16 overflows in T5)"
        )
    return min(value, 0.0)
