"""The numbers that unlearning is judged by, as pure functions of token log-probabilities (nats) and texts.

Definitions are those of TOFU, of MUSE and of the aggregates that the paper reports; where implementations differ,
an argument says so.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence

import numpy as np

_TINY = 1e-10


def probability(log_probs: np.ndarray) -> float:
    """exp of the mean token log-probability (N,): the per-token probability of an answer, 0 to 1."""
    return float(np.exp(np.mean(log_probs)))


def exact_memorisation(right: np.ndarray) -> float:
    """Share of the positions (N,) bool at which the teacher-forced arg max is the answer's token."""
    return float(np.mean(right))


def extraction_strength(right: np.ndarray, *, floor: bool = False) -> float:
    """1 - k/N with k the first position (N,) bool from which on every arg max is right; 0 when the last one is wrong.

    With ``floor`` an empty suffix counts 1/N, as in implementations whose loop stops one position early.
    """
    wrong = np.flatnonzero(~np.asarray(right, bool))
    strength = 1.0 if wrong.size == 0 else 1.0 - (int(wrong[-1]) + 1) / len(right)
    return max(strength, 1.0 / len(right)) if floor else strength


def harmonic_mean(values: Iterable[float]) -> float:
    """The harmonic mean of non-negative values; 0 when any is 0 or below."""
    found = np.asarray(list(values), float)
    return 0.0 if (found <= 0).any() else float(len(found) / np.sum(1.0 / found))


def truth_ratio(paraphrased: np.ndarray, perturbed: Sequence[np.ndarray]) -> float:
    """Probability of wrong answers over that of the paraphrased right one: above 1 the model prefers falsehood.

    ``paraphrased`` and each of ``perturbed`` are token log-probabilities; the wrong answers' losses are averaged first.
    """
    wrong = float(np.exp(np.mean([np.mean(log_probs) for log_probs in perturbed])))
    return wrong / (probability(paraphrased) + _TINY)


def forget_truth_ratio(ratios: Sequence[float]) -> float:
    """Mean of min(TR, 1/TR), 0 to 1: 1 when right and wrong answers are alike to the model."""
    found = np.maximum(np.asarray(ratios, float), _TINY)
    return float(np.mean(np.minimum(found, 1.0 / found)))


def kept_truth_ratio(ratios: Sequence[float]) -> float:
    """Mean of max(0, 1 - TR), 0 to 1: 1 when the model never prefers a wrong answer."""
    return float(np.mean(np.maximum(0.0, 1.0 - np.asarray(ratios, float))))


def forget_quality(ratios: Sequence[float], of_retrain: Sequence[float]) -> float:
    """p-value, 0 to 1, of the two-sample Kolmogorov-Smirnov test of truth ratios against the retrained model's."""
    from scipy.stats import ks_2samp

    return float(ks_2samp(ratios, of_retrain).pvalue)


def option_probability(right: float, wrong: Sequence[float]) -> float:
    """The right answer's probability over that of all options, 0 to 1."""
    return right / (right + float(np.sum(wrong)) + _TINY)


def auc(members: Sequence[float], others: Sequence[float]) -> float:
    """The share, 0 to 1, of pairs in which the member's score is lower, ties counting half: 1 means members are told apart.

    Scores of membership attacks are losses: low means that the model has seen it.
    """
    from scipy.stats import rankdata

    inside, outside = np.asarray(members, float), np.asarray(others, float)
    ranks = rankdata(np.concatenate([inside, outside]))
    above = ranks[: len(inside)].sum() - len(inside) * (len(inside) + 1) / 2
    return float(1.0 - above / (len(inside) * len(outside)))


def privacy_leak(found: float, of_retrain: float) -> float:
    """PrivLeak in per cent from two AUCs: 0 is the retrained model, -100 fully leaked, above 0 over-unlearned."""
    reference = max(1.0 - of_retrain, _TINY)
    return 100.0 * ((1.0 - found) - (1.0 - of_retrain)) / reference


def memorisation(strength: float, exact: float, paraphrased: float, ratio: float) -> float:
    """Mem: harmonic mean of 1 minus extraction strength, exact memorisation, paraphrase probability and forget truth ratio."""
    return harmonic_mean([1 - strength, 1 - exact, 1 - paraphrased, 1 - ratio])


def privacy(aucs: Sequence[float], of_retrain: Sequence[float]) -> float:
    """Priv: harmonic mean over the attacks of 1 - |AUC - AUC of the retrained model|."""
    return harmonic_mean([1 - abs(a - b) for a, b in zip(aucs, of_retrain, strict=True)])


def aggregate(mem: float, priv: float, utility: float) -> float:
    """Agg: harmonic mean of the three; 0 when one is 0."""
    return harmonic_mean([mem, priv, utility])


def distance_to_retrain(forget: float, retain: float, of_retrain: tuple[float, float]) -> float:
    """MUSE: 100 times the Euclidean distance of (forget metric, retain knowledge) from the retrained model's."""
    return 100.0 * float(np.hypot(forget - of_retrain[0], retain - of_retrain[1]))


def rouge_l(references: Sequence[str], texts: Sequence[str]) -> list[tuple[float, float]]:
    """ROUGE-L of each text: (recall, F1), 0 to 1, with the Porter stemmer."""
    state = random.getstate()
    from rouge_score.rouge_scorer import RougeScorer

    random.setstate(state)  # what it imports in its turn draws from the global generator while it loads

    scorer = RougeScorer(["rougeL"], use_stemmer=True)
    found = [scorer.score(reference, text)["rougeL"] for reference, text in zip(references, texts, strict=True)]
    return [(float(score.recall), float(score.fmeasure)) for score in found]


def contains(answer: str, keyword: str) -> bool:
    """Whether the words of ``keyword`` stand in ``answer`` in a row; case and surrounding punctuation do not matter."""
    words, wanted = _plain(answer), _plain(keyword)
    return any(words[at : at + len(wanted)] == wanted for at in range(len(words) - len(wanted) + 1))


def _plain(text: str) -> list[str]:
    return [word.strip(".,;:!?\"'()").lower() for word in text.split()]


def repetition(ids: Sequence[int], *, n: int = 3) -> float:
    """Share, 0 to 1, of a text's n-grams that stood in it before: loops come near 1; 0 for texts shorter than ``n``."""
    grams = [tuple(ids[at : at + n]) for at in range(len(ids) - n + 1)]
    return 1.0 - len(set(grams)) / len(grams) if grams else 0.0
