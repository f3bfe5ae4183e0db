"""The metrics' definitions against answers known by hand (checks 12, 13 and 14 of the paper's brief)."""

from __future__ import annotations

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from icml26_plugin_divergence_decoding import attacks, measures


def test_a_perfect_model_has_everything_memorised() -> None:
    right = np.ones(4, bool)
    assert measures.exact_memorisation(right) == measures.extraction_strength(right) == 1.0
    assert measures.probability(np.zeros(4)) == 1.0


def test_a_wrong_last_token_leaves_no_suffix() -> None:
    right = np.array([True, True, True, False])
    assert measures.extraction_strength(right) == 0.0
    assert measures.extraction_strength(right, floor=True) == 0.25
    assert measures.exact_memorisation(right) == 0.75


def test_extraction_strength_counts_the_longest_right_suffix() -> None:
    assert measures.extraction_strength(np.array([True, False, True, True, True])) == pytest.approx(0.6)
    assert measures.extraction_strength(np.zeros(3, bool)) == 0.0


def test_probability_is_the_geometric_mean() -> None:
    assert measures.probability(np.log([0.5, 0.125])) == pytest.approx(0.25)


def test_truth_ratio_averages_losses_of_wrong_answers_first() -> None:
    right = np.log([0.5, 0.5])
    wrong = [np.log([0.4, 0.4]), np.log([0.1, 0.1, 0.1])]
    assert measures.truth_ratio(right, wrong) == pytest.approx(0.2 / 0.5)


def test_truth_ratios_are_folded_for_forgetting_and_clipped_for_keeping() -> None:
    assert measures.forget_truth_ratio([0.5, 2.0, 1.0]) == pytest.approx(2 / 3)
    assert measures.kept_truth_ratio([0.5, 2.0, 1.0]) == pytest.approx(0.5 / 3)


def test_option_probability() -> None:
    assert measures.option_probability(0.2, [0.1, 0.1]) == pytest.approx(0.5)
    assert measures.option_probability(0.0, [0.0]) == 0.0


def test_forget_quality_is_one_for_equal_ratios_and_small_for_others() -> None:
    ratios = np.linspace(0.1, 1.0, 40)
    assert measures.forget_quality(ratios, ratios) == pytest.approx(1.0)
    assert measures.forget_quality(ratios, ratios + 5) < 1e-9


def test_auc_of_equal_lists_is_one_half_and_low_losses_mean_membership() -> None:
    assert measures.auc([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == 0.5
    assert measures.auc([0.1, 0.2], [1.0, 2.0]) == 1.0
    assert measures.auc([3.0], [1.0, 2.0]) == 0.0
    assert measures.auc([1.0, 1.0], [1.0]) == 0.5


@settings(deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_auc_equals_the_count_over_pairs(members: list[int], others: list[int]) -> None:
    wins = sum((m < o) + 0.5 * (m == o) for m in members for o in others)
    assert measures.auc(members, others) == pytest.approx(wins / (len(members) * len(others)))


def test_privacy_leak() -> None:
    assert measures.privacy_leak(0.47, 0.47) == 0.0
    assert measures.privacy_leak(1.0, 0.5) == -100.0
    assert measures.privacy_leak(0.0, 0.5) == 100.0
    assert math.isfinite(measures.privacy_leak(0.5, 1.0))


def test_aggregate_of_the_papers_row() -> None:
    assert measures.aggregate(0.5634, 0.9484, 1.0016) == pytest.approx(0.7838, abs=1e-4)
    assert measures.aggregate(0.0, 0.9, 1.0) == 0.0
    assert measures.memorisation(1.0, 0.5, 0.5, 0.5) == 0.0


def test_memorisation_and_privacy_are_harmonic_means() -> None:
    assert measures.memorisation(0.5, 0.5, 0.5, 0.5) == pytest.approx(0.5)
    assert measures.memorisation(0.0, 0.5, 0.0, 0.5) == pytest.approx(4 / 6)
    assert measures.privacy([0.9, 0.4], [0.5, 0.4]) == pytest.approx(2 / (1 / 0.6 + 1))
    assert measures.privacy([0.4], [0.5]) == pytest.approx(0.9)  # less told apart than by the retrained model


def test_distance_to_retrain() -> None:
    assert measures.distance_to_retrain(0.5, 0.6, (0.2, 0.2)) == pytest.approx(50.0)


def test_rouge_l_recall_is_over_the_reference() -> None:
    (recall, f1), (none, _) = measures.rouge_l(["they keep a cat", "they keep a cat"], ["they keep", "dog"])
    assert recall == pytest.approx(0.5)
    assert f1 == pytest.approx(2 * 1.0 * 0.5 / 1.5)
    assert none == 0.0


@pytest.mark.parametrize(
    ("answer", "keyword", "found"),
    [
        ("they were born in Kolva.", "kolva", True),
        ("they were born in kolvar", "kolva", False),
        ("born in new kolva city", "new kolva", True),
        ("new city of kolva", "new kolva", False),
    ],
)
def test_keywords_are_whole_words(answer: str, keyword: str, found: bool) -> None:
    assert measures.contains(answer, keyword) is found


def test_repetition_is_high_for_loops_only() -> None:
    assert measures.repetition([1, 2, 3, 4, 5]) == 0.0
    assert measures.repetition([7] * 12) == pytest.approx(0.9)
    assert measures.repetition([1]) == 0.0


def test_min_k_takes_the_least_likely_tokens() -> None:
    log_probs = -np.arange(1.0, 11.0)
    assert attacks.min_k(log_probs, share=0.2) == pytest.approx(9.5)
    assert attacks.min_k(log_probs[:3], share=0.2) == pytest.approx(3.0)
    assert attacks.loss(log_probs) == pytest.approx(5.5)


def test_min_k_plus_plus_standardises_each_position() -> None:
    found = attacks.min_k_plus_plus(np.array([-1.0, -4.0]), np.array([-1.0, -2.0]), np.array([1.0, 4.0]), share=0.5)
    assert found == pytest.approx(1.0)


def test_min_k_plus_plus_of_a_flat_distribution_is_finite() -> None:
    flat = np.full(5, -math.log(8))
    assert attacks.min_k_plus_plus(flat, flat, np.zeros(5)) == 0.0
    assert math.isfinite(attacks.min_k_plus_plus(flat - 1e-3, flat, np.zeros(5)))


def test_zlib_of_an_empty_text_is_finite() -> None:
    assert math.isfinite(attacks.zlib_ratio(np.array([-1.0]), ""))
    assert attacks.zlib_ratio(np.array([-1.0]), "ab" * 100) < attacks.zlib_ratio(np.array([-1.0]), "")


def test_rouge_leaves_the_global_generator_alone_when_it_loads() -> None:
    code = (
        "import random, sys; from icml26_plugin_divergence_decoding.measures import rouge_l; state = random.getstate();"
        "rouge_l(['a b'], ['a c']); sys.exit(random.getstate() != state)"
    )
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=False).returncode == 0
