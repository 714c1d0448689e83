"""φ_q and φ_p of the seven LaMP tasks, written out by hand from Table 2."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ropg.examples import Document
from ropg.registry import UnknownName
from ropg.tasks import get_task

LAMP_1 = (
    'For an author who has written the paper with the title "Deep nets", which reference is related? '
    'Just answer with [1] or [2] without explanation. [1]: "Backprop" [2]: "Databases"'
)
LAMP_2 = (
    "Which tag does this movie relate to among the following tags? Just answer with the tag name without "
    "further explanation. tags: [sci-fi, based on a book, comedy, action, twist ending, dystopia, dark comedy, "
    "classic, psychology, fantasy, romance, thought-provoking, social commentary, violence, true story] "
    "description: A robot learns to love."
)
LAMP_3 = (
    "What is the score of the following review on a scale of 1 to 5? just answer with 1, 2, 3, 4, or 5 without "
    "further explanation. review: Broke at once."
)
LAMP_4 = "Generate a headline for the following article: Cats sleep a lot."
LAMP_5 = "Generate a title for the following abstract of a paper: We study cats."
LAMP_6 = "Generate a subject for the following email: Dear all, the cat is ill."
LAMP_7 = "Paraphrase the following tweet without any explanation before or after it: my cat is so lazy"

TITLED = (Document("a", "text one", title="T1"), Document("b", "text two", title="T2"))
TAGGED = (Document("a", "a war", tag="violence"), Document("b", "a kiss", tag="romance"))
SCORED = (Document("a", "good", score="4"), Document("b", "bad", score="1"))

# task, input, φ_q(input), two documents, φ_p by Table 2, φ_p as a pattern
CASES = [
    (
        "LaMP-1",
        LAMP_1,
        "Backprop Databases",
        TITLED,
        'For an author who has written the paper with the title "Deep nets", and "T1", and "T2", which reference '
        'is related? Just answer with [1] or [2] without explanation. [1]: "Backprop" [2]: "Databases"',
        "paper: T2\n\npaper: T1\n\npaper: Deep nets\nreference [1]: Backprop\nreference [2]: Databases\n"
        "related reference:",
    ),
    (
        "LaMP-2",
        LAMP_2,
        "A robot learns to love.",
        TAGGED,
        'the tag for the movie: "a war" is "violence", and the tag for the movie: "a kiss" is "romance". '
        + LAMP_2,
        "description: a kiss\ntag: romance\n\ndescription: a war\ntag: violence\n\n"
        "description: A robot learns to love.\ntag:",
    ),
    (
        "LaMP-3",
        LAMP_3,
        "Broke at once.",
        SCORED,
        '4 is the score for "good", and 1 is the score for "bad". ' + LAMP_3,
        "review: bad\nscore: 1\n\nreview: good\nscore: 4\n\nreview: Broke at once.\nscore:",
    ),
    (
        "LaMP-4",
        LAMP_4,
        "Cats sleep a lot.",
        TITLED,
        '"T1" is the title for "text one", and "T2" is the title for "text two". ' + LAMP_4,
        "article: text two\nheadline: T2\n\narticle: text one\nheadline: T1\n\n"
        "article: Cats sleep a lot.\nheadline:",
    ),
    (
        "LaMP-5",
        LAMP_5,
        "We study cats.",
        TITLED,
        '"T1" is the title for "text one", and "T2" is the title for "text two". '
        "Following the given patterns " + LAMP_5,
        "abstract: text two\ntitle: T2\n\nabstract: text one\ntitle: T1\n\nabstract: We study cats.\ntitle:",
    ),
    (
        "LaMP-6",
        LAMP_6,
        "Dear all, the cat is ill.",
        TITLED,
        '"T1" is the title for "text one", and "T2" is the title for "text two". ' + LAMP_6,
        "email: text two\nsubject: T2\n\nemail: text one\nsubject: T1\n\n"
        "email: Dear all, the cat is ill.\nsubject:",
    ),
    (
        "LaMP-7",
        LAMP_7,
        "my cat is so lazy",
        TITLED,
        '"text one", and "text two" are written by a person. Following the given patterns ' + LAMP_7,
        "tweet: text two\n\ntweet: text one\n\ntext: my cat is so lazy\ntweet:",
    ),
]
IDS = [case[0] for case in CASES]


@pytest.mark.parametrize(("name", "x", "query", "documents", "paper", "pattern"), CASES, ids=IDS)
def test_query_and_prompts_by_hand(
    name: str, x: str, query: str, documents: tuple[Document, ...], paper: str, pattern: str
) -> None:
    """If this fails, the LLM or the retriever reads something else than the paper's."""
    task = get_task(name)
    assert task.query(x) == query
    prompt = task.build_prompt(x, documents)
    assert prompt.text == paper == task.prompt(x, documents)
    assert (prompt.kept_ids, prompt.dropped, prompt.trimmed) == (("a", "b"), 0, False)
    assert get_task(name, "pattern").prompt(x, documents) == pattern


@pytest.mark.parametrize(("name", "x", "query", "documents", "paper", "pattern"), CASES, ids=IDS)
def test_no_documents(
    name: str, x: str, query: str, documents: tuple[Document, ...], paper: str, pattern: str
) -> None:
    """If this fails, the un-personalised baseline reads something else than x (pattern: its query block)."""
    assert get_task(name).prompt(x, []) == x
    assert get_task(name, "pattern").prompt(x, []) == pattern.split("\n\n")[-1]


@pytest.mark.parametrize(("name", "x", "query", "documents", "paper", "pattern"), CASES, ids=IDS)
def test_spacing_and_case_of_inputs_may_vary(
    name: str, x: str, query: str, documents: tuple[Document, ...], paper: str, pattern: str
) -> None:
    """If this fails, a copy of LaMP with other spacing makes the instruction part of every query."""
    task = get_task(name)
    variant = " " + x.replace(": ", " :  ", 1).replace(" the ", "  THE ", 1).replace("? J", "?\nj")
    assert task.query(variant) == query
    assert task.prompt(variant, []) == variant


@pytest.mark.parametrize("name", IDS)
def test_unknown_input_is_its_own_query(name: str) -> None:
    """If this fails, an input of another form gives a wrong query instead of itself."""
    x = 'Tell me about "cats" and "dogs" [1] [2]'
    document = Document("d", "t", title="T", score="1", tag="action")
    task = get_task(name)
    assert task.query(x) == x
    assert task.prompt(x, []) == x
    assert x in task.prompt(x, [document])
    assert x in get_task(name, "pattern").prompt(x, [document])


def test_lamp_1_titles_with_quotes() -> None:
    """Trouble C35: if this fails, quotes in a title shift what is taken as the references."""
    x = (
        'For an author who has written the paper with the title "On the "Lazy" Agent", which reference is '
        'related? Just answer with [1] or [2] without explanation. [1]: "Alpha "beta" [2] study" [2]: "Gamma"'
    )
    task = get_task("LaMP-1")
    assert task.query(x) == 'Alpha "beta" [2] study Gamma'
    prompt = task.prompt(x, [Document("90", "a", title='Say "hi"')])
    assert prompt == x.replace('Agent", which', 'Agent", and "Say "hi"", which')
    cut_short = 'For an author who has written the paper with the title "A", which reference is related?'
    assert task.query(cut_short) == cut_short


def test_document_text() -> None:
    """If this fails, retrievers index something else than the paper's documents."""
    document = Document("d", "the text", title="The title", date="2012-01-05", score="3", tag="action")
    for name in ("LaMP-1", "LaMP-4", "LaMP-5", "LaMP-6"):
        assert get_task(name).document_text(document) == "The title the text date: 2012-01-05"
        assert get_task(name).document_text(document, with_date=False) == "The title the text"
    for name in ("LaMP-2", "LaMP-3", "LaMP-7"):
        assert get_task(name).document_text(document) == "the text date: 2012-01-05"
    assert get_task("LaMP-4").document_text(Document("d", "text")) == "text"


def test_missing_tag_is_named() -> None:
    """If this fails, prompts say that a movie's tag is "None"."""
    with pytest.raises(ValueError, match="document 'm1' has no tag"):
        get_task("LaMP-2").prompt(LAMP_2, [Document("m1", "a film")])


def test_document_twice_is_refused() -> None:
    """Trouble C39: if this fails, one document can fill several places of a prompt."""
    with pytest.raises(ValueError, match=r"chosen twice.*'a'"):
        get_task("LaMP-4").prompt(LAMP_4, [TITLED[0], TITLED[1], TITLED[0]])


def test_names_templates_languages() -> None:
    """If this fails, a spelling that LaMP itself uses is unknown, or a wrong choice goes unnoticed."""
    assert {get_task(n).name for n in ("LaMP-4", "LaMP_4", "lamp_4", " lamp-4")} == {"LaMP-4"}
    assert get_task("LaMP-4", "pattern").stop == ("\n",)
    assert get_task("LaMP-4").stop == ()
    with pytest.raises(UnknownName, match="lamp_1"):
        get_task("LaMP-11")
    with pytest.raises(ValueError, match="paper, pattern"):
        get_task("LaMP-4", "papper")
    with pytest.raises(ValueError, match="English only"):
        get_task("LaMP-4", language="pt")


def test_metrics_of_the_tables() -> None:
    """If this fails, the tables do not report what LaMP reports."""
    found = {f"LaMP-{i}": get_task(f"LaMP-{i}").metrics for i in range(1, 8)}
    rouge = ("rouge1", "rougeL")
    assert found == {
        "LaMP-1": ("accuracy",),
        "LaMP-2": ("accuracy", "f1"),
        "LaMP-3": ("mae", "rmse"),
        **{f"LaMP-{i}": rouge for i in range(4, 8)},
    }
    assert get_task("LaMP-1").labels == ("[1]", "[2]")
    assert len(get_task("LaMP-2").labels or ()) == 15
    assert get_task("LaMP-3").labels == ("1", "2", "3", "4", "5")
    assert get_task("LaMP-4").labels is None


def test_import_is_light() -> None:
    """If this fails, the command line takes seconds to refuse a wrong configuration."""
    code = (
        "import sys, ropg.tasks; ropg.tasks.get_task('LaMP-4')\n"
        "assert not {'torch', 'transformers', 'rouge_score', 'nltk'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
