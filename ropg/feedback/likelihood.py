"""The likelihood of the target as an Eval: what the store lacks is computed in planned batches and kept."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ropg import processes
from ropg.feedback.generation import planned_batches, progress_bar
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

    Batches are planned over all distinct pairs, committed whole, and shared out among the processes of a launcher,
    and ``owners`` names the user of each pair, as in ``generate_missing``.

    Raises ValueError, naming the prompt's beginning, for a value that is not a log-probability; nothing
    of that batch is stored.
    """
    distinct = list(dict.fromkeys(pairs))
    key_of = {pair: likelihood_key(llm.identity, *pair) for pair in distinct}
    batches = planned_batches(llm, [prompt for prompt, _ in distinct])
    together = processes.count() > 1
    if together:
        processes.require_same(digest(list(key_of.values())), "pairs of prompt and target")
        batches = batches[processes.index() :: processes.count()]
    mine = [distinct[index] for batch in batches for index in batch]
    settings = {"identity": dict(llm.identity)}
    values = store.get_likelihoods(key_of.values())
    users = owners_of((key_of[pair] for pair in pairs), owners)
    store.put_owners({key: users[key] for key in users if key in values})
    missing = sum(key_of[pair] not in values for pair in mine)
    if missing:
        store.claim_writer()
    with progress_bar(
        len(mine), len(mine) - missing, description or "likelihood", progress and missing > 0
    ) as bar:
        wanted = ([distinct[i] for i in batch if key_of[distinct[i]] not in values] for batch in batches)
        for todo, computed in llm.likelihood_batches(pairs for pairs in wanted if pairs):
            made = {key_of[pair]: _checked(value, pair) for pair, value in zip(todo, computed, strict=True)}
            store.put_likelihoods(made, settings, {key: users[key] for key in made if key in users})
            values.update(made)
            bar.update(len(todo))
    if together:
        processes.wait()
        values.update(store.get_likelihoods(key for key in key_of.values() if key not in values))
        missing = processes.total(missing)
    keys = [key_of[pair] for pair in pairs]
    return keys, [values[key] for key in keys], missing


def _checked(value: float, pair: tuple[str, str]) -> float:
    if not math.isfinite(value) or value > _ROUNDING:
        raise ValueError(
            f"the mean log-probability of {pair[1][:60]!r} after {pair[0][:60]!r} is {value}; it is a finite "
            "number of at most 0. Try another dtype for the LLM (float16 overflows in T5)"
        )
    return min(value, 0.0)
