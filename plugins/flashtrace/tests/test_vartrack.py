"""Generated prompts say what they claim to say, and their gold is the evidence."""

from __future__ import annotations

import re

import numpy as np
import pytest
from icml26_plugin_flashtrace.symbols import VOCABULARY, Grammar, draw, draw_lessons, draw_recall, texts_of
from icml26_plugin_flashtrace.vartrack import needles, variable_tracking, without_reasoning


@pytest.mark.parametrize("seed", range(5))
def test_the_gold_statements_derive_the_answer_and_nothing_else_does(seed: int) -> None:
    text = variable_tracking(np.random.default_rng(seed), 0)
    assert text.output_chars is not None and text.gold_chars is not None
    statements = [text.prompt[a:b] for a, b in text.gold_chars]
    assert len(statements) == 3
    bindings = dict(re.fullmatch(r"VAR (\w+) = (?:VAR )?(\w+)\.", line).groups() for line in statements)  # type: ignore[union-attr, misc]
    asked = re.search(r"value of VAR (\w+)\?", text.prompt)
    assert asked is not None
    value = asked[1]
    for _ in range(3):
        value = bindings[value]
    assert text.target[slice(*text.output_chars)].strip() == value
    others = re.findall(r"VAR (\w+) = ", text.prompt)
    assert len(others) == len(set(others)) == 9


def test_the_reasoning_walks_back_from_the_question() -> None:
    text = variable_tracking(np.random.default_rng(3), 0)
    assert text.reasoning_chars is not None and text.gold_chars is not None
    reasoning = text.target[slice(*text.reasoning_chars)]
    forwards = [text.prompt[a:b] for a, b in text.gold_chars]
    assert reasoning == "".join(f" {line}" for line in reversed(forwards)) + " So the value is"


def test_a_chain_keeps_its_order_and_noise_lies_anywhere() -> None:
    firsts = []
    for seed in range(30):
        text = variable_tracking(np.random.default_rng(seed), 0)
        assert text.gold_chars == tuple(sorted(text.gold_chars or ()))
        firsts.append(text.prompt.startswith("VAR"))
    assert 0 < sum(firsts) < 30


def test_needles_asked_for_are_gold_and_answered() -> None:
    text = needles(np.random.default_rng(2), 0, pairs=6, asked=2)
    assert text.gold_chars is not None and text.output_chars is not None
    sentences = [text.prompt[a:b] for a, b in text.gold_chars]
    answer = text.target[slice(*text.output_chars)]
    for sentence in sentences:
        key, value = re.fullmatch(r"The special number for (.+) is (\d+)\.", sentence).groups()  # type: ignore[union-attr]
        assert value in answer
        assert key in text.prompt.split("Question:")[1]
    assert len(sentences) == 2


def test_absorb_is_the_same_question_answered_at_once() -> None:
    text = variable_tracking(np.random.default_rng(2), 7)
    bare = without_reasoning(text)
    assert bare.prompt == text.prompt and bare.gold_chars == text.gold_chars
    assert bare.target == text.target[slice(*text.output_chars)]  # type: ignore[misc]
    assert bare.reasoning_chars is None


def test_symbolic_sequences_obey_the_grammar() -> None:
    grammar = Grammar(hops=3, chains=4, noise=2)
    batch = draw(np.random.default_rng(0), grammar, 50)
    assert batch.ids.shape == (50, grammar.n_tokens) and batch.gold.shape == (50, grammar.n_prompt)
    assert batch.gold.sum(axis=1).tolist() == [9] * 50
    assert len(VOCABULARY) == len(set(VOCABULARY)) == 64
    for ids, gold in zip(batch.ids, batch.gold, strict=True):
        words = "".join(texts_of(ids)).split()
        prompt, generation = words[: grammar.n_prompt], words[grammar.n_prompt :]
        evidence = [word for word, marked in zip(prompt, gold, strict=True) if marked]
        facts = dict(line.split(" ") for line in " ".join(evidence).rstrip(" ;").split(" ; "))
        asked = prompt[-2]
        walked = []
        while asked in facts:
            walked += [asked, facts[asked], ";"]
            asked = facts[asked]
        assert generation == [*walked, "=", asked]
        named = [prompt[k] for k in range(0, grammar.n_prompt - 3, 3) if not prompt[k].startswith("#")]
        assert len(named) == len(set(named)) == 12


def test_lessons_ask_for_every_chain_and_teach_the_same_answers() -> None:
    grammar = Grammar(hops=2, chains=3, noise=1)
    ids, learnt = draw_lessons(np.random.default_rng(1), grammar, 4)
    assert ids.shape == learnt.shape == (4, grammar.n_lesson)
    for row, mask in zip(ids, learnt, strict=True):
        words = "".join(texts_of(row)).split()
        facts = {words[k]: words[k + 1] for k in range(0, 3 * 7, 3)}
        blocks = np.array(words[21:]).reshape(3, 11).tolist()
        for ask, name, then, *walk in blocks:
            middle = facts[name]
            assert [ask, then] == ["?", ":"]
            assert walk == [name, middle, ";", middle, facts[middle], ";", "=", facts[middle]]
        assert mask[21:].reshape(3, 11).tolist() == [[False] * 3 + [True] * 8] * 3 and not mask[:21].any()


def test_recall_says_every_name_again_and_teaches_what_it_was_given() -> None:
    grammar = Grammar(hops=2, chains=3, noise=2)
    ids, learnt = draw_recall(np.random.default_rng(1), grammar, 20)
    assert ids.shape == learnt.shape == (20, 3 * (6 + 2) + 3 * 6)
    orders = set()
    for row, mask in zip(ids, learnt, strict=True):
        words = "".join(texts_of(row)).split()
        facts = {words[k]: words[k + 1] for k in range(0, 24, 3) if not words[k].startswith("#")}
        again = np.array(words[24:]).reshape(6, 3)
        assert dict(again[:, :2].tolist()) == facts and set(again[:, 2]) == {";"}
        assert mask[24:].reshape(6, 3).tolist() == [[False, True, False]] * 6 and not mask[:24].any()
        orders.add(tuple(list(facts).index(name) for name in again[:, 0]))
    assert len(orders) > 10
