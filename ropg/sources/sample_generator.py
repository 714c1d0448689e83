"""The synthetic sample data set, written as LaMP-4 files.

Everything here is invented: the reviews, their writers and the dates come from
word lists and a seeded random generator. No real person or text is in it.

Each user has two habitual phrases for titles and one reason to choose between
them, which shows only in how the user writes:

* two fifths of the users ("mood") write about feelings; one phrase is for
  reviews they are happy with, the other for those they are unhappy with;
* a fifth ("kind") write like test reports; each phrase belongs to one kind of
  item;
* a fifth ("date") write a diary, which names the year; at some date they
  changed from one phrase to the other, so the newer documents show the present
  habit;
* a fifth ("plain") write notices and have given up their phrases: today they
  title by the item's name alone, which a model does that sees no document.

For mood and date users the documents about the query's own item show the other
habit, so shared words mislead. A language model that sees one document copies
its phrase, so rewards come from what the model really generates. Nothing in
the files names the habit or the reason. Items of test users are in no other
split.

    python -m ropg.sources.sample_generator OUT
"""

from __future__ import annotations

import argparse
import datetime
import json
from pathlib import Path
from random import Random
from typing import Any

TEMPLATE = "Generate a headline for the following article: "
USERS = {"train": 400, "dev": 50, "test": 150}
SPLITS = ("train", "dev", "test")
#: The user's reason to choose a title, by position modulo five.
REASONS = ("mood", "kind", "mood", "date", "plain")
PROFILE_SIZES = (8, 12)
SEEN_ITEMS = 6  # of each kind of item, for train and dev; the rest is for test


def _list(words: str) -> tuple[str, ...]:
    return tuple(words.split("; "))


#: Kind of item -> (items, what such items are said to be for).
ITEMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "kitchen": (
        _list("kettle; toaster; frying pan; blender; teapot; oven dish; juicer; saucepan; grater"),
        _list(
            "for cooking supper in the kitchen; next to the stove for every meal; "
            "with our recipes and hot soup"
        ),
    ),
    "garden": (
        _list("rake; lawn mower; watering can; spade; flower pot; hedge trimmer; wheelbarrow; hose; pruner"),
        _list("for the lawn and the roses; out in the garden soil; among the plants and weeds"),
    ),
    "music": (
        _list("guitar; violin; trumpet; drum kit; flute; piano stool; cello; banjo; clarinet"),
        _list("for band practice and songs; with the orchestra on stage; to play melodies and chords"),
    ),
    "clothes": (
        _list("jacket; scarf; sweater; raincoat; waistcoat; wool hat; shirt; blouse; skirt"),
        _list(
            "to wear in cold weather; from the wardrobe for an evening out; "
            "with its cotton lining and buttons"
        ),
    ),
    "computing": (
        _list("laptop; keyboard; printer; monitor; webcam; router; tablet; scanner; headset"),
        _list("for the computer on my desk; with the new software and cables; for video calls and files"),
    ),
    "sport": (
        _list(
            "tennis racket; football; dumbbell; yoga mat; skateboard; rowing machine; basketball; surfboard; "
            "boxing bag"
        ),
        _list("for training at the gym; with my team before the match; to exercise and get fit"),
    ),
    "travel": (
        _list(
            "suitcase; tent; backpack; sleeping bag; travel pillow; compass; camp stove; hammock; duffel bag"
        ),
        _list("for the trip to the mountains; on the flight and at the hotel; along with passport and maps"),
    ),
    "pets": (
        _list(
            "dog leash; cat tree; fish tank; bird cage; hamster wheel; puppy bed; cat flap; dog bowl; "
            "rabbit hutch"
        ),
        _list("for our puppy and kitten; for the animals at home; with pet food from the vet"),
    ),
}

#: Habitual phrases of titles.
HABITS = _list(
    "Letters from my attic; Straight off the shelf; Sunday table talk; Two cents again; "
    "Under the magnifying glass; Postcard to a neighbour; Coffee break verdict; Seven words about; "
    "Another chapter begins; Quick scribble concerning; Behind closed doors; Porch light thoughts; "
    "Ask grandma about; Captain's log entry; Once upon a; Whisper down the lane; "
    "Breaking village news; Paper napkin review; Signed and sealed; Midnight oil burns; "
    "Handle with care; Curtain call for; Penny for thoughts; Lost and found"
)
#: The review, from its first words to its last.
BEGINNINGS = _list(
    "We got the; I bought the; My cousin gave me the; We ordered the; I picked up the; They sent us the"
)
TIMES = _list("last month; last week; last winter; in spring; this summer; on Monday; on Friday; yesterday")
#: What mood users, report writers, writers of notices and diarists fill their reviews with.
HAPPY = _list(
    "wonderful; lovely; delightful; superb; brilliant; fantastic; marvellous; excellent; charming; "
    "beautiful; perfect; splendid; joyful; glorious; amazing; terrific; adorable; magnificent; "
    "pleasing; great"
)
UNHAPPY = _list(
    "horrible; awful; dreadful; terrible; useless; disgusting; miserable; ugly; annoying; broken; "
    "disappointing; nasty; hateful; pathetic; appalling; lousy; depressing; rotten; shameful; bad"
)
MEASURED = _list(
    "compact; standard; metallic; certified; calibrated; labelled; medium-sized; lightweight; "
    "numbered; rectangular; insulated; modular; sealed; adjustable; rigid; tested"
)
OFFERED = _list(
    "sturdy; handy; spare; surplus; boxed; unused; folded; polished; wrapped; stored; crated; "
    "bagged; tagged; sorted; shelved; cleaned"
)
DAYS = _list(
    "rainy; quiet; long; busy; foggy; windy; mild; short; cloudy; ordinary; snowy; slow; humid; "
    "sleepy; crowded; chilly"
)
#: How each of them ends a review.
FEELING_ENDINGS = _list(
    "my heart tells me so; that is how I feel; such are my emotions; I say it with feeling; "
    "my soul knows it; my feelings are strong; I feel it deeply; it touched my heart"
)
REPORT_ENDINGS = _list(
    "the test report states; according to the specification; as the inspection recorded; "
    "the laboratory measured; by technical standards; the data sheet says; "
    "as the technicians documented; in the product evaluation"
)
NOTICE_ENDINGS = _list(
    "a notice on the board; so reads the notice; pinned to the board; as posted in the hall; "
    "a card in the window; printed on the leaflet; as the poster says; put up at the shop"
)
DIARY_ENDINGS = _list(
    "so says my diary; I wrote in my journal; dear diary; as my diary remembers; "
    "one more page of my diary; my journal tells; I noted in tonight's diary; another journal entry"
)


def reason_of(question_id: str) -> str:
    """Why that user chooses a title; for reports by group, never for training."""
    return REASONS[int(question_id) % len(REASONS)]


def _day(rng: Random, first_year: int, last_year: int) -> str:
    start = datetime.date(first_year, 1, 1).toordinal()
    end = datetime.date(last_year, 12, 31).toordinal()
    return datetime.date.fromordinal(rng.randint(start, end)).isoformat()


class _User:
    """One invented writer, with a query and a profile."""

    def __init__(self, rng: Random, reason: str, unseen_items: bool) -> None:
        self.rng = rng
        self.reason = reason
        self.items = slice(SEEN_ITEMS, None) if unseen_items else slice(SEEN_ITEMS)
        self.habits = rng.sample(HABITS, 2)  # the one that fits the query, the other one
        self.kinds = rng.sample(sorted(ITEMS), 4)
        self.query_year = 2025 + rng.randrange(2)
        self.change_year = rng.randint(2014, 2017)

    def text(self, kind: str, item: str, happy: bool, date: str) -> str:
        pick = self.rng.choice
        purpose = pick(ITEMS[kind][1])
        if self.reason == "plain":
            first, second, third = self.rng.sample(OFFERED, 3)
            return f'I call it "The {item.title()}", {purpose}, {first}, {second} and {third}, {pick(NOTICE_ENDINGS)}.'
        time = pick(TIMES)
        if self.reason == "mood":
            subject, adjectives, endings = "it was", HAPPY if happy else UNHAPPY, FEELING_ENDINGS
        elif self.reason == "kind":
            subject, adjectives, endings = "it was", MEASURED, REPORT_ENDINGS
        else:
            subject, adjectives, endings = "the day was", DAYS, DIARY_ENDINGS
            time = f"in {date[:4]}"
        first, second, third = self.rng.sample(adjectives, 3)
        return (
            f"{pick(BEGINNINGS)} {item} {purpose} {time} and {subject} "
            f"{first}, {second} and {third}, {pick(endings)}."
        )

    def review(self, present: bool, kind: str, item: str, happy: bool, date: str = "") -> dict[str, str]:
        """A review titled by the query's habit (``present``) or by the other one, on ``date`` where given."""
        habit = self.habits[0 if present else 1]
        years = (2008, 2022)
        if self.reason == "date":
            years = (self.change_year + 2, 2022) if present else (2008, self.change_year - 1)
        date = date or _day(self.rng, *years)
        return {"title": f"{habit}: {item}", "text": self.text(kind, item, happy, date), "date": date}

    def make(self) -> tuple[dict[str, str], list[dict[str, str]]]:
        rng = self.rng
        happy = rng.random() < 0.5
        own, *others = self.kinds
        own_items = rng.sample(ITEMS[own][0][self.items], 3)
        today = _day(rng, self.query_year, self.query_year)
        query = self.review(True, own, own_items[0], happy, today)
        if self.reason == "plain":
            query["title"] = f"The {own_items[0]}"
        size = rng.randint(*PROFILE_SIZES)
        present_count = round(size * 0.35)
        reviews = []
        for number in range(size):
            present = number < present_count
            if self.reason == "kind":
                # the query's kind, another item: its habit; another kind of item: the other habit
                kind = own if present else others[0]
                item = rng.choice(own_items[1:] if present else ITEMS[kind][0][self.items])
            elif present:
                kind = own if rng.random() < 0.2 else rng.choice(others)
                item = own_items[1] if kind == own else rng.choice(ITEMS[kind][0][self.items])
            else:
                # shared words mislead: mostly the query's kind, once at least its very item
                kind = own if rng.random() < 0.6 or number < present_count + 2 else rng.choice(others)
                item = rng.choice(own_items) if kind == own else rng.choice(ITEMS[kind][0][self.items])
                if number == present_count:
                    item = own_items[0]
            mood = happy if present else not happy
            reviews.append(self.review(present, kind, item, mood))
        rng.shuffle(reviews)
        return query, reviews


def generate(
    seed: int = 13, users: dict[str, int] | None = None
) -> dict[str, tuple[list[dict[str, Any]], dict[str, Any]]]:
    """For each split the LaMP questions and outputs. A user does not depend on
    how many users there are: a smaller data set is the head of a larger one."""
    data = {}
    for split, count in (users or USERS).items():
        questions, golds = [], []
        for number in range(count):
            rng = Random(f"{seed}/{split}/{number}")
            question_id = f"{SPLITS.index(split) + 1}{number:05d}"
            user = _User(rng, reason_of(question_id), unseen_items=split == "test")
            query, reviews = user.make()
            profile = [{"id": f"{question_id}{place:02d}", **review} for place, review in enumerate(reviews)]
            questions.append(
                {
                    "id": question_id,
                    "input": TEMPLATE + query["text"],
                    "profile": profile,
                    "user_id": f"user-{question_id}",
                    "date": query["date"],
                }
            )
            golds.append({"id": question_id, "output": query["title"]})
        data[split] = (questions, {"task": "LaMP_4", "golds": golds})
    return data


def write(root: Path, seed: int = 13, users: dict[str, int] | None = None) -> None:
    """Write ``<split>_questions.json`` and ``<split>_outputs.json`` under ``root``."""
    root.mkdir(parents=True, exist_ok=True)
    for split, (questions, outputs) in generate(seed, users).items():
        for name, content in (("questions", questions), ("outputs", outputs)):
            (root / f"{split}_{name}.json").write_text(_lines(content) + "\n", encoding="utf-8")


def _lines(content: Any) -> str:
    """JSON with a line for each record, so that a change of one user is a change of one line."""
    if isinstance(content, dict):
        head = {key: value for key, value in content.items() if key != "golds"}
        return f'{json.dumps(head)[:-1]}, "golds": {_lines(content["golds"])}}}'
    return "[\n" + ",\n".join(json.dumps(record, ensure_ascii=False) for record in content) + "\n]"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the synthetic sample data set.")
    parser.add_argument("out", type=Path)
    parser.add_argument("--seed", type=int, default=13)
    arguments = parser.parse_args()
    write(arguments.out, arguments.seed)


if __name__ == "__main__":
    main()
