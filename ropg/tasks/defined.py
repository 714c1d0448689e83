r"""Tasks of one's own, wholly in YAML (or as a mapping).

    name: recipe names                   # optional
    instruction: "Name this recipe:"     # what inputs begin with; φ_q leaves it out. Optional
    document: "{title} {text}"           # what a retriever sees
    fields: [cuisine]                    # names in Document.fields that the templates may use. Optional
    cut: [text, title]                   # what may be shortened, first to last; never anything else
    templates:
      paper:
        entry: '"{title}" ({cuisine}) names "{text}"'
        join: ", and "
        context: "{documents}. "         # left out where there are no documents
        question: "{input}"              # {input}: x as it is; {query}: without the instruction
      pattern:
        entry: "recipe: {text}\nname: {title}"
        join: "\n\n"
        context: "{documents}\n\n"
        question: "recipe: {query}\nname:"
        order: best_last                 # or best_first
        stop: ["\n"]
    labels: ["yes", "no"]                # where the answers are a closed set. Optional
    parser: label                        # text, label, rating or reference; by default from `labels`
    metric: rouge1                       # Eval, as in get_task
    metrics: [rouge1, rougeL]            # what the tables report

Placeholders are ``{title}``, ``{text}``, ``{score}``, ``{date}``, ``{tag}``, ``{author}``, ``{item}``,
``{id}`` and the names under ``fields``. They are replaced once, by name: braces inside data, and braces of
a template that hold no plain name, stay as they are. ``${title}`` is refused, since Hydra would read it as
its own.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ropg.examples import Document
from ropg.tasks.base import TaskDefinition
from ropg.tasks.parsing import LabelParser, Parser, RatingParser, ReferenceParser, TextParser
from ropg.tasks.templates import (
    BODY,
    Piece,
    Question,
    Template,
    best_last,
    in_rank_order,
    input_splitter,
    phrase,
)
from ropg.tasks.wording import query_after

_ATTRIBUTES = ("title", "text", "score", "date", "tag", "author", "item", "id")
_TASK_KEYS = (
    "name",
    "instruction",
    "document",
    "fields",
    "cut",
    "templates",
    "labels",
    "parser",
    "metric",
    "metrics",
)
_TEMPLATE_KEYS = ("entry", "join", "context", "question", "order", "stop")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]\w*)\}")
_PARSERS: dict[str, Callable[[Sequence[str]], Parser]] = {
    "label": LabelParser,
    "rating": RatingParser,
    "reference": ReferenceParser,
}


def define_task(name: str, definition: Mapping[str, Any] | str) -> TaskDefinition:
    """The task that a mapping, or the YAML file at a path, defines.

    Raises ValueError that names the key, with the nearest valid one where it is misspelt.

    >>> task = define_task("echo", {"templates": {"paper": {"entry": "<{text}>"}}})
    >>> template = task.templates["paper"]
    >>> template.entry(Document("1", "{title}", title="T"))[1].text
    '{title}'
    """
    where = f"task {name!r}"
    if isinstance(definition, str):
        where = f"{definition}, task {name!r}"
        definition = _read(definition)
    _only_keys(definition, _TASK_KEYS, where)
    fields = tuple(_strings(definition.get("fields") or (), "fields", where))
    names = (*_ATTRIBUTES, *fields)
    cut = tuple(_strings(definition.get("cut", ("text", "title")), "cut", where))
    for cuttable in cut:
        _known(cuttable, names, "cut", where)
    instruction = definition.get("instruction")
    split = input_splitter(phrase(str(instruction))) if instruction else _whole
    labels = tuple(_strings(definition["labels"], "labels", where)) if definition.get("labels") else None
    templates = definition.get("templates")
    if not isinstance(templates, Mapping) or not templates:
        raise ValueError(f"{where}: `templates` must hold at least one template, such as paper: {{entry: …}}")
    document = _pieces(str(definition.get("document", "{title} {text}")), names, "document", where)
    parser = _parser(definition.get("parser"), labels, where)
    if isinstance(parser, RatingParser):
        metric, metrics = "normalized_mae", ("mae", "rmse")
    else:
        metric, metrics = ("accuracy", ("accuracy", "f1")) if labels else ("rouge1", ("rouge1", "rougeL"))
    return TaskDefinition(
        name=str(definition.get("name") or name),
        query=query_after(split),
        templates={
            str(key): _template(value, split, names, cut, f"{where}, template {key!r}")
            for key, value in templates.items()
        },
        document_text=lambda doc: "".join(p if fixed else _value(doc, p) for fixed, p in document).strip(),
        metric=str(definition.get("metric") or metric),
        metrics=tuple(_strings(definition.get("metrics") or metrics, "metrics", where)),
        labels=labels,
        parser=parser,
    )


def _read(path: str) -> Mapping[str, Any]:
    import yaml

    try:
        content = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as error:
        raise ValueError(f"task definition {path}: {error}") from error
    if not isinstance(content, Mapping):
        raise ValueError(f"task definition {path}: expected keys such as `templates:` at the top")
    return content


def _whole(text: str) -> tuple[str, str]:
    return "", text


def _template(
    definition: Any,
    split: Callable[[str], tuple[str, str]],
    names: Collection[str],
    cut: Sequence[str],
    where: str,
) -> Template:
    if not isinstance(definition, Mapping):
        raise ValueError(f"{where}: expected keys such as `entry:`")
    _only_keys(definition, _TEMPLATE_KEYS, where)
    if "entry" not in definition:
        raise ValueError(f"{where}: `entry` is missing: how one document is shown")
    entry_pieces = _pieces(str(definition["entry"]), names, "entry", where)
    question_pieces = _pieces(
        str(definition.get("question", "{input}")), ("input", "query"), "question", where
    )
    if all(fixed for fixed, _ in question_pieces):
        raise ValueError(f"{where}: `question` must show {{input}} or {{query}}")
    context = str(definition.get("context", "{documents}\n\n"))
    _pieces(context, ("documents",), "context", where)
    lead, found, trail = context.partition("{documents}")
    if not found or "{documents}" in trail:
        raise ValueError(f"{where}: `context` must hold {{documents}} once")
    orders = {"best_first": in_rank_order, "best_last": best_last}
    order = str(definition.get("order", "best_first"))
    _known(order, orders, "order", where)
    stop = tuple(_strings(definition.get("stop") or (), "stop", where))
    if "" in stop:
        raise ValueError(f"{where}: a stop string is empty")

    def entry(document: Document) -> tuple[Piece, ...]:
        return tuple(
            Piece(part) if fixed else Piece(_value(document, part), cut.index(part) if part in cut else None)
            for fixed, part in entry_pieces
        )

    def question(text: str) -> Question:
        head, body = split(text)
        pieces: list[Piece] = []
        for fixed, part in question_pieces:
            if fixed:
                pieces.append(Piece(part))
            elif part == "input":
                pieces += [Piece(head), Piece(body, BODY)]
            else:
                pieces.append(Piece(body.strip(), BODY))
        return Question(after=tuple(pieces), lead=lead, trail=trail)

    return Template(question, entry, orders[order](str(definition.get("join", "\n\n"))), stop)


def _pieces(template: str, names: Collection[str], key: str, where: str) -> list[tuple[bool, str]]:
    """The template as (is fixed, text or placeholder name)."""
    if "${" in template:
        raise ValueError(f"{where}: `{key}` holds '${{'; placeholders are written {{title}}, without the $")
    parts = _PLACEHOLDER.split(template)  # text, name, text, name, …, text
    for name in parts[1::2]:
        _known(name, names, key, where)
    return [(i % 2 == 0, part) for i, part in enumerate(parts) if part]


def _value(document: Document, name: str) -> str:
    value = getattr(document, name) if name in _ATTRIBUTES else document.fields.get(name)
    return "" if value is None else str(value)


def _parser(name: Any, labels: tuple[str, ...] | None, where: str) -> Parser:
    if name is None:
        name = "label" if labels else "text"
    if name == "text" and labels is None:
        return TextParser()
    _known(str(name), _PARSERS, "parser", where)
    if labels is None:
        raise ValueError(f"{where}: the parser {name!r} needs `labels`")
    try:
        parser = _PARSERS[str(name)](labels)
    except ValueError as error:
        raise ValueError(f"{where}: the parser {name!r} cannot read the labels {labels}: {error}") from error
    for label in labels:
        if parser.read(label) != label:
            raise ValueError(f"{where}: the parser {name!r} does not read the label {label!r} as itself")
    return parser


def _strings(value: Any, key: str, where: str) -> list[str]:
    """A list of strings; numbers become strings, anything else is refused."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"{where}: `{key}` must be a list, not {value!r}")
    for item in value:
        if isinstance(item, bool) or not isinstance(item, str | int | float):
            raise ValueError(
                f'{where}: `{key}` holds {item!r}, which is no string; quote it, as in "[1]" or "yes"'
            )
    return [str(item) for item in value]


def _only_keys(definition: Mapping[str, Any], known: Collection[str], where: str) -> None:
    for key in definition:
        _known(str(key), known, "key", where)


def _known(name: str, known: Collection[str], kind: str, where: str) -> None:
    if name not in known:
        near = difflib.get_close_matches(name, list(known), n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise ValueError(f"{where}: {kind} {name!r} is unknown; {hint}Known: {', '.join(known)}")
