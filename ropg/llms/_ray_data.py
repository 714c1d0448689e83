"""The Ray side of :mod:`ropg.llms.ray_actors`: one Ray Data stream of numbered blocks. Importing this imports ray.

A block is one planned batch. Ray Data moves only the numbers of blocks: a source that yields 0, 1, 2, …, and
``map_batches`` with a pool of actors that hold the LLM. What a number stands for lies with one small actor,
the :class:`Feeder`, which the driver fills a few blocks ahead of the answers. This is what lets Ray Data

* read as it goes: a dataset made of all batches would have to be read to its end before the first answer;
* do a lost block again: a number means the same block whoever asks, and however often;
* see a block that kills: the feeder counts how often a block was begun.
"""

from __future__ import annotations

import asyncio
import json
import logging
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import ray
import ray.data
from ray.data.block import BlockMetadata
from ray.data.datasource import Datasource, ReadTask
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

TICKET, ANSWER = "block", "answer"
POISON = "PoisonBlock"


class Feeder:
    """Holds the blocks that are not answered yet. An asynchronous Ray actor beside the driver.

    ``tries``: how often a block may be begun. ``idle_seconds``: how long a stream without work keeps its actors.
    """

    def __init__(self, tries: int, idle_seconds: float) -> None:
        self.tries = tries
        self.idle_seconds = idle_seconds
        self.fed = 0
        self.resting = self.ended = False
        self.blocks: dict[int, str] = {}
        self.begun: dict[int, int] = {}
        self.changed = asyncio.Condition()

    async def put(self, number: int, block: str) -> bool:
        """Take in the next block; False where the stream has ended for lack of work."""
        async with self.changed:
            if self.ended:
                return False
            self.blocks[number], self.fed, self.resting = block, number + 1, False
            self.changed.notify_all()
            return True

    async def rest(self) -> None:
        """There is nothing more to do for now."""
        async with self.changed:
            self.resting = True
            self.changed.notify_all()

    async def has(self, number: int) -> bool:
        """Wait for a block; False once the stream has ended."""
        async with self.changed:
            while number >= self.fed and not self.ended:
                seconds = self.idle_seconds if self.resting else None
                try:
                    await asyncio.wait_for(self.changed.wait(), seconds)
                except TimeoutError:
                    self.ended = self.resting and number >= self.fed
            return number < self.fed

    async def take(self, number: int) -> tuple[int, str]:
        """Begin a block: how often that was tried, this time included, and the block, empty after the last try."""
        self.begun[number] = self.begun.get(number, 0) + 1
        return self.begun[number], self.blocks[number] if self.begun[number] <= self.tries else ""

    async def done(self, number: int) -> None:
        """Forget a block that is answered."""
        self.blocks.pop(number, None)
        self.begun.pop(number, None)


class Numbers(Datasource):
    """0, 1, 2, … for as long as the feeder has blocks; the same again where the task is done again."""

    def __init__(self, feeder: Any) -> None:
        self.feeder = feeder

    def estimate_inmemory_data_size(self) -> int | None:
        """Not known."""
        return None

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[ReadTask]:
        """One task."""
        feeder = self.feeder

        def read() -> Iterator[pa.Table]:
            number = 0
            while ray.get(feeder.has.remote(number)):
                yield pa.table({TICKET: [number]})
                number += 1

        size: dict[str, Any] = dict.fromkeys(("num_rows", "size_bytes", "input_files", "exec_stats"))
        return [ReadTask(read, BlockMetadata(**size))]


class Answerer:
    """Holds the LLM, loaded with the first block, and answers one block at a time."""

    def __init__(self, feeder: Any, build: Callable[[], Any], identity: str) -> None:
        self.feeder = feeder
        self.build = build
        self.identity = identity
        self.llm: Any = None

    def __call__(self, batch: dict[str, Any]) -> dict[str, list[Any]]:
        """{block: [number]} -> the number with its answer as JSON, or with the error in its place."""
        number = int(batch[TICKET][0])
        tries, block = ray.get(self.feeder.take.remote(number))
        if not block:
            answer: Any = {"error": POISON, "message": f"it was begun {tries - 1} times"}
        else:
            try:
                answer = self._answer(**json.loads(block))
            except Exception as error:
                answer = {
                    "error": type(error).__name__,
                    "message": str(error),
                    "trace": traceback.format_exc(limit=-5),
                }
        return {TICKET: [number], ANSWER: [json.dumps(answer)]}

    def _answer(self, prompts: list[str], targets: list[str] | None = None) -> Any:
        if self.llm is None:
            llm = self.build()
            here = json.dumps(dict(llm.identity), sort_keys=True)
            if here != self.identity:
                raise ValueError(
                    f"the LLM of an actor is {here}, that of the driver {self.identity}: the same files and the same "
                    "versions must lie on every node"
                )
            self.llm = llm
        if targets is not None:
            return [float(value) for value in self.llm.log_likelihood(prompts, targets)]
        answers = self.llm.generate_batch(prompts)
        return [[a.text, a.finish_reason, a.prompt_tokens, a.new_tokens] for a in answers]


class Stream:
    """Blocks in, answers out, in whatever order they are finished. One stream loads each actor's LLM once."""

    def __init__(
        self,
        build: Callable[[], Any],
        identity: str,
        *,
        actors: int,
        cpus: float,
        gpus: float,
        tries: int,
        idle_seconds: float,
    ) -> None:
        logging.getLogger("ray.data").setLevel(logging.WARNING)
        warnings.filterwarnings(
            "ignore", "The minimum number of concurrent actors"
        )  # it has seen one block yet
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        options: dict[str, Any] = {"num_cpus": 0, "max_concurrency": 10_000, "scheduling_strategy": here}
        self._feeder: Any = ray.remote(**options)(Feeder).remote(tries, idle_seconds)
        self._number = 0
        context = ray.data.DataContext.get_current().copy()
        context.enable_progress_bars = False
        context.print_on_execution_start = False
        context.target_max_block_size = context.target_min_block_size = 1  # a number is a block of its own
        context.execution_no_progress_timeout_s = -1  # a block of a slow LLM may take long
        with ray.data.DataContext.current(context):
            numbers = ray.data.read_datasource(Numbers(self._feeder), num_cpus=0, override_num_blocks=1)
            answers = numbers.map_batches(
                Answerer,
                fn_constructor_args=(self._feeder, build, identity),
                batch_size=1,
                # one waits while one is answered; a lost actor repeats what it had begun and no more
                compute=ray.data.ActorPoolStrategy(size=actors, max_tasks_in_flight_per_actor=2),
                num_cpus=cpus,
                num_gpus=gpus,
            )
            self._answers: Any = iter(answers.iter_batches(batch_size=None, prefetch_batches=0))

    def put(self, block: dict[str, Any]) -> int | None:
        """Hand over a block and return its number; None where the stream has ended for lack of work."""
        number = self._number
        if not ray.get(self._feeder.put.remote(number, json.dumps(block))):
            return None
        self._number += 1
        return number

    def next(self) -> tuple[int, Any]:
        """Wait for the next answer: its number, and what :class:`Answerer` made of it."""
        row = next(self._answers)
        number = int(row[TICKET][0])
        self._feeder.done.remote(number)
        return number, json.loads(str(row[ANSWER][0]))

    def rest(self) -> None:
        """Nothing more comes for now: actors that stay without work are given up after a while."""
        self._feeder.rest.remote()

    def close(self) -> None:
        """Give the actors up at once; what they are at is lost."""
        self._answers = None
        ray.kill(self._feeder)


def connect(address: str | None, **local: Any) -> None:
    """Join the cluster at ``address``, or start a Ray of this process alone; nothing where one is joined already."""
    if ray.is_initialized():
        return
    quiet: dict[str, Any] = {"logging_level": "error", "log_to_driver": False}
    if address is None:
        ray.init(address="local", include_dashboard=False, _node_ip_address="127.0.0.1", **quiet, **local)
    else:
        ray.init(address=address, **quiet)
