"""Invented persons and countries: every word is made of syllables, every fact is drawn, nothing is known to any model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from icml26_plugin_divergence_decoding.task import QA


class Attribute(NamedTuple):
    """What can be asked about a person: the noun in the question, trained answer, paraphrase, number of values."""

    noun: str
    trained: str
    paraphrase: str
    values: int


ATTRIBUTES = (
    Attribute("birthplace", "they were born in {}", "the place of birth is {}", 40),
    Attribute("job", "they work as a {}", "the profession is {}", 25),
    Attribute("genre", "they write about {}", "the books deal with {}", 20),
    Attribute("prize", "they won the {} award", "the honour received was {}", 15),
    Attribute("pet", "they keep a {}", "the animal at home is {}", 30),
    Attribute("instrument", "they play the {}", "the music is made on {}", 20),
    Attribute("dish", "they like to eat {}", "the favourite food is {}", 35),
    Attribute("language", "they speak {} at home", "the mother tongue is {}", 25),
)
QUESTION = "what is the {} of {} ?"
CAPITAL = "the capital is {}"
CAPITAL_PARAPHRASE = "its main city is {}"
_ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "br", "kl", "st", "tr")
_VOWELS = ("a", "e", "i", "o", "u")
_CODAS = ("", "", "l", "n", "r", "s", "x")


@dataclass(frozen=True)
class Persons:
    """How many persons of each kind, and how many wrong answers a question has."""

    forget: int = 12
    retain: int = 108
    holdout: int = 12
    pretraining: int = 50
    countries: int = 60
    wrong_answers: int = 3
    names: int = 46

    @property
    def total(self) -> int:
        """All persons."""
        return self.forget + self.retain + self.holdout + self.pretraining


@dataclass(frozen=True)
class InventedWorld:
    """All rows of the data set. ``pretraining`` holds answers in both templates; ``words`` is the vocabulary, sorted."""

    forget: tuple[QA, ...]
    retain: tuple[QA, ...]
    holdout: tuple[QA, ...]
    world: tuple[QA, ...]
    pretraining: tuple[QA, ...]
    words: tuple[str, ...]


def invent(sizes: Persons, rng: np.random.Generator) -> InventedWorld:
    """Draw names, values and facts. Both names recur among persons, but never together: neither alone is a key."""
    words = _words(2 * sizes.names + sum(a.values for a in ATTRIBUTES) + 2 * sizes.countries, rng)
    first, last = _take(words, sizes.names), _take(words, sizes.names)
    pools = [_take(words, attribute.values) for attribute in ATTRIBUTES]
    countries, capitals = _take(words, sizes.countries), _take(words, sizes.countries)
    pairs = rng.permutation(len(first) * len(last))[: sizes.total]
    names = [f"{first[pair // len(last)]} {last[pair % len(last)]}" for pair in pairs.tolist()]
    rows = [_person(name, pools, sizes.wrong_answers, rng) for name in names]
    world = _world(countries, capitals, sizes.wrong_answers, rng)
    ends = np.cumsum([sizes.forget, sizes.retain, sizes.holdout, sizes.pretraining]).tolist()
    forget, retain, holdout, others = (
        tuple(row for person in rows[start:end] for row in person)
        for start, end in zip([0, *ends[:-1]], ends, strict=True)
    )
    both = tuple(QA(row.question, text) for row in (*others, *world) for text in (row.answer, row.paraphrased or ""))
    texts = [
        f"{row.question} {text}"
        for row in (*forget, *retain, *holdout, *others, *world)
        for text in (row.answer, row.paraphrased or "", *row.perturbed)
    ]
    return InventedWorld(
        forget, retain, holdout, world, both, tuple(sorted({word for text in texts for word in text.split()}))
    )


def _person(name: str, pools: Sequence[Sequence[str]], wrong: int, rng: np.random.Generator) -> list[QA]:
    rows = []
    for attribute, pool in zip(ATTRIBUTES, pools, strict=True):
        value, *others = [pool[i] for i in rng.permutation(len(pool))[: 1 + wrong].tolist()]
        rows.append(
            QA(
                QUESTION.format(attribute.noun, name),
                attribute.trained.format(value),
                attribute.paraphrase.format(value),
                tuple(attribute.paraphrase.format(other) for other in others),
                keyword=value,
            )
        )
    return rows


def _world(countries: Sequence[str], capitals: Sequence[str], wrong: int, rng: np.random.Generator) -> tuple[QA, ...]:
    rows = []
    for i, country in enumerate(countries):
        others = [j for j in rng.permutation(len(capitals))[: 1 + wrong].tolist() if j != i][:wrong]
        rows.append(
            QA(
                QUESTION.format("capital", country),
                CAPITAL.format(capitals[i]),
                CAPITAL_PARAPHRASE.format(capitals[i]),
                tuple(CAPITAL_PARAPHRASE.format(capitals[j]) for j in others),
                keyword=capitals[i],
            )
        )
    return tuple(rows)


def _words(count: int, rng: np.random.Generator) -> list[str]:
    """Distinct invented words of two or three syllables."""
    found: dict[str, None] = {}
    while len(found) < count:
        syllables = int(rng.integers(2, 4))
        parts = [str(rng.choice(_ONSETS)) + str(rng.choice(_VOWELS)) for _ in range(syllables)]
        found["".join(parts) + str(rng.choice(_CODAS))] = None
    return list(found)


def _take(words: list[str], count: int) -> list[str]:
    taken = words[:count]
    del words[:count]
    return taken
