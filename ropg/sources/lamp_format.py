"""Facts about LaMP's files: which fields each task has, its labels, and what its inputs ask about."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from ropg.sources.normalised import Layout
from ropg.sources.report import did_you_mean
from ropg.sources.validation import Rules

_QUESTION = {
    "id": ("id",),
    "user": ("user_id", "user"),
    "input": ("input",),
    "date": ("date",),
    "profile": ("profile",),
}


@dataclass(frozen=True, slots=True)
class LampTask:
    """One task: its number, the key of a document's text, what else a document needs, labels, and the
    words after which the text of the input begins."""

    number: int
    text: str
    required: tuple[str, ...]
    marker: str
    labels: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        """The name as this project writes it, such as LaMP-4."""
        return f"LaMP-{self.number}"

    @property
    def layout(self) -> Layout:
        """Where the parts of an example stand in LaMP's records."""
        document = {
            "id": ("id",),
            "text": (self.text,),
            "score": ("score",),
            "date": ("date",),
            "tag": ("tag",),
        }
        if self.text != "title":
            document["title"] = ("title",)
        return Layout(_QUESTION, document, self.required)

    @property
    def rules(self) -> Rules:
        """What the validator must know."""
        return Rules(self.labels, self.query_texts, file_names=self.number == 6)

    def query_texts(self, text: str) -> tuple[str, ...]:
        """The part of an input that must not stand in a profile: the body, or LaMP-1's own title."""
        if self.number == 1:
            match = _LAMP_1.match(text)
            return (match["title"],) if match else (text,)
        _, found, body = text.partition(self.marker)
        return (body,) if found else (text,)


_LAMP_1 = re.compile(
    r'.*?written the paper with the title "(?P<title>.*)", which reference is related\?', re.DOTALL
)

#: LaMP-2's tags, in the order of its inputs.
MOVIE_TAGS = (
    "sci-fi", "based on a book", "comedy", "action", "twist ending", "dystopia", "dark comedy", "classic",
    "psychology", "fantasy", "romance", "thought-provoking", "social commentary", "violence", "true story",
)  # fmt: skip

TASKS = {
    task.number: task
    for task in (
        LampTask(1, "abstract", ("text", "title"), "", ("[1]", "[2]")),
        LampTask(2, "description", ("text", "tag"), "description: ", MOVIE_TAGS),
        LampTask(3, "text", ("text", "score"), "review: ", ("1", "2", "3", "4", "5")),
        LampTask(4, "text", ("text", "title"), "article: "),
        LampTask(5, "abstract", ("text", "title"), "paper: "),
        LampTask(6, "text", ("text", "title"), "email: "),
        LampTask(7, "text", ("text",), "after it: "),
    )
}


def lamp_task(name: str) -> LampTask:
    """The task of any spelling of its name.

    >>> lamp_task("lamp_4").name, lamp_task("LaMP-4").name, lamp_task("LaMP4").name
    ('LaMP-4', 'LaMP-4', 'LaMP-4')
    """
    match = re.fullmatch(r"lamp[-_ ]?([1-7])", name.strip(), re.IGNORECASE)
    if match is None:
        raise ValueError(f"unknown task {name!r}{did_you_mean(name, [task.name for task in TASKS.values()])}")
    return TASKS[int(match[1])]


@dataclass(frozen=True, slots=True)
class LampFiles:
    """The files of one split; ``outputs`` is None for a test split without golds."""

    questions: Path
    outputs: Path | None


def find_files(root: str | Path, task: LampTask, split: str, setting: str | None) -> LampFiles:
    """Find the files of a split in the layouts they are downloaded or kept in.

    These are ``[time/|user/]LaMP_4/[new/][dev/]dev_questions.json`` with any of the bracketed folders,
    and the files right under ``root``; .jsonl does as well. ``setting`` chooses between a time-based
    and a user-based copy below one root.

    Raises FileNotFoundError that names every path tried, and ValueError where ``setting`` is needed.
    """
    root = Path(root).expanduser()
    if setting not in (None, "time", "user"):
        raise ValueError(f"setting={setting!r}: known are time, user, and None where there is only one copy")
    tried: list[Path] = []
    found = {
        name: _first_existing(_folders(root, task, split, name), f"{split}_questions", tried)
        for name in ("time", "user")
        if setting in (None, name)
    }
    if len({path for path in found.values() if path}) > 1:
        raise ValueError(
            f"{task.name} {split}: a time-based and a user-based copy lie below {root} "
            f"({found['time']}, {found['user']}). Remedy: say setting=time or setting=user"
        )
    questions = next((path for path in found.values() if path), None)
    if questions is None:
        other = {"time": "user", "user": "time"}.get(setting or "")
        if other and _first_existing(_folders(root, task, split, other), f"{split}_questions", []):
            raise FileNotFoundError(
                f"{task.name} {split}: {root} holds no {setting}-based copy, but a {other}-based one. Remedy: say "
                f"setting={other} (on the command line data.setting={other})"
            )
        raise _not_found(f"{task.name} {split}: no questions file", tried)
    tried = []
    outputs = _first_existing([questions.parent], f"{split}_outputs", tried)
    if outputs is None and split != "test":
        raise _not_found(f"{task.name} {split}: no outputs file beside {questions}", tried)
    return LampFiles(questions, outputs)


def _not_found(what: str, tried: list[Path]) -> FileNotFoundError:
    paths = "\n  ".join(dict.fromkeys(map(str, tried)))
    return FileNotFoundError(
        f"{what}. Tried:\n  {paths}\nRemedy: set root to the folder that holds the download"
    )


def _first_existing(folders: list[Path], stem: str, tried: list[Path]) -> Path | None:
    for folder in folders:
        for suffix in (".json", ".jsonl"):
            path = folder / f"{stem}{suffix}"
            tried.append(path)
            if path.is_file():
                return path
    return None


def _folders(root: Path, task: LampTask, split: str, setting: str) -> list[Path]:
    """Folders to look into, the most specific first. User-based is what stands outside of ``time``."""
    above = [root / setting]
    if (root.name == "time") == (setting == "time"):
        above.append(root)
    tasks = [folder / name for folder in above for name in _spellings(folder, task)]
    bases = [*tasks, root / setting, root]
    return [folder for base in bases for folder in (base / "new" / split, base / "new", base / split, base)]


def _spellings(folder: Path, task: LampTask) -> list[str]:
    """The task's folder as it is spelled there; the spelling of the download where there is none."""
    if not folder.is_dir():
        return [f"LaMP_{task.number}"]
    present = [path.name for path in sorted(folder.iterdir()) if path.is_dir()]
    pattern = re.compile(rf"lamp[-_]?{task.number}", re.IGNORECASE)
    return [name for name in present if pattern.fullmatch(name)] or [f"LaMP_{task.number}"]
