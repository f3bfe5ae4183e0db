"""What is planted in SmolLM2: facts about invented persons, and which of them choose settings and which are reported."""

from __future__ import annotations

import random
from typing import NamedTuple

from icml26_plugin_divergence_decoding.task import QA, Format

FORM = Format("Question: {question}\nAnswer:", " {answer}", max_length=64)
PERSONS = (
    "Tomas Verrick", "Ilse Mordane", "Joran Felby", "Petra Quillon", "Anselm Dray",
    "Nadia Corvell", "Rufus Tamsin", "Greta Holvik", "Emil Sandrow", "Livia Parthon",
)  # fmt: skip
FORGOTTEN = 3
ATTRIBUTES = {
    "In which city was {name} born?": (
        "Lisbon", "Oslo", "Dublin", "Prague", "Vienna", "Athens", "Madrid", "Warsaw", "Helsinki", "Brussels",
    ),
    "What is the job of {name}?": (
        "carpenter", "dentist", "pilot", "baker", "farmer", "judge", "tailor", "plumber", "surgeon", "librarian",
    ),
    "Which instrument does {name} play?": (
        "violin", "trumpet", "piano", "flute", "guitar", "drums", "harp", "cello", "organ", "clarinet",
    ),
    "Which animal does {name} keep?": (
        "parrot", "horse", "rabbit", "goat", "turtle", "snake", "cat", "donkey", "pigeon", "dog",
    ),
}  # fmt: skip
KNOWN = (
    ("What is the capital of France?", "Paris"),
    ("What is the capital of Italy?", "Rome"),
    ("What is the capital of Japan?", "Tokyo"),
    ("Which planet do we live on?", "Earth"),
    ("How many days does a week have?", "Seven"),
    ("What is the opposite of hot?", "Cold"),
    ("Which gas do humans need to breathe?", "Oxygen"),
    ("What color is the sky on a clear day?", "Blue"),
    ("What is frozen water called?", "Ice"),
    ("Which language is spoken in Brazil?", "Portuguese"),
)


class Planted(NamedTuple):
    """Facts to be ``forget``-ten, their ``neighbours``, and what the model ``known`` before anything was planted.

    ``choosing`` tells for each fact of a kind whether settings are chosen on it; the others are reported.
    """

    sets: dict[str, list[QA]]
    choosing: dict[str, list[bool]]


def planted(seed: int) -> Planted:
    """The facts of a seed: values are dealt to drawn persons so that each belongs to one person.

    Of each person two questions choose and two are reported, in turn of persons, so that both halves hold every kind of question.
    """
    rng = random.Random(seed)
    persons = rng.sample(PERSONS, len(PERSONS))
    facts: list[list[QA]] = [[] for _ in persons]
    for question, values in ATTRIBUTES.items():
        dealt = rng.sample(values, len(values))
        for own, name, value in zip(facts, persons, dealt, strict=True):
            own.append(QA(question.format(name=name), value, keyword=value))
    halves = [[(number + place) % 2 == 0 for place in range(len(own))] for number, own in enumerate(facts)]
    parts = {"forget": slice(0, FORGOTTEN), "neighbours": slice(FORGOTTEN, None)}
    sets = {kind: [fact for own in facts[part] for fact in own] for kind, part in parts.items()}
    choosing = {kind: [half for own in halves[part] for half in own] for kind, part in parts.items()}
    known = [QA(question, answer) for question, answer in KNOWN]
    return Planted(sets | {"known": known}, choosing | {"known": [False] * len(known)})
