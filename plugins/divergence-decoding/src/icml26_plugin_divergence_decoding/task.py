"""Types of the task ``unlearning.language``; standard library and numpy only.

A method is handed a big model that was trained on everything, the rows that it must forget and the rows that it must
keep. It returns a model that should behave like one that never saw the former. Such a model (the *retrain* reference),
and all rows on which forgetting is judged, stand in the truth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass(frozen=True)
class QA:
    """A question and its answer, as TOFU has them.

    ``paraphrased`` is the same answer in other words, ``perturbed`` are wrong answers in those other words.
    ``keyword`` is the part of the answer that gives the fact away, where it is known: an answer that contains it is
    right.
    """

    question: str
    answer: str
    paraphrased: str | None = None
    perturbed: tuple[str, ...] = ()
    keyword: str | None = None


#: A question with its answer, a running text (MUSE), or token ids (n,) int64 as they stand (images).
Row = QA | str | np.ndarray


@dataclass(frozen=True)
class Format:
    """How rows become token sequences; the same for training, scoring and generation.

    The prompt and the answer of a ``QA`` are tokenised apart, so that a prompt's ids never depend on the answer. With
    ``chat`` the question goes through the tokenizer's chat template and ``prompt`` is not used. Sequences longer than
    ``max_length`` are refused for questions and cut into blocks for texts.
    """

    prompt: str = "{question}"
    answer: str = " {answer}"
    chat: bool = False
    max_length: int = 512


@dataclass(frozen=True)
class Inputs:
    """What a method may see.

    ``target``: the big model P, a causal language model of the call signature of ``transformers``. ``tokenizer``: its
    tokenizer, None when all rows are token ids. ``small_base``: a small model of the same vocabulary that saw neither
    ``forget`` nor ``retain``, from which auxiliaries are fine-tuned. ``candidates``: sorted ids (n,) of the vocabulary
    that occur in texts of the task, or None for all. ``background``: rows that every fine-tuning mixes in, so that
    what was known before is kept.
    """

    target: Any
    tokenizer: Any
    forget: tuple[Row, ...]
    retain: tuple[Row, ...]
    small_base: Any | None = None
    background: tuple[Row, ...] = ()
    candidates: np.ndarray | None = None
    format: Format = field(default_factory=Format)


@dataclass(frozen=True)
class Images:
    """What is known of images that rows of ids stand for: ``pixels`` (n, d) float32 of all of them with their ``labels``
    (n,) int64, and which class is to be forgotten.
    """

    forget_class: int
    pixels: np.ndarray
    labels: np.ndarray


@dataclass(frozen=True)
class Knowledge:
    """What can be asked about texts (MUSE): questions about those to be forgotten and about those to be kept (knowmem), and
    beginnings of the former with their continuations (verbmem) in place of questions with answers. ``format`` says how to ask,
    ``verbatim_format`` how a beginning goes on.
    """

    forget: tuple[QA, ...] = ()
    retain: tuple[QA, ...] = ()
    verbatim: tuple[QA, ...] = ()
    format: Format = field(default_factory=Format)
    verbatim_format: Format = field(default_factory=lambda: Format(answer="{answer}"))


@dataclass(frozen=True)
class Truth:
    """What metrics see.

    ``retrain``: the target's base trained without ``forget``; ``target``: the model before forgetting. ``holdout``:
    rows like ``forget`` that neither model was trained on. ``world`` and ``others``: rows of general knowledge, and of
    neighbours of the training data. ``images`` and ``knowledge``: what else is known of images and of texts.
    """

    target: Any
    tokenizer: Any
    forget: tuple[Row, ...]
    retain: tuple[Row, ...]
    retrain: Any | None = None
    holdout: tuple[Row, ...] = ()
    world: tuple[Row, ...] = ()
    others: tuple[Row, ...] = ()
    format: Format = field(default_factory=Format)
    images: Images | None = None
    knowledge: Knowledge | None = None


@dataclass(frozen=True)
class Output:
    """A model with the call signature of a causal language model, and ``generate``; ``info`` JSON values for people to
    read.
    """

    model: Any
    info: dict[str, Any] = field(default_factory=dict)
