"""What a task is: φ_q, document text, φ_p, labels and Eval behind one small interface."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ropg.examples import Document
from ropg.tasks.budget import Prompt, Tokenizer, fit
from ropg.tasks.metrics import LIKELIHOOD, Metric
from ropg.tasks.parsing import Parser, TextParser
from ropg.tasks.templates import Template

RATINGS = ("1", "2", "3", "4", "5")


@dataclass(frozen=True)
class TaskDefinition:
    """What a task's file gives: everything but the choice of template and metric.

    query: φ_q, input -> query string. templates: name -> φ_p. document_text: what a retriever sees of a
    document, without its date. metric: the default Eval. metrics: what the tables report. labels: the
    closed set of answers, in table order, or None for generated text.
    """

    name: str
    query: Callable[[str], str]
    templates: Mapping[str, Template]
    document_text: Callable[[Document], str]
    metric: str = "rouge1"
    metrics: tuple[str, ...] = ("rouge1", "rougeL")
    labels: tuple[str, ...] | None = None
    parser: Parser = field(default_factory=TextParser)


class Task:
    """One task with one template and one metric; see :func:`ropg.tasks.get_task`.

    Attributes
    ----------
    name: as in the files, "LaMP-4". template: "paper", "pattern", or a name of one's own. language: "en", …
    labels: the closed set of answers, or None. metrics: names of the metrics that the tables report.
    metric: the name of Eval. eval_identity: all that Eval's values depend on: metric, tokenizer, versions,
    labels, the reading of outputs. stop: strings at which generation may end.
    """

    def __init__(self, definition: TaskDefinition, template: str, language: str, metric: Metric) -> None:
        if template not in definition.templates:
            raise ValueError(
                f"{definition.name} has no template {template!r}; it has {', '.join(definition.templates)}"
            )
        self._definition = definition
        self._template = definition.templates[template]
        self._metric = metric
        self.name = definition.name
        self.template = template
        self.language = language
        self.labels = definition.labels
        self.metrics = definition.metrics
        self.metric = metric.name
        self.stop = self._template.stop
        stops = "".join(f"|stop={stop!r}" for stop in self.stop)
        labels = f"|labels={self.labels!r}" if self.labels else ""
        self.eval_identity = f"{metric.identity}|parser={definition.parser.name}{labels}{stops}"

    def __repr__(self) -> str:
        return f"<task {self.name}, template {self.template}, language {self.language}, Eval {self.metric}>"

    def query(self, input: str) -> str:
        """φ_q: the part of x after the instruction, or all of x where it has another form than expected."""
        return self._definition.query(input)

    def document_text(self, document: Document, with_date: bool = True) -> str:
        """What a retriever sees of a document, with ``date: <date>`` after it where it has a date."""
        text = self._definition.document_text(document)
        return f"{text} date: {document.date}" if with_date and document.date else text

    def build_prompt(
        self,
        input: str,
        documents: Sequence[Document],
        tokenizer: Tokenizer | None = None,
        max_tokens: int | None = None,
    ) -> Prompt:
        """φ_p(x, documents) within a token budget; see :mod:`ropg.tasks.budget` for the rules.

        Parameters
        ----------
        documents: best first, each at most once. tokenizer: a Hugging Face tokenizer or a callable
        text -> number of tokens (special tokens counted); it, or max_tokens, None: no limit.

        Raises ValueError where a document stands twice, lacks the tag or score that the template shows, or
        where the budget is too small for the instruction and a word of the question.
        """
        return fit(self._template, input, documents, tokenizer, max_tokens, self.name)

    def prompt(
        self,
        input: str,
        documents: Sequence[Document],
        tokenizer: Tokenizer | None = None,
        max_tokens: int | None = None,
    ) -> str:
        """The text of :meth:`build_prompt`."""
        return self.build_prompt(input, documents, tokenizer, max_tokens).text

    def parse(self, output: str) -> str:
        """The output in the form in which predictions are stored and scored; idempotent.

        A label in its official spelling (:mod:`ropg.tasks.parsing` has the rules), generated text stripped.
        Where the template stops at a newline only the first line that holds something is read, whether or
        not the LLM stopped there. An unreadable output comes back stripped; :meth:`is_parsed` tells.
        """
        text = self._answer(output)
        read = self._definition.parser.read(text)
        return text if read is None else read

    def is_parsed(self, output: str) -> bool:
        """Whether the output (or its parsed form) can be read; where not, it scores 0."""
        return self._definition.parser.read(self._answer(output)) is not None

    def check_target(self, target: str | None, record: str = "") -> str:
        """The gold in the form that :meth:`parse` gives; ValueError, naming ``record``, if it is unknown."""
        where = f"{self.name}, record {record!r}" if record else self.name
        if target is None:
            raise ValueError(f"{where}: there is no gold output to score against")
        if self.labels is None:
            return target.strip()
        plain = re.sub(r"\.0+$", "", target.strip()).casefold()
        for label in self.labels:
            if plain == label.casefold():
                return label
        raise ValueError(
            f"{where}: gold {target!r} is none of the labels {', '.join(self.labels)}; correct the gold"
        )

    def score(self, prediction: str, target: str) -> float:
        """Eval(y, ŷ) in [0, 1], higher is better; parses the prediction first.

        Unreadable predictions score 0. Raises ValueError for a gold that is no label, and for the metric
        "likelihood", which needs the LLM.
        """
        gold = self.check_target(target)
        if self.metric != LIKELIHOOD and not self.is_parsed(prediction):
            return 0.0
        return self._metric(self.parse(prediction), gold)

    def _answer(self, output: str) -> str:
        """The part of an output that counts: stripped, up to the first stop string."""
        text = output.strip()
        for stop in self.stop:
            text = text.partition(stop)[0].strip()
        return text
