"""Known answers of the fusion: limits, product form, sign, rank sets, pinning."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from icml26.errors import InputError
from icml26_plugin_divergence_decoding.fusion import Fusion, divergent, fuse, linear, pin, suppress


def draw(seed: int, *shape: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [3 * torch.randn(*shape, generator=generator) for _ in range(3)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_strength_zero_and_k_zero_leave_the_target_bit_for_bit(dtype: torch.dtype) -> None:
    target, forget, retain = (t.to(dtype) for t in draw(0, 2, 3, 7))
    assert fuse(target, forget, retain, Fusion(alpha=0, rank_k=0)) is target


@pytest.mark.parametrize("alpha", [0.3, 1.0, 7.7])
def test_equal_auxiliaries_leave_the_target_at_every_strength(alpha: float) -> None:
    target, forget, _ = draw(1, 2, 3, 7)
    assert torch.equal(fuse(target, forget, forget.clone(), Fusion(alpha)), target)
    assert torch.equal(fuse(target, forget, forget.clone(), Fusion(0, rank_k=3)), target)


def test_target_as_forget_model_at_strength_one_gives_the_retain_model() -> None:
    target, _, retain = draw(2, 4, 9)
    found = fuse(target, target, retain, Fusion(1.0)).softmax(-1)
    torch.testing.assert_close(found, retain.softmax(-1), atol=1e-6, rtol=0)


@given(st.integers(0, 10**6), st.floats(0, 4), st.floats(-50, 50), st.floats(-50, 50))
@settings(max_examples=50, deadline=None)
def test_a_constant_of_a_position_changes_nothing(seed: int, alpha: float, c: float, e: float) -> None:
    target, forget, retain = (t.double() for t in draw(seed, 3, 6))
    shift = torch.tensor([[c], [e], [0.0]], dtype=torch.double)
    for f in (Fusion(alpha), Fusion(alpha, rank_k=2)):
        if f.idle:
            continue
        one = fuse(target, forget, retain, f).softmax(-1)
        two = fuse(target, forget + shift, retain - 2 * shift, f).softmax(-1)
        torch.testing.assert_close(one, two, atol=1e-4, rtol=0)
    chosen = divergent(forget, retain, 2)
    assert torch.equal(chosen, divergent(forget + shift, retain - 2 * shift, 2))
    assert chosen.sum(-1).max() <= 2


def test_product_form() -> None:
    target, forget, retain = draw(3, 5)
    p, q, big = forget.softmax(-1), retain.softmax(-1), target.softmax(-1)
    product = big * (q / p) ** 1.7
    torch.testing.assert_close(fuse(target, forget, retain, Fusion(1.7)).softmax(-1), product / product.sum())


def test_what_only_the_forget_model_likes_becomes_less_likely() -> None:
    target, _, retain = draw(4, 6)
    forget = retain.clone()
    forget[2] += 5
    before, after = target.softmax(-1), fuse(target, forget, retain, Fusion(0.5)).softmax(-1)
    assert after[2] < before[2]
    assert (after[[0, 1, 3, 4, 5]] > before[[0, 1, 3, 4, 5]]).all()


def test_count_models_without_the_forgotten_corpus() -> None:
    """Bigram tables of A and B, and of A: at strength one the steered table is that of A."""
    rng = torch.Generator().manual_seed(5)
    a, b = (torch.randint(0, 9, (4, 4), generator=rng).double() + 1 for _ in range(2))
    everything, kept = ((a + b) / (a + b).sum(-1, keepdim=True)).log(), (a / a.sum(-1, keepdim=True)).log()
    found = fuse(everything, everything, kept, Fusion(1.0)).softmax(-1)
    torch.testing.assert_close(found, (a / a.sum(-1, keepdim=True)).float())


def test_fused_gaussians_are_the_score_algebra_of_the_image_form() -> None:
    """log N(x; mu, 1) fused on a fine grid is the log of a Gaussian of mean mu_P + alpha (mu_q - mu_p)."""
    x = torch.linspace(-12, 12, 4801, dtype=torch.double)
    big, p, q = (-0.5 * (x - mu) ** 2 for mu in (1.0, 2.0, -0.5))
    weights = fuse(big, p, q, Fusion(0.8)).double().softmax(-1)
    assert float((weights * x).sum()) == pytest.approx(1.0 + 0.8 * (-0.5 - 2.0), abs=1e-3)


D = torch.tensor([0.1, 3.0, -2.0, 0.4, 2.0, -1.0])
TARGET = torch.tensor([5.0, 1.0, 4.0, 2.0, 6.0, 3.0])


def test_rank_masks_exactly_the_two_most_divergent() -> None:
    found = fuse(TARGET, D, torch.zeros(6), Fusion(0, rank_k=2), mode="hard")
    assert torch.isinf(found).tolist() == [False, True, False, False, True, False]
    assert torch.equal(found[[0, 2, 3, 5]], TARGET[[0, 2, 3, 5]])


@pytest.mark.parametrize(("mode", "second"), [("overwrite", 5.0), ("clamp", 1.0)])
def test_soft_rank_uses_the_second_largest_original_logit(mode: str, second: float) -> None:
    """Token 1 lies below: overwriting raises it, as the paper's code does; clamping does not."""
    found = fuse(TARGET, D, torch.zeros(6), Fusion(0, rank_k=2), mode=mode)  # type: ignore[arg-type]
    assert found.tolist() == [5.0, second, 4.0, 2.0, 5.0, 3.0]


def test_ties_go_to_lower_ids() -> None:
    d = torch.tensor([[0.0, 2.0, 2.0, 2.0, 3.0, -9.0], [1.0, 1.0, 1.0, 1.0, 1.0, -9.0]])
    chosen = divergent(d, torch.zeros(2, 6), 2)
    assert [torch.nonzero(row).squeeze(1).tolist() for row in chosen] == [[1, 4], [0, 1]]


def test_only_positive_divergence_and_candidates_are_suppressed() -> None:
    retain = torch.zeros(6)
    allowed = torch.tensor([True, False, True, True, False, True])
    # d is measured between log-probabilities, so token 0 (0.1) is not positive: the forget model's mass lies on 1 and 4.
    positive = D - (D.logsumexp(0) - retain.logsumexp(0)) > 0
    assert torch.equal(divergent(D, retain, 5), positive)
    assert int(divergent(D, retain, 5, strict=False).sum()) == 5
    assert not divergent(D, retain, 5, candidates=allowed)[[1, 4]].any()


def test_masking_every_candidate_and_the_end_mark_is_finite_after_softmax() -> None:
    fused = suppress(TARGET.clone(), torch.tensor([True, True, True, False, True, True]), 5, "hard")
    assert torch.isfinite(fused.softmax(-1)).all() and fused.softmax(-1)[3] == 1


def test_linear_and_rank_compose_linear_first() -> None:
    target, forget, retain = draw(6, 8)
    both = fuse(target, forget, retain, Fusion(1.2, rank_k=3), mode="overwrite")
    expected = suppress(linear(target, forget, retain, 1.2), divergent(forget, retain, 3), 3, "overwrite")
    assert torch.equal(both, expected)
    kth = linear(target, forget, retain, 1.2).topk(3).values[-1]
    assert (both[divergent(forget, retain, 3)] == kth).all()


def test_pinned_tokens_keep_the_targets_probability() -> None:
    target, forget, retain = draw(7, 3, 8)
    found = fuse(target, forget, retain, Fusion(2.0, pinned=(2, 5), temperature=1.3)).exp()
    torch.testing.assert_close(found[:, [2, 5]], target.softmax(-1)[:, [2, 5]])
    torch.testing.assert_close(found.sum(-1), torch.ones(3))
    content = linear(target, forget, retain, 2.0)[:, [0, 1, 3, 4, 6, 7]] / 1.3
    share = found[:, [0, 1, 3, 4, 6, 7]]
    torch.testing.assert_close(share / share.sum(-1, keepdim=True), content.softmax(-1))


def test_pinning_survives_a_certain_pinned_token() -> None:
    target = torch.tensor([0.0, 200.0, 0.0])
    found = pin(torch.tensor([1.0, 2.0, 3.0]), target, (1,))
    assert not torch.isnan(found).any() and found[1] == 0


def test_padded_rows_keep_the_targets_logit_and_constants_stay_irrelevant() -> None:
    target, forget, retain = draw(8, 2, 9)
    one = fuse(target, forget[:, :7], retain[:, :7], Fusion(1.5))
    two = fuse(target, forget[:, :7] + 11, retain[:, :7] - 4, Fusion(1.5))
    assert torch.equal(one[:, 7:], target[:, 7:])
    torch.testing.assert_close(one, two, atol=1e-4, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_mixed_dtypes_are_fused_in_float32_and_arguments_stay(dtype: torch.dtype) -> None:
    target, forget, retain = draw(9, 2, 9)
    arguments = (target.to(dtype), forget, retain.to(dtype))
    copies = [t.clone() for t in arguments]
    found = fuse(*arguments, Fusion(1.5, rank_k=2))
    assert found.dtype == torch.float32
    expected = fuse(*(t.float() for t in arguments), Fusion(1.5, rank_k=2))
    torch.testing.assert_close(found, expected)
    assert all(torch.equal(one, two) for one, two in zip(arguments, copies, strict=True))


@pytest.mark.parametrize("alpha", [-0.1, math.nan, math.inf])
def test_wrong_strengths_are_refused(alpha: float) -> None:
    with pytest.raises(InputError, match="alpha"):
        Fusion(alpha)


def test_wrong_ranks_and_pins_are_refused() -> None:
    with pytest.raises(InputError, match="rank_k=-1"):
        Fusion(rank_k=-1)
    with pytest.raises(InputError, match="whole vocabulary of 5"):
        Fusion(rank_k=5).check_vocabulary(5)
    with pytest.raises(InputError, match=r"pinned=\[9\]"):
        Fusion(pinned=(1, 9)).check_vocabulary(5)
    with pytest.raises(InputError, match="temperature"):
        Fusion(temperature=0)


def test_k_of_one_warns_since_it_ties_the_arg_max() -> None:
    with pytest.warns(UserWarning, match="equal to the most likely"):
        Fusion(rank_k=1)
    with pytest.warns(UserWarning, match="changes nothing"):
        Fusion(rank_k=1, rank_soft="clamp")
