"""The likelihood of the target as an Eval: what the store lacks is computed in planned batches and kept."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ropg.feedback.generation import planned_batches, progress_bar
from ropg.feedback.keys import likelihood_key
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

    Batches are planned over all distinct pairs and committed whole, and ``owners`` names the user of each
    pair, as in ``generate_missing``.

    Raises ValueError, naming the prompt's beginning, for a value that is not a log-probability; nothing
    of that batch is stored.
    """
    distinct = list(dict.fromkeys(pairs))
    key_of = {pair: likelihood_key(llm.identity, *pair) for pair in distinct}
    batches = planned_batches(llm, [prompt for prompt, _ in distinct])
    settings = {"identity": dict(llm.identity)}
    values = store.get_likelihoods(key_of.values())
    users = owners_of((key_of[pair] for pair in pairs), owners)
    store.put_owners({key: users[key] for key in users if key in values})
    missing = sum(key_of[pair] not in values for pair in distinct)
    if missing:
        store.claim_writer()
    with progress_bar(
        len(distinct), len(distinct) - missing, description or "likelihood", progress and missing > 0
    ) as bar:
        for batch in batches:
            todo = [distinct[index] for index in batch if key_of[distinct[index]] not in values]
            if not todo:
                continue
            computed = llm.log_likelihood([prompt for prompt, _ in todo], [target for _, target in todo])
            made = {key_of[pair]: _checked(value, pair) for pair, value in zip(todo, computed, strict=True)}
            store.put_likelihoods(made, settings, {key: users[key] for key in made if key in users})
            values.update(made)
            bar.update(len(todo))
    keys = [key_of[pair] for pair in pairs]
    return keys, [values[key] for key in keys], missing


def _checked(value: float, pair: tuple[str, str]) -> float:
    if not math.isfinite(value) or value > _ROUNDING:
        raise ValueError(
            f"the mean log-probability of {pair[1][:60]!r} after {pair[0][:60]!r} is {value}; it is a finite "
            "number of at most 0. Try another dtype for the LLM (float16 overflows in T5)"
        )
    return min(value, 0.0)
