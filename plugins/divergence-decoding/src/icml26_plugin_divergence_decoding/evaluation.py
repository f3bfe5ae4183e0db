"""One model judged on one truth: what the metrics share is computed once, when it is first asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary, ref

import numpy as np

from icml26_plugin_divergence_decoding import attacks, measures
from icml26_plugin_divergence_decoding.encoding import encode_prompt
from icml26_plugin_divergence_decoding.scoring import TokenScores, greedy, row_scores
from icml26_plugin_divergence_decoding.task import QA, Format, Knowledge, Row, Truth

#: Tokens that a greedy answer may be longer than the longest right one: enough to see a model ramble.
_SPARE_TOKENS = 4


class Rows:
    """A model's behaviour on rows of one kind: log-probabilities, greedy answers, truth ratios."""

    def __init__(
        self, model: Any, rows: Sequence[Row], tokenizer: Any, form: Format, *, continued: bool = False
    ) -> None:
        """``continued``: answers are continuations, judged up to the length of the true one."""
        # Weak, so that what is kept of a model does not keep the model itself in memory.
        self._model = ref(model)
        self.rows, self.tokenizer, self.form, self.continued = tuple(rows), tokenizer, form, continued

    @property
    def model(self) -> Any:
        """The model; whoever asks for its behaviour holds it."""
        found = self._model()
        if found is None:
            raise ReferenceError("the model of these rows is gone")
        return found

    @property
    def questions(self) -> list[QA]:
        """The rows that are questions with answers."""
        return [row for row in self.rows if isinstance(row, QA)]

    @cached_property
    def scores(self) -> list[TokenScores]:
        """Token scores of each row's own answer or text."""
        return row_scores(self.model, self.rows, self.tokenizer, self.form)

    @cached_property
    def paraphrased(self) -> list[TokenScores]:
        """Token scores of each question's paraphrased answer, the plain one where there is none."""
        rows = [QA(row.question, row.paraphrased or row.answer) for row in self.questions]
        return row_scores(self.model, rows, self.tokenizer, self.form)

    @cached_property
    def perturbed(self) -> list[list[TokenScores]]:
        """Token scores of each question's wrong answers."""
        rows = [QA(row.question, text) for row in self.questions for text in row.perturbed]
        found = iter(row_scores(self.model, rows, self.tokenizer, self.form))
        return [[next(found) for _ in row.perturbed] for row in self.questions]

    @cached_property
    def answer_ids(self) -> list[list[int]]:
        """Greedy answers as token ids."""
        prompts = [encode_prompt(row.question, self.tokenizer, self.form) for row in self.questions]
        lengths = [len(self.tokenizer(r.answer, add_special_tokens=False)["input_ids"]) for r in self.questions]
        if self.continued:
            written = greedy(self.model, prompts, max(lengths), self.tokenizer)
            return [ids[:length] for ids, length in zip(written, lengths, strict=True)]
        return greedy(self.model, prompts, max(lengths) + _SPARE_TOKENS, self.tokenizer)

    @cached_property
    def answers(self) -> list[str]:
        """Greedy answers as texts."""
        return [self.tokenizer.decode(ids, skip_special_tokens=True).strip() for ids in self.answer_ids]

    @cached_property
    def rouge(self) -> list[tuple[float, float]]:
        """ROUGE-L (recall, F1) of each greedy answer."""
        return measures.rouge_l([row.answer for row in self.questions], self.answers)

    @property
    def probability(self) -> float:
        """Mean probability of the answers."""
        return _mean(measures.probability(s.log_probs) for s in self.scores)

    @property
    def paraphrase_probability(self) -> float:
        """Mean probability of the paraphrased answers."""
        return _mean(measures.probability(s.log_probs) for s in self.paraphrased)

    @property
    def rouge_recall(self) -> float:
        """Mean ROUGE-L recall of greedy answers."""
        return _mean(recall for recall, _ in self.rouge)

    @property
    def rouge_f1(self) -> float:
        """Mean ROUGE-L F1 of greedy answers."""
        return _mean(f1 for _, f1 in self.rouge)

    @property
    def exact(self) -> float:
        """Mean exact memorisation."""
        return _mean(measures.exact_memorisation(s.right) for s in self.scores)

    def strength(self, *, floor: bool = False) -> float:
        """Mean extraction strength."""
        return _mean(measures.extraction_strength(s.right, floor=floor) for s in self.scores)

    @property
    def truth_ratios(self) -> list[float]:
        """The truth ratio of each question that has wrong answers."""
        return [
            measures.truth_ratio(right.log_probs, [s.log_probs for s in wrong])
            for right, wrong in zip(self.paraphrased, self.perturbed, strict=True)
            if wrong
        ]

    @property
    def option_probability(self) -> float:
        """Mean probability of the right answer among the right and the wrong ones."""
        return _mean(
            measures.option_probability(
                measures.probability(right.log_probs), [measures.probability(s.log_probs) for s in wrong]
            )
            for right, wrong in zip(self.scores, self.perturbed, strict=True)
        )

    @property
    def keyword_share(self) -> float:
        """Share of greedy answers that contain the keyword; of questions that have one."""
        return _mean(
            measures.contains(answer, row.keyword)
            for row, answer in zip(self.questions, self.answers, strict=True)
            if row.keyword is not None
        )

    @property
    def keyword_exact(self) -> float:
        """Share of the keywords' tokens at which the teacher-forced arg max is right; the words around are left out."""
        right = []
        for row, score in zip(self.rows, self.scores, strict=True):
            if isinstance(row, QA) and row.keyword is not None:
                right += [bool(score.right[i]) for i in self._keyword_positions(row)]
        return _mean(right)

    def _keyword_positions(self, row: QA) -> list[int]:
        text = self.form.answer.format(answer=row.answer)
        start = text.index(row.keyword or "")
        end = start + len(row.keyword or "")
        spans = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
        return [i for i, (a, b) in enumerate(spans) if a < end and b > start]

    @property
    def loss(self) -> float:
        """Mean negative log-likelihood (nats) of a token, over all tokens of all rows."""
        return -float(np.mean(np.concatenate([s.log_probs for s in self.scores])))

    @property
    def repetition(self) -> float:
        """Mean repetition rate of greedy answers."""
        return _mean(measures.repetition(ids) for ids in self.answer_ids)

    def attack_scores(self, attack: str, share: float = 0.2) -> list[float]:
        """Scores of a membership attack on each row."""
        if attack == "loss":
            return [attacks.loss(s.log_probs) for s in self.scores]
        if attack == "zlib":
            texts = [_text(row) for row in self.rows]
            return [attacks.zlib_ratio(s.log_probs, text) for s, text in zip(self.scores, texts, strict=True)]
        if attack == "min-k":
            return [attacks.min_k(s.log_probs, share=share) for s in self.scores]
        return [attacks.min_k_plus_plus(s.log_probs, s.mean, s.variance, share=share) for s in self.scores]


class Evaluation:
    """A model on all rows of a truth."""

    def __init__(self, model: Any, truth: Truth) -> None:
        self._truth = ref(truth)
        form = (truth.tokenizer, truth.format)
        self.forget = Rows(model, truth.forget, *form)
        self.retain = Rows(model, truth.retain, *form)
        self.holdout = Rows(model, truth.holdout, *form)
        self.world = Rows(model, truth.world, *form)
        self.others = Rows(model, truth.others, *form)
        asked = truth.knowledge or Knowledge()
        self.known_forget = Rows(model, asked.forget, truth.tokenizer, asked.format)
        self.known_retain = Rows(model, asked.retain, truth.tokenizer, asked.format)
        self.verbatim = Rows(model, asked.verbatim, truth.tokenizer, asked.verbatim_format, continued=True)

    def is_of(self, truth: Truth) -> bool:
        """Whether this is an evaluation on ``truth``."""
        return self._truth() is truth

    @cached_property
    def aucs(self) -> dict[str, float]:
        """The AUC of each membership attack; 1: what was to be forgotten looks like training data."""
        return {
            name: measures.auc(self.forget.attack_scores(name), self.holdout.attack_scores(name))
            for name in attacks.ATTACKS
        }

    @cached_property
    def model_utility(self) -> float:
        """Harmonic mean of probability, ROUGE-L recall and truth ratio on retained, neighbouring and world rows."""
        parts: list[float] = []
        for rows, options in ((self.retain, False), (self.others, True), (self.world, True)):
            if not rows.questions:
                continue
            parts += [rows.option_probability if options else rows.probability, rows.rouge_recall]
            if rows.truth_ratios:
                parts.append(measures.kept_truth_ratio(rows.truth_ratios))
        return measures.harmonic_mean(parts)

    @property
    def memorisation(self) -> float:
        """Mem of the paper's aggregate."""
        ratio = measures.forget_truth_ratio(self.forget.truth_ratios)
        return measures.memorisation(
            self.forget.strength(), self.forget.exact, self.forget.paraphrase_probability, ratio
        )


_KEPT: WeakKeyDictionary[Any, tuple[tuple[int, ...], Evaluation]] = WeakKeyDictionary()


def evaluate(model: Any, truth: Truth) -> Evaluation:
    """The evaluation of ``model`` on ``truth``; the last one of this model is kept while its weights do not change."""
    state = tuple(p._version for p in model.parameters())
    kept = _KEPT.get(model)
    if kept is None or kept[0] != state or not kept[1].is_of(truth):
        if callable(getattr(model, "eval", None)):
            model.eval()
        kept = _KEPT[model] = state, Evaluation(model, truth)
    return kept[1]


def _mean(values: Any) -> float:
    found = [float(value) for value in values]
    return float(np.mean(found)) if found else float("nan")


def _text(row: Row) -> str:
    if isinstance(row, QA):
        return row.answer
    return row if isinstance(row, str) else " ".join(str(int(i)) for i in row)
