"""Produce what the store lacks, batch by batch, and hand back everything that was asked for."""

from __future__ import annotations

import itertools
import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from tqdm import tqdm

from ropg import processes
from ropg.feedback.claims import Claims
from ropg.feedback.keys import digest, generation_key
from ropg.feedback.owners import owners_of
from ropg.feedback.store import GenerationRecord, GenerationStore
from ropg.llms import LLM, Generation

log = logging.getLogger(__name__)

_Asked = TypeVar("_Asked")
_Found = TypeVar("_Found")
_POLL_SECONDS = 0.2  # how often a process that waits for another's batches looks for them


@dataclass(frozen=True, slots=True)
class GenerationReport:
    """The answers to a list of prompts and what it took to get them.

    ``records`` has one entry per prompt, in the order of the prompts; None only where ``shard`` left a
    prompt to another process. ``n_truncated`` counts distinct prompts whose answer was cut off by the
    limit of new tokens. ``seconds`` is wall-clock time.
    """

    records: tuple[GenerationRecord | None, ...]
    n_prompts: int
    n_distinct: int
    n_generated: int
    n_from_store: int
    n_truncated: int
    seconds: float

    @property
    def texts(self) -> list[str]:
        """The answer to each prompt, in order. Raises ValueError where another shard still owes one."""
        return [record.text for record in self._complete()]

    @property
    def keys(self) -> list[str]:
        """The store's key of each prompt, in order. Raises ValueError where another shard still owes one."""
        return [record.key for record in self._complete()]

    @property
    def n_missing(self) -> int:
        """Prompts that are left to other shards."""
        return sum(record is None for record in self.records)

    def _complete(self) -> list[GenerationRecord]:
        complete = [record for record in self.records if record is not None]
        if len(complete) < len(self.records):
            raise ValueError(
                f"{self.n_missing} of {self.n_prompts} prompts belong to other shards; wait until they are "
                "done, then ask for all prompts without a shard"
            )
        return complete


def generate_missing(
    llm: LLM,
    prompts: Sequence[str],
    store: GenerationStore,
    *,
    owners: Sequence[str] | None = None,
    progress: bool = True,
    description: str = "",
    shard: tuple[int, int] | None = None,
) -> GenerationReport:
    """Answer every prompt, from the store where it can, by the LLM where it must.

    Batches are planned over all distinct prompts, whatever the store has of them, and each is committed
    whole: a resumed run generates the same batches as an undisturbed one, and so the same texts. Of a
    batch that other runs filled in part only the missing prompts are generated. An LLM whose answers are
    all there is never asked, not even for a plan, so that its tokenizer and weights stay unloaded.

    Processes on one store share the work: a batch that another has claimed is left to it and looked for at
    the end, and taken over where the other has died (see :mod:`ropg.feedback.claims`).

    ``owners`` names the user of each prompt; the store then knows, also of answers that it had already,
    what concerns a user (``python -m ropg.store forget``).

    ``shard=(i, n)`` generates every n-th planned batch from the i-th on; n processes together do all. Without
    it the processes of a launcher (:mod:`ropg.processes`) share the batches out, wait for each other and all
    return everything; ``n_generated`` then counts what all of them made.

    Raises whatever the LLM raises; nothing of that batch is stored. After an interrupt the same call goes
    on where it stopped.
    """
    started = time.monotonic()
    distinct = list(dict.fromkeys(prompts))
    together = shard is None and processes.count() > 1
    if together:
        processes.require_same(digest(distinct), "prompts")
        shard = (processes.index(), processes.count())
    settings = {"identity": dict(llm.identity), "decoding": dict(llm.decoding)}
    key_of = {prompt: generation_key(llm.identity, prompt, llm.decoding) for prompt in distinct}
    records = store.get_many(key_of.values())
    first, step = (0, 1) if shard is None else _checked(shard)
    batches = planned_batches(llm, distinct)[first::step] if len(records) < len(distinct) else []
    wanted = [[distinct[index] for index in batch] for batch in batches]
    users = owners_of((key_of[prompt] for prompt in prompts), owners)
    if first == 0:  # one of the shards notes whose the stored answers are
        store.put_owners({key: users[key] for key in records if key in users})
    total = sum(map(len, wanted))
    missing = sum(key_of[prompt] not in records for batch in wanted for prompt in batch)
    n_generated = tokens = 0
    if missing:
        store.claim_writer()

    def look(keys: Iterator[str]) -> dict[str, GenerationRecord]:
        found = store.get_many(keys)
        store.put_owners({key: users[key] for key in found if key in users})
        return found

    with progress_bar(total, total - missing, description or "generate", progress and missing > 0) as bar:
        try:
            work = claimed_batches(wanted, key_of, records, look, store.claims, bar.update)
            for batch, answers in itertools.chain.from_iterable(map(llm.answer_batches, work)):
                made = _records(llm, batch, answers, key_of)
                store.put_many(made, settings, {r.key: users[r.key] for r in made if r.key in users})
                store.claims.release(record.key for record in made)
                records.update((record.key, record) for record in made)
                n_generated += len(made)
                tokens += sum(record.prompt_tokens + record.new_tokens for record in made)
                seconds = time.monotonic() - started
                bar.set_postfix_str(f"{tokens / max(seconds, 1e-9):.0f} tokens/s", refresh=False)
                bar.update(len(made))
        except KeyboardInterrupt:
            log.warning(
                "interrupted: %d of %d prompts are answered and stored in %s; the same command goes on there",
                sum(key_of[prompt] in records for prompt in distinct),
                len(distinct),
                store.folder,
            )
            raise
        finally:
            store.claims.release_all()
    if together:
        processes.wait()
        records.update(store.get_many(key for key in key_of.values() if key not in records))
        n_generated = processes.total(n_generated)
    answered = [records[key_of[prompt]] for prompt in distinct if key_of[prompt] in records]
    return GenerationReport(
        records=tuple(records.get(key_of[prompt]) for prompt in prompts),
        n_prompts=len(prompts),
        n_distinct=len(distinct),
        n_generated=n_generated,
        n_from_store=len(answered) - n_generated,
        n_truncated=sum(record.finish_reason == "length" for record in answered),
        seconds=time.monotonic() - started,
    )


def claimed_batches(
    batches: Sequence[Sequence[_Asked]],
    key_of: Mapping[_Asked, str],
    found: dict[str, _Found],
    look: Callable[[Iterator[str]], Mapping[str, _Found]],
    claims: Claims,
    seen: Callable[[int], object],
) -> Iterator[Iterator[list[_Asked]]]:
    """What of the batches is still to be made, in passes: each an iterator over batches that are claimed for us.

    A pass skips the batches that others have claimed and never waits for them: whoever reads it may hold
    finished batches that others wait for. Between passes, with nothing of ours in flight, we do wait. ``found``
    (key -> what the store holds) is filled by ``look``, and ``seen`` is told how many others made meanwhile.
    """
    waiting = list(batches)

    def one_pass(todo: Sequence[Sequence[_Asked]]) -> Iterator[list[_Asked]]:
        for batch in todo:
            missing = {key_of[item]: item for item in batch if key_of[item] not in found}
            if not missing:
                continue
            ours = claims.take(missing)
            there = look(iter(missing))  # only now: whoever had the claim before us has committed
            found.update(there)
            seen(len(there))
            claims.release(there)
            fresh = [item for key, item in missing.items() if key not in there]
            if fresh and ours:
                yield fresh
            elif fresh:
                waiting.append(batch)

    while waiting:
        todo, waiting = waiting, []
        work = one_pass(todo)
        first = next(work, None)
        if first is not None:
            yield itertools.chain([first], work)
        elif waiting:
            time.sleep(_POLL_SECONDS)


def planned_batches(llm: LLM, prompts: Sequence[str]) -> list[list[int]]:
    """Ask the LLM for its batches and check that they name every prompt once."""
    if not prompts:
        return []
    batches = llm.plan(prompts)
    named = sorted(index for batch in batches for index in batch)
    if named != list(range(len(prompts))):
        raise ValueError(
            f"the plan of {type(llm).__name__} names {len(named)} places for {len(prompts)} prompts; plan() "
            "must put every index into exactly one batch"
        )
    return batches


def progress_bar(total: int, done: int, description: str, shown: bool) -> tqdm:
    """A bar over prompts that starts at what the store already holds; sparse where no terminal shows it."""
    interval = 0.5 if sys.stderr.isatty() else 30.0
    return tqdm(
        total=total,
        initial=done,
        desc=f"{description} ({done} from the store)" if done else description,
        unit=" prompts",
        mininterval=interval,
        maxinterval=max(interval, 10.0),
        disable=not shown,
    )


def _records(
    llm: LLM, prompts: Sequence[str], answers: Sequence[Generation], key_of: dict[str, str]
) -> list[GenerationRecord]:
    if len(answers) != len(prompts):
        raise ValueError(f"{type(llm).__name__} gave {len(answers)} answers to {len(prompts)} prompts")
    now = time.time()
    return [
        GenerationRecord(key_of[p], a.text, a.finish_reason, a.prompt_tokens, a.new_tokens, now)
        for p, a in zip(prompts, answers, strict=True)
    ]


def _checked(shard: tuple[int, int]) -> tuple[int, int]:
    index, number = shard
    if not 0 <= index < number:
        raise ValueError(f"shard {shard} is not (index, number of shards) with 0 <= index < number")
    return shard
