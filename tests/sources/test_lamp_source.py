import json
import shutil

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ropg.sources import ValidationError, load_examples

DOCS = {
    1: {"id": "p", "title": "T", "abstract": "body"},
    2: {"id": "p", "description": "body", "tag": "comedy"},
    3: {"id": "p", "text": "body", "score": "4"},
    4: {"id": "p", "title": "T", "text": "body"},
    5: {"id": "p", "title": "T", "abstract": "body"},
    6: {"id": "p", "title": "T", "text": "body"},
    7: {"id": "p", "text": "body"},
}
GOLDS = {1: "[2]", 2: "twist ending", 3: "4", 4: "gold", 5: "gold", 6: "gold", 7: "gold"}


def _question(record_id="1", text="ask", profile=None, **more):
    return {"id": record_id, "input": text, "profile": [DOCS[4]] if profile is None else profile, **more}


def _lamp(root, task="LaMP-4", **options):
    return load_examples("lamp", task=task, root=root, **{"split": "dev", **options})


@pytest.mark.parametrize("number", range(1, 8))
def test_all_tasks(write_lamp, number):
    root = write_lamp([_question(profile=[DOCS[number]])], [("1", GOLDS[number])], task=f"LaMP_{number}")
    (example,) = _lamp(root, task=f"lamp_{number}")
    document = example.profile[0]
    assert (document.text, document.id, document.provenance) == ("body", "p", "own")
    assert (document.title, document.score, document.tag) == (
        DOCS[number].get("title", ""),
        DOCS[number].get("score"),
        DOCS[number].get("tag"),
    )
    assert (example.id, example.user, example.target) == ("1", "1", GOLDS[number])


@pytest.mark.parametrize(
    "layout",
    ["", "LaMP_4", "LaMP_4/dev", "LaMP_4/new/dev", "LaMP_4/new", "lamp-4/dev", "time/LaMP_4/dev", "dev"],
)
def test_layouts_of_the_download(write_lamp, tmp_path, layout):
    write_lamp([_question()], [("1", "gold")], folder=f"root/{layout}")
    assert len(_lamp(tmp_path / "root")) == 1


def test_time_based_and_user_based_copies(write_lamp, tmp_path):
    """Numbers on the wrong split are not comparable with the paper's."""
    write_lamp([_question()], [("1", "user-based")], folder="root/LaMP_4/dev")
    write_lamp([_question()], [("1", "time-based")], folder="root/time/LaMP_4/dev")
    root = tmp_path / "root"
    assert _lamp(root, setting="time")[0].target == "time-based"
    assert _lamp(root, setting="user")[0].target == "user-based"
    assert _lamp(root / "time")[0].target == "time-based"
    with pytest.raises(ValueError, match="setting=time or setting=user"):
        _lamp(root)
    shutil.rmtree(root / "time")
    with pytest.raises(FileNotFoundError):  # the user-based copy is no substitute
        _lamp(root, setting="time")


def test_missing_files_name_every_path(tmp_path, write_lamp):
    with pytest.raises(FileNotFoundError) as error:
        _lamp(tmp_path / "nowhere")
    message = str(error.value)
    for path in (
        "nowhere/LaMP_4/dev/dev_questions.json",
        "nowhere/dev_questions.jsonl",
        "nowhere/time/LaMP_4/new/dev",
    ):
        assert path in message
    root = write_lamp([_question()], None)
    with pytest.raises(FileNotFoundError, match=r"dev_outputs.jsonl"):
        _lamp(root)


def test_ids_are_joined_as_strings_whatever_order(write_lamp):
    """Golds joined by position or type train and score against wrong answers (trouble C36)."""
    questions = [{"id": 1, "input": "a", "profile": []}, {"id": "2", "input": "b", "profile": []}]
    root = write_lamp(questions, [("2", "B"), ("1", "A")])
    examples = _lamp(root, task="LaMP_4")
    assert [(e.id, e.input, e.target) for e in examples] == [("1", "a", "A"), ("2", "b", "B")]
    assert examples.report.counts["mixed_id_types"] == 1


def test_missing_extra_and_duplicate_ids_in_one_error(write_lamp):
    questions = [_question("1"), _question(2), _question("2")]
    root = write_lamp(questions, [("2", "B"), ("2", "C"), ("3", "D")])
    with pytest.raises(ValidationError) as error:
        _lamp(root)
    message = str(error.value)
    assert "dev_questions.json" in message
    assert "missing_gold: ids of questions without a gold output: 1." in message
    assert "extra_gold: ids of gold outputs without a question: 3." in message
    assert "duplicate_id" in message
    assert "duplicate_gold" in message
    policies = dict.fromkeys(("missing_gold", "extra_gold", "duplicate_id", "duplicate_gold"), "skip")
    examples = _lamp(root, on_problem=policies)
    assert [(e.id, e.target) for e in examples] == [("2", "B")]
    assert examples.report.counts == {
        "missing_gold": 1, "extra_gold": 1, "duplicate_id": 1, "duplicate_gold": 1, "mixed_id_types": 1
    }  # fmt: skip
    assert _lamp(root, on_problem={**policies, "missing_gold": "keep"})[0].target is None


def test_test_split_without_outputs(write_lamp):
    root = write_lamp([_question()], None, split="test")
    assert _lamp(root, split="test")[0].target is None


@pytest.mark.parametrize("form", ["list", "lines", "lines named .json", "mark"])
def test_copies_in_other_forms(tmp_path, form):
    """Public copies are bare lists, JSON lines under either name, or begin with a byte-order mark."""
    questions = [_question("1"), _question("2", user_id=7)]
    golds = [{"id": 2, "output": "B"}, {"id": 1, "output": "A"}]
    suffix = ".jsonl" if form == "lines" else ".json"
    for name, records in (("questions", questions), ("outputs", golds)):
        lines = form.startswith("lines")
        text = "\n".join(map(json.dumps, records)) if lines else json.dumps(records)
        mark = "\ufeff" if form == "mark" else ""
        (tmp_path / f"dev_{name}{suffix}").write_text(mark + text, encoding="utf-8")
    examples = _lamp(tmp_path)
    assert [e.target for e in examples] == ["A", "B"]
    assert [e.user for e in examples] == ["1", "7"]


def test_mixed_types_and_unknown_keys(write_lamp):
    """Arrow guesses types from the first rows; a date of a later row must not vanish (trouble C33)."""
    questions = [
        {"id": "1", "input": "i", "profile": [{"id": "a", "text": "x", "score": 5}]},
        {"id": 2, "input": "i", "profile": [{"id": "b", "text": "y", "score": "4", "date": "2012-01-01"}]},
        {"id": "3", "input": "i", "profile": []},
        {
            "id": "4",
            "input": "i",
            "profile": [{"id": 9, "text": "z", "score": 3.0, "helpful": {"yes": [1, 2.5]}}],
            "lang": "en",
        },
    ]
    golds = [(key, "1") for key in "1234"]
    for order in (questions, questions[::-1]):
        examples = {e.id: e for e in _lamp(write_lamp(order, golds, task="LaMP_3"), task="LaMP-3")}
        assert [examples[key].profile[0].score for key in "124"] == ["5", "4", "3"]
        assert [examples[key].profile[0].date for key in "124"] == [None, "2012-01-01", None]
        assert examples["4"].profile[0].id == "9"
        assert examples["4"].profile[0].fields == {"helpful": {"yes": [1, 2.5]}}
        assert examples["4"].meta == {"lang": "en"}
        assert list(examples["3"].profile) == []


text = st.text(max_size=6)
documents = st.fixed_dictionaries(
    {"text": text, "title": text},
    optional={
        "date": st.sampled_from(["2012", 2013, None]),
        "score": st.integers(1, 5) | st.just("4"),
        "x": text,
    },
)
questions_strategy = st.lists(st.lists(documents, max_size=3), min_size=1, max_size=5)


@given(profiles=questions_strategy, data=st.data())
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_row_order_does_not_matter(write_lamp, profiles, data):
    questions = [
        _question(
            place if place % 2 else str(place), f"input {place}", [{"id": n, **d} for n, d in enumerate(docs)]
        )
        for place, docs in enumerate(profiles)
    ]
    golds = [(place, f"gold {place}") for place in range(len(questions))]
    straight = {e.id: (e, list(e.profile)) for e in _lamp(write_lamp(questions, golds))}
    order = data.draw(st.permutations(questions))
    shuffled = {e.id: (e, list(e.profile)) for e in _lamp(write_lamp(order, golds[::-1]))}
    assert straight == shuffled


def test_leak_and_duplicates(write_lamp):
    """A profile that holds the answer makes every retriever look good (trouble C39)."""
    question = _question(
        text="Generate a headline for the following article: Cats sleep a lot",
        profile=[
            {"id": "p1", "text": "Cats  sleep a LOT", "title": "Sleepy cats"},
            {"id": "p2", "text": "dogs", "title": "Dogs"},
            {"id": "p2", "text": "birds", "title": "Birds"},
            {"id": "p4", "text": "dogs", "title": "Dogs"},
        ],
    )
    root = write_lamp([question], [("1", "Sleepy cats")])
    examples = _lamp(root)
    assert [(d.id, d.text) for d in examples[0].profile] == [("p2", "dogs"), ("p2#2", "birds")]
    assert examples.report.counts == {"leak": 1, "duplicate_document_id": 1, "duplicate_text": 1}
    printed = "\n".join(examples.report.lines())
    assert "leak: 1 documents left out" in printed
    assert "1/p1" in printed
    kept = _lamp(root, on_problem={"leak": "keep", "duplicate_text": "keep"})
    assert len(kept[0].profile) == len({d.id for d in kept[0].profile}) == 4
    dropped = _lamp(root, on_problem={"duplicate_document_id": "skip"})
    assert [d.id for d in dropped[0].profile] == ["p2"]
    with pytest.raises(ValidationError, match=r"leak.*1/p1"):
        _lamp(root, on_problem={"leak": "error"})


def test_profile_of_leaks_only_becomes_an_empty_one(write_lamp):
    root = write_lamp(
        [_question(text="article: body", profile=[{"id": "p", "text": "body", "title": "gold"}])],
        [("1", "gold")],
    )
    examples = _lamp(root)
    assert len(examples[0].profile) == 0
    assert list(examples[0].profile) == []
    assert examples.report.counts == {"leak": 1, "empty_profile": 1}
    assert len(_lamp(root, on_problem={"empty_profile": "skip"})) == 0


def test_quotes_inside_lamp_1_titles(write_lamp):
    """The paper's own title is found between fixed phrases, whatever it holds (trouble C35)."""
    question = {
        "id": "9",
        "input": 'For an author who has written the paper with the title "On the "Lazy" Agent", which reference is '
        'related? Just answer with [1] or [2] without explanation. [1]: "Alpha "beta" [2] study" [2]: "Gamma"',
        "profile": [
            {"id": "90", "title": 'Say "hi"', "abstract": "a"},
            {"id": "91", "title": "On the Lazy agent", "abstract": "b"},
            {"id": "92", "title": "Lazy", "abstract": "c"},
        ],
    }
    examples = _lamp(write_lamp([question], [("9", "[1]")], task="LaMP_1"), task="LaMP-1")
    assert examples[0].input == question["input"]
    assert examples.report.records == {"query_in_profile": ["9/91"]}


def test_old_news_version_of_lamp_2_is_refused_by_name(write_lamp):
    news = _question(
        text="Which category does this article relate to ...",
        profile=[{"id": "1", "title": "t", "text": "x", "category": "sport"}],
    )
    with pytest.raises(ValueError, match="LaMP-2's old version"):
        _lamp(write_lamp([news], [("1", "sport")], task="LaMP_2"), task="LaMP-2")


def test_outputs_of_another_task_are_refused(write_lamp):
    with pytest.raises(ValueError, match="outputs of LaMP_5, not of LaMP-4"):
        _lamp(write_lamp([_question()], [("1", "gold")], task="LaMP_5"))


def test_unknown_gold(write_lamp):
    root = write_lamp([_question(profile=[DOCS[2]])], [("1", "Horror")], task="LaMP_2")
    with pytest.raises(ValidationError, match="unknown_gold"):
        _lamp(root, task="LaMP-2")
    assert len(_lamp(root, task="LaMP-2", on_problem={"unknown_gold": "skip"})) == 0


def test_lamp_6_with_file_names(write_lamp):
    root = write_lamp(
        [
            _question(
                text="Generate a subject for the following email: 012-034567-EM",
                profile=[{"id": "1", "title": "012-1", "text": "012-034568-EM"}],
            )
        ],
        [("1", "subject")],
        task="LaMP_6",
    )
    with pytest.raises(ValidationError, match="Avocado"):
        _lamp(root, task="LaMP-6")


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"id": "x", "input": "a"}, "'x'.*'profile' is missing"),
        ({"id": "x", "input": "a", "profile": None}, "'x'.*'profile' is null.*Remedy"),
        ({"id": "x", "input": "a", "profile": {}}, "'x'.*list of documents, this is an object"),
        ({"id": "x", "profile": []}, "'x'.*'input' is missing"),
        ({"id": "x", "input": 3, "profile": []}, "'x'.*'input' must be text, it is a number"),
        ({"input": "a", "profile": []}, "record 1.*'id' is missing"),
        ({"id": True, "input": "a", "profile": []}, "record 1.*true or false"),
        ({"id": "x", "input": "a", "profile": ["text"]}, "'x', document 1.*object"),
        (
            {"id": "x", "input": "a", "profile": [{"id": "1", "title": 1984, "text": "t"}]},
            "'x', document 1.*'title' must be text",
        ),
        (
            {"id": "x", "input": "a", "profile": [{"title": "t", "text": "t"}]},
            "'x', document 1.*'id' is missing",
        ),
        ("text", "record 1.*object is expected, this is text"),
    ],
)
def test_wrong_records_are_named(write_lamp, question, message):
    with pytest.raises(ValueError, match=f"(?s)dev_questions.json.*{message}"):
        _lamp(write_lamp([question], [("x", "gold")]))


def test_missing_fields_of_documents(write_lamp):
    """A download of another task, or a null abstract, must not become empty documents unnoticed."""
    root = write_lamp(
        [_question(profile=[DOCS[7], {"id": "q", "title": "t", "text": None}, {**DOCS[4], "id": "r"}])],
        [("1", "g")],
    )
    with pytest.raises(ValidationError, match=r"missing_field: a document lacks a field.* 1/p, 1/q"):
        _lamp(root)
    assert [d.id for d in _lamp(root, on_problem={"missing_field": "skip"})[0].profile] == ["r"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('[{"id": "1", "input": "a", "profile": []},\n{"id": "2", "inp', "after 1 complete records.*line 2"),
        ('[{"id": "1", "input": "a", "profile": [{"id": NaN}]}]', "NaN is no JSON value"),
        ("", "malformed JSON"),
        ('"text"', "expected a list of records"),
        ('{"id": "1", "input": "a", "profile": []}\n{"id": "2"', "line 2"),
        ('{"id": "1", "input": "a", "profile": [{"id": "1", "score": NaN}]}\n', "line 1.*NaN"),
    ],
)
def test_malformed_files_say_where(tmp_path, content, message):
    (tmp_path / "test_questions.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=f"(?s)test_questions.json.*{message}"):
        _lamp(tmp_path, split="test")


def test_lazy_sequence(write_lamp):
    """Slices, negative indices and iteration agree, and looking at an example builds no document."""
    root = write_lamp(
        [_question(str(n), f"input {n}", user=n // 2) for n in range(6)], [(n, "g") for n in range(6)]
    )
    examples = _lamp(root)
    assert [e.id for e in examples] == [examples[n].id for n in range(6)]
    assert [e.id for e in examples[4:1:-1]] == ["4", "3", "2"]
    assert examples[-1].id == "5"
    assert len(examples[1:3]) == 2
    with pytest.raises(IndexError):
        examples[6]
    profile = examples[0].profile
    assert len(profile) == 1
    assert profile._built is None
    assert profile[0] is profile[-1]
    assert [e.id for e in _lamp(root, limit=2)] == ["0", "1", "2", "3"]  # two users of two examples


def test_query_date_and_meta(write_lamp):
    root = write_lamp([_question(date="2020-01-01", profile=[{**DOCS[4], "date": "2021"}])], [("1", "g")])
    examples = _lamp(root)
    assert examples[0].meta["date"] == "2020-01-01"
    assert examples.report.counts == {"date_after_query": 1}
    assert len(_lamp(root, on_problem={"date_after_query": "skip"})[0].profile) == 0
