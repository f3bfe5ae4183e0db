"""The steered model: forward equals generate, caches, padding, beams, sampling, dtypes, vocabularies."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from icml26.errors import InputError
from icml26_plugin_divergence_decoding.fusion import Fusion
from icml26_plugin_divergence_decoding.model import DivergenceModel
from icml26_plugin_divergence_decoding.ngram import NGramModel
from icml26_plugin_divergence_decoding.processor import DivergenceLogitsProcessor
from tiny import V, gpt2, llama

GREEDY = {"do_sample": False, "max_new_tokens": 8, "min_new_tokens": 8}
PROMPTS = [[1, 5, 9, 4, 11], [1, 7], [1, 20, 3, 8]]


def ngrams(seed: int) -> NGramModel:
    generator = torch.Generator().manual_seed(seed)
    return NGramModel.count([torch.randint(3, V, (200,), generator=generator).tolist()], V)


def build(kind: str, fusion: Fusion, **options: Any) -> DivergenceModel:
    if kind == "ngram":
        return DivergenceModel(llama(0), ngrams(1), ngrams(2), fusion, **options)
    make = {"llama": llama, "gpt2": gpt2}[kind]
    return DivergenceModel(make(0), make(1), make(2), fusion, **options)


def padded() -> tuple[torch.Tensor, torch.Tensor]:
    length = max(map(len, PROMPTS))
    ids = torch.tensor([[0] * (length - len(p)) + p for p in PROMPTS])
    return ids, torch.tensor([[0] * (length - len(p)) + [1] * len(p) for p in PROMPTS])


FUSIONS = {
    "linear": ("llama", Fusion(1.3)),
    "absolute-positions": ("gpt2", Fusion(1.3)),
    "rank": ("llama", Fusion(0, rank_k=4)),
    "both": ("gpt2", Fusion(0.7, rank_k=4)),
    "ngram": ("ngram", Fusion(20.0)),
    "ngram-rank": ("ngram", Fusion(0, rank_k=3)),
    "pinned": ("llama", Fusion(2.0, pinned=(2,))),
}


@pytest.mark.parametrize("name", FUSIONS)
def test_generate_follows_the_arg_max_of_forward(name: str) -> None:
    kind, fusion = FUSIONS[name]
    model = build(kind, fusion, scoring="hard")
    for prompt in PROMPTS:
        out = model.generate(torch.tensor([prompt]), **GREEDY)
        logits = model(out).logits[0, len(prompt) - 1 : -1].clone()
        logits[:, 2] = -torch.inf  # min_new_tokens forbids the end mark
        assert logits.argmax(-1).tolist() == out[0, len(prompt) :].tolist()


@pytest.mark.parametrize("name", FUSIONS)
def test_a_left_padded_batch_is_its_single_rows(name: str) -> None:
    kind, fusion = FUSIONS[name]
    model = build(kind, fusion)
    ids, mask = padded()
    batch = model.generate(ids, mask, **GREEDY)
    for row, prompt in zip(batch, PROMPTS, strict=True):
        assert (
            row[ids.shape[1] :].tolist() == model.generate(torch.tensor([prompt]), **GREEDY)[0, len(prompt) :].tolist()
        )
    logits = model(ids, attention_mask=mask).logits
    for row, prompt in zip(logits, PROMPTS, strict=True):
        torch.testing.assert_close(row[-len(prompt) :], model(torch.tensor([prompt])).logits[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", FUSIONS)
@pytest.mark.parametrize("how", [{}, {"num_beams": 3, "num_return_sequences": 2}])
def test_caches_change_nothing(name: str, how: dict[str, Any]) -> None:
    kind, fusion = FUSIONS[name]
    model = build(kind, fusion)
    ids, mask = padded()
    options = GREEDY | how | {"output_logits": False, "output_scores": True, "return_dict_in_generate": True}
    with_cache = model.generate(ids, mask, **options)
    without = model.generate(ids, mask, use_cache=False, **options)
    assert torch.equal(with_cache.sequences, without.sequences)
    for one, two in zip(with_cache.scores, without.scores, strict=True):
        torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-4)


def test_rows_of_equal_ids_and_other_masks_keep_their_own_caches() -> None:
    model = build("llama", Fusion(1.3))
    ids, mask = torch.tensor([[0, 5, 9], [0, 5, 9]]), torch.tensor([[0, 1, 1], [1, 1, 1]])
    options = GREEDY | {"num_beams": 3, "output_scores": True, "return_dict_in_generate": True}
    with_cache, without = (model.generate(ids, mask, use_cache=cached, **options) for cached in (True, False))
    for one, two in zip(with_cache.scores, without.scores, strict=True):
        torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-4)


def test_a_step_costs_one_token_of_each_auxiliary() -> None:
    model = build("llama", Fusion(1.0))
    fed = []
    for auxiliary in (model.forget, model.retain):
        auxiliary.register_forward_pre_hook(
            lambda _m, _a, options: fed.append(tuple(options["input_ids"].shape)), with_kwargs=True
        )
    ids, mask = padded()
    model.generate(ids, mask, **GREEDY)
    assert fed == [(3, 5), (3, 5)] + [(3, 1)] * 14
    fed.clear()
    model.generate(ids, mask, num_beams=4, **GREEDY)
    assert fed == [(12, 5), (12, 5)] + [(12, 1)] * 14


def test_beam_scores_are_sums_of_steered_log_probabilities() -> None:
    model = build("llama", Fusion(1.3), scoring="hard")
    prompt = torch.tensor([PROMPTS[0]])
    out = model.generate(
        prompt, num_beams=4, length_penalty=0.0, return_dict_in_generate=True, output_scores=True, **GREEDY
    )
    logits = model(out.sequences).logits.detach().clone()
    logits[..., 2] = -torch.inf  # min_new_tokens forbids the end mark before the processor normalises
    steered = torch.log_softmax(logits, -1)[0, prompt.shape[1] - 1 : -1]
    total = steered.gather(-1, out.sequences[0, prompt.shape[1] :, None]).sum()
    torch.testing.assert_close(out.sequences_scores[0], total, atol=1e-4, rtol=1e-4)


def test_sampling_draws_from_the_steered_distribution() -> None:
    model = build("llama", Fusion(1.3))
    prompt = torch.tensor([PROMPTS[0]])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        out = model.generate(
            prompt, do_sample=True, top_k=0, temperature=1.0, max_new_tokens=1, num_return_sequences=20_000
        )
    shares = torch.bincount(out[:, -1], minlength=V) / len(out)
    expected = model(prompt).logits[0, -1].softmax(-1).detach()
    assert float((shares - expected).abs().max()) < 0.02


def test_a_processor_can_be_used_for_another_generate_of_the_same_batch() -> None:
    model = build("llama", Fusion(1.3))
    ids, mask = padded()
    processor = model.processor(mask)
    options = GREEDY | {"attention_mask": mask, "logits_processor": [processor]}
    first = model.target.generate(ids, **options)
    other = ids.clone()
    other[:, -1] = 13
    model.target.generate(other, **options)
    assert torch.equal(model.target.generate(ids, **options), first)
    assert torch.equal(model.generate(ids, mask, **GREEDY), first)


def test_masks_that_do_not_belong_to_the_prompts_are_refused() -> None:
    model = build("llama", Fusion(1.3))
    ids, mask = padded()
    with pytest.raises(InputError, match="one processor for each batch"):
        model.target.generate(ids[:2], attention_mask=mask[:2], logits_processor=[model.processor(mask)], **GREEDY)
    with pytest.raises(InputError, match="pass their attention_mask"):
        model.target.generate(ids, attention_mask=mask, logits_processor=[model.processor()], **GREEDY)
    with pytest.raises(InputError, match="pad on the left"):
        model.generate(torch.tensor([[1, 5, 0]]), torch.tensor([[1, 1, 0]]))


def test_nothing_to_adjust_is_the_target_bit_for_bit_and_runs_no_auxiliary() -> None:
    model = build("llama", Fusion(0))
    for auxiliary in (model.forget, model.retain):
        auxiliary.register_forward_pre_hook(lambda *_: pytest.fail("an auxiliary ran"))
    ids, mask = padded()
    assert torch.equal(
        model(ids, attention_mask=mask).logits,
        model.target(ids, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp_min(0)).logits,
    )
    assert torch.equal(model.generate(ids, mask, **GREEDY), model.target.generate(ids, attention_mask=mask, **GREEDY))


def test_a_decoding_loop_over_forward_with_its_own_caches() -> None:
    model = build("gpt2", Fusion(1.1))
    ids = torch.tensor([PROMPTS[0]])
    whole = model(ids).logits
    pasts = None
    for t in range(ids.shape[1]):
        step = model(
            ids[:, t : t + 1],
            attention_mask=torch.ones(1, t + 1, dtype=torch.long),
            cache=pasts,
            use_cache=True,
        )
        pasts = step.cache
        torch.testing.assert_close(step.logits[:, 0], whole[:, t], atol=1e-4, rtol=1e-4)


def test_labels_give_the_loss_of_the_steered_distribution() -> None:
    model = build("llama", Fusion(1.3))
    ids = torch.tensor([PROMPTS[0]])
    labels = ids.clone()
    labels[:, :2] = -100
    log_probs = model(ids).logits.log_softmax(-1)
    expected = -torch.stack([log_probs[0, t - 1, ids[0, t]] for t in (2, 3, 4)]).mean()
    torch.testing.assert_close(model(ids, labels=labels).loss, expected)
    torch.testing.assert_close(model(ids, logits_to_keep=1).logits, model(ids).logits[:, -1:])


def test_scoring_is_soft_and_generation_is_hard() -> None:
    model = build("llama", Fusion(0, rank_k=4))
    ids = torch.tensor([PROMPTS[0]])
    assert torch.isfinite(model(ids).logits).all()
    out = model.generate(ids, return_dict_in_generate=True, output_scores=True, do_sample=False, max_new_tokens=1)
    assert 1 <= int(torch.isinf(out.scores[0]).sum()) <= 4


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_models_of_different_dtypes_are_fused_in_float32(dtype: torch.dtype) -> None:
    model = DivergenceModel(llama(0, dtype=dtype), llama(1), llama(2, dtype=dtype), Fusion(1.3))
    assert model(torch.tensor([PROMPTS[0]])).logits.dtype == torch.float32
    assert model.generate(torch.tensor([PROMPTS[0]]), **GREEDY).shape == (1, 13)


@pytest.mark.parametrize("fusion", [Fusion(1.3), Fusion(0.0, rank_k=3), Fusion(1.3, pinned=(0,))])
def test_nan_weights_are_refused(fusion: Fusion) -> None:
    broken = llama(1)
    with torch.no_grad():
        next(broken.parameters()).fill_(torch.nan)
    model = DivergenceModel(llama(0), broken, llama(2), fusion)
    with pytest.raises(InputError, match="forget auxiliary gives NaN"):
        model(torch.tensor([PROMPTS[0]]))
    with pytest.raises(InputError, match="forget auxiliary gives NaN"):
        model.generate(torch.tensor([PROMPTS[0]]), **GREEDY)


class Vocabulary:
    def __init__(self, *tokens: str) -> None:
        self.tokens = tokens

    def get_vocab(self) -> dict[str, int]:
        return {token: i for i, token in enumerate(self.tokens)}


WORDS = tuple(f"w{i}" for i in range(V))


def test_padded_embeddings_are_cut_to_the_tokenizers_length() -> None:
    same = DivergenceModel(llama(0), llama(1), llama(2), Fusion(1.3))
    big, small = llama(0, vocab=V + 9), llama(1, vocab=V + 3)
    model = DivergenceModel(big, small, llama(2), Fusion(1.3), tokenizers=[Vocabulary(*WORDS)] * 3)
    assert (same.vocabulary, model.vocabulary) == (V, V)
    ids = torch.tensor([PROMPTS[0]])
    logits = model(ids).logits
    assert logits.shape[-1] == V + 9
    assert torch.equal(logits[..., V:], big(ids).logits[..., V:])
    out = model.generate(ids, **GREEDY)
    assert out.shape == (1, 13)


def test_rows_that_every_embedding_pads_are_no_tokens() -> None:
    big, one, two = llama(0, vocab=V + 9), llama(1, vocab=V + 3), llama(2, vocab=V + 5)
    model = DivergenceModel(big, one, two, Fusion(1.3), tokenizers=[Vocabulary(*WORDS)])
    assert model.vocabulary == V
    ids = torch.tensor([PROMPTS[0]])
    assert torch.equal(model(ids).logits[..., V:], big(ids).logits[..., V:])


def test_vocabularies_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match="Pass the tokenizers"):
        DivergenceModel(llama(0, vocab=V + 9), llama(1), llama(2))
    other = Vocabulary(*WORDS[:-1], "other")
    with pytest.raises(InputError, match=r"differ in 2 tokens \('other', 'w22'\)"):
        DivergenceModel(llama(0), llama(1), llama(2), tokenizers=[Vocabulary(*WORDS), other])
    with pytest.raises(InputError, match="another vocabulary"):
        DivergenceModel(llama(0), llama(1, vocab=V - 1), llama(2), tokenizers=[Vocabulary(*WORDS)])
    with pytest.raises(InputError, match="whole vocabulary"):
        DivergenceModel(llama(0), llama(1), llama(2), Fusion(0, rank_k=V))
    with pytest.raises(InputError, match="whole vocabulary"):
        DivergenceLogitsProcessor(llama(1), llama(2), Fusion(0, rank_k=V))
