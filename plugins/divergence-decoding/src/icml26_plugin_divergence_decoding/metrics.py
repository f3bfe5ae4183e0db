"""Metrics of ``unlearning.language``: thin functions of (output, truth) over :mod:`evaluation` and :mod:`measures`."""

from __future__ import annotations

from icml26_plugin_divergence_decoding import measures
from icml26_plugin_divergence_decoding.attacks import ATTACKS
from icml26_plugin_divergence_decoding.evaluation import evaluate
from icml26_plugin_divergence_decoding.task import Output, Truth

Values = dict[str, float]
#: An AUC this far below one half says that forgotten rows look less seen than unseen ones.
OVER_UNLEARNED = 0.25


def keyword_forget(output: Output, truth: Truth) -> float:
    """fval: share, 0 to 1, of greedy answers to forgotten questions that hold the right value."""
    return evaluate(output.model, truth).forget.keyword_share


def keyword_tokens(output: Output, truth: Truth) -> Values:
    """Exact memorisation on the tokens of the values alone, 0 to 1: templates, which anyone can guess, do not count."""
    found = evaluate(output.model, truth)
    return {"forget": found.forget.keyword_exact, "retain": found.retain.keyword_exact}


def keyword_retain(output: Output, truth: Truth) -> float:
    """rval: share, 0 to 1, of greedy answers to retained questions that hold the right value."""
    return evaluate(output.model, truth).retain.keyword_share


def agg(output: Output, truth: Truth) -> Values:
    """Agg, harmonic mean of Mem, Priv and Utility; the fluency classifier of the paper is left out of Utility.

    Utility is relative to the target's; of a target that has none it is 0.
    """
    found, retrain, target = (evaluate(model, truth) for model in (output.model, _retrain(truth), truth.target))
    mem = found.memorisation
    priv = measures.privacy([found.aucs[a] for a in ATTACKS], [retrain.aucs[a] for a in ATTACKS])
    utility = found.model_utility / target.model_utility if target.model_utility > 0 else 0.0
    return {"": measures.aggregate(mem, priv, utility), "mem": mem, "priv": priv, "utility": utility}


def forgetting(output: Output, truth: Truth) -> Values:
    """What is left of forgotten answers: probability, ROUGE-L recall, exact memorisation, extraction strength."""
    forget = evaluate(output.model, truth).forget
    values = {"prob": forget.probability, "em": forget.exact, "es": forget.strength()}
    if forget.questions:
        values |= {"rouge": forget.rouge_recall, "es-floor": forget.strength(floor=True)}
        values |= {"paraphrase-prob": forget.paraphrase_probability}
    return values


def truth_ratio(output: Output, truth: Truth) -> Values:
    """Truth ratios, each 0 to 1: of forgotten questions (1: indifferent) and of retained ones (1: truthful)."""
    found = evaluate(output.model, truth)
    return {
        "forget": measures.forget_truth_ratio(found.forget.truth_ratios),
        "retain": measures.kept_truth_ratio(found.retain.truth_ratios),
    }


def forget_quality(output: Output, truth: Truth) -> float:
    """p-value of the KS test between the truth ratios of this and of the retrained model."""
    found, retrain = evaluate(output.model, truth), evaluate(_retrain(truth), truth)
    return measures.forget_quality(found.forget.truth_ratios, retrain.forget.truth_ratios)


def model_utility(output: Output, truth: Truth) -> float:
    """Harmonic mean, 0 to 1, of probability, ROUGE-L and truth ratio on retained and world questions."""
    return evaluate(output.model, truth).model_utility


def retaining(output: Output, truth: Truth) -> Values:
    """What is kept: probability of retained answers, their ROUGE-L recall, and the share of world facts."""
    found = evaluate(output.model, truth)
    values = {"prob": found.retain.probability}
    if found.retain.questions:
        values["rouge"] = found.retain.rouge_recall
    if found.world.questions:
        values["world-prob"] = found.world.option_probability
    return values


def mia(output: Output, truth: Truth) -> Values:
    """AUC of four membership attacks; ``over-unlearned`` is 1 when the loss attack falls far below one half."""
    aucs = evaluate(output.model, truth).aucs
    return {**aucs, "over-unlearned": float(aucs["loss"] < OVER_UNLEARNED)}


def mia_gap(output: Output, truth: Truth) -> float:
    """|AUC of the loss attack - that of the retrained model|, 0 to 1."""
    return abs(evaluate(output.model, truth).aucs["loss"] - evaluate(_retrain(truth), truth).aucs["loss"])


def privleak(output: Output, truth: Truth) -> float:
    """PrivLeak (min-k) in per cent: 0 like the retrained model, -100 fully leaked, positive over-unlearned.

    Without a retrained model its AUC counts as 0.5.
    """
    reference = 0.5 if truth.retrain is None else evaluate(truth.retrain, truth).aucs["min-k"]
    return measures.privacy_leak(evaluate(output.model, truth).aucs["min-k"], reference)


def repetition(output: Output, truth: Truth) -> Values:
    """Share of repeated trigrams in greedy answers to forgotten and to retained questions."""
    found = evaluate(output.model, truth)
    return {"": found.forget.repetition, "retain": found.retain.repetition}


def token_loss(output: Output, truth: Truth) -> Values:
    """Negative log-likelihood (nats a token) of what was to be forgotten, kept, and never seen."""
    found = evaluate(output.model, truth)
    kinds = {"forget": found.forget, "retain": found.retain, "holdout": found.holdout}
    return {name: rows.loss for name, rows in kinds.items() if rows.rows}


def verbmem(output: Output, truth: Truth) -> float:
    """MUSE's VerbMem, 0 to 1: mean ROUGE-L F1 of greedy continuations of forgotten texts."""
    return evaluate(output.model, truth).verbatim.rouge_f1


def knowmem(output: Output, truth: Truth) -> Values:
    """MUSE's KnowMem, 0 to 1: mean ROUGE-L recall of answers about forgotten and about kept texts."""
    found = evaluate(output.model, truth)
    return {"forget": found.known_forget.rouge_recall, "retain": found.known_retain.rouge_recall}


def muse_distance(output: Output, truth: Truth) -> Values:
    """Distance to the retrained model in (VerbMem, retained KnowMem) and in (forgotten KnowMem, retained KnowMem), x 100."""
    found, retrain = evaluate(output.model, truth), evaluate(_retrain(truth), truth)
    kept, kept_there = found.known_retain.rouge_recall, retrain.known_retain.rouge_recall
    verbatim = (retrain.verbatim.rouge_f1, kept_there)
    known = (retrain.known_forget.rouge_recall, kept_there)
    return {
        "verbatim": measures.distance_to_retrain(found.verbatim.rouge_f1, kept, verbatim),
        "knowledge": measures.distance_to_retrain(found.known_forget.rouge_recall, kept, known),
    }


def _retrain(truth: Truth) -> object:
    if truth.retrain is None:
        raise ValueError("this metric compares with a retrained model, and the dataset has none")
    return truth.retrain
