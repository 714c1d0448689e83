"""An LLM that repeats the first title it is shown: what a system answers then follows from what it retrieved.

``llm.kind=echo_llm:EchoLLM``. ``ECHO_LOG`` names a file that gets a line per prompt that is begun. ``BatchEcho``
answers by the whole batch, so a run that forms other batches gives other texts; ``ECHO_FAILS_AT`` names the batch,
counted over the log, that fails once, and ``ECHO_SECONDS`` how long a batch takes.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Sequence
from typing import Any

from ropg.llms import Generation
from ropg.llms.base import BatchedLLM

BATCH = 2


class EchoLLM(BatchedLLM):
    """The first title in the prompt, "nothing" where there is none; a word is a token."""

    def __init__(self, model: str = "echo", max_input_tokens: int = 512, **options: Any) -> None:
        self.max_input_tokens = max_input_tokens
        self.identity = {"kind": type(self).__name__, "model": model}
        self.decoding = {"num_beams": 1}

    def count_tokens(self, text: str) -> int:
        return len(text.split())

    def plan(self, prompts: Sequence[str]) -> list[list[int]]:
        return [list(range(i, min(i + BATCH, len(prompts)))) for i in range(0, len(prompts), BATCH)]

    def generate_batch(self, prompts: Sequence[str]) -> list[Generation]:
        self._begin(prompts)
        return [Generation(self._text(p, prompts), "stop", len(p.split()), 2) for p in prompts]

    def _text(self, prompt: str, batch: Sequence[str]) -> str:
        found = re.search(r"^title: (\S.*)$", prompt, re.MULTILINE)
        return found[1] if found else "nothing"

    def _begin(self, prompts: Sequence[str]) -> None:
        if "ECHO_LOG" not in os.environ:
            return
        with open(os.environ["ECHO_LOG"], "a+", encoding="ascii") as log:
            log.seek(0)
            batch = sum(line.startswith("batch") for line in log) + 1
            log.write("batch\n")
            log.write("".join(f"{hashlib.sha256(p.encode()).hexdigest()}\n" for p in prompts))
        if os.environ.get("ECHO_FAILS_AT") == str(batch):
            raise KeyboardInterrupt
        time.sleep(float(os.environ.get("ECHO_SECONDS", "0")))


class BatchEcho(EchoLLM):
    """The title, and a word that stands for the whole batch."""

    def _text(self, prompt: str, batch: Sequence[str]) -> str:
        whole = hashlib.sha256("\n".join([prompt, *batch]).encode()).hexdigest()[:1]
        return f"{super()._text(prompt, batch)} good{whole}"
