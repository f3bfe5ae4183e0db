"""What users and other parts of transformers may hand over: right, warned or refused by name, never silently wrong."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from icml26.errors import InputError
from icml26_plugin_divergence_decoding.baselines.offset import Offset, OffsetModel
from icml26_plugin_divergence_decoding.fusion import Fusion, fuse
from icml26_plugin_divergence_decoding.model import DivergenceModel
from icml26_plugin_divergence_decoding.ngram import NGramModel
from icml26_plugin_divergence_decoding.processor import DivergenceLogitsProcessor
from tiny import V, gpt2, llama
from transformers import MambaConfig, MambaForCausalLM, T5Config, T5ForConditionalGeneration

GREEDY = {"do_sample": False, "max_new_tokens": 6, "min_new_tokens": 6}
IDS = torch.tensor([[1, 5, 9, 4, 11]])
LINEAR = DivergenceModel(llama(0), llama(1), llama(2), Fusion(1.3))
RANK = DivergenceModel(llama(0), llama(1), llama(2), Fusion(0, rank_k=10))


def mamba(seed: int) -> MambaForCausalLM:
    config = MambaConfig(vocab_size=V, hidden_size=16, state_size=4, num_hidden_layers=2, initializer_range=0.3)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MambaForCausalLM(config).eval()


def t5() -> T5ForConditionalGeneration:
    with torch.random.fork_rng(devices=[]):
        return T5ForConditionalGeneration(T5Config(vocab_size=V, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2))


@pytest.mark.parametrize(
    ("ids", "mask", "message"),
    [
        (None, None, "embeddings cannot be shared"),
        ([[1, 5]], None, "not a list"),
        (IDS[0], None, r"shape \(5,\)"),
        (IDS.float(), None, "float32"),
        (IDS[:, :0], None, "no token to go on from"),
        (IDS[:0], None, "no token to go on from"),
        (IDS + 20, None, "id 31"),
        (IDS - 20, None, "id -19"),
        (IDS, IDS[:, :3], "does not fit"),
        (IDS.repeat(2, 1), torch.ones_like(IDS), "does not fit"),
        (IDS, torch.ones(5), "must be a tensor"),
    ],
)
def test_ids_and_masks_that_cannot_be_read_are_refused(ids: Any, mask: Any, message: str) -> None:
    for ask in (LINEAR.forward, lambda i, m: LINEAR.generate(i, m, **GREEDY)):
        with pytest.raises(InputError, match=message):
            ask(ids, mask)


def test_embeddings_in_place_of_ids_are_refused() -> None:
    embedded = LINEAR.target.get_input_embeddings()(IDS)
    with pytest.raises(InputError, match="embeddings cannot be shared"):
        LINEAR.generate(IDS, inputs_embeds=embedded, **GREEDY)
    with pytest.raises(InputError, match="embeddings cannot be shared"):
        LINEAR(IDS, inputs_embeds=embedded)


def test_a_prompt_of_padding_alone_is_refused() -> None:
    with pytest.raises(InputError, match="padding alone"):
        LINEAR.generate(IDS, torch.zeros_like(IDS), **GREEDY)


def test_other_layouts_and_kinds_of_ids_and_masks_give_the_same() -> None:
    expected = LINEAR.generate(IDS, **GREEDY)
    strided = torch.zeros(1, 10, dtype=torch.long)
    strided[:, ::2] = IDS
    for ids, mask in (
        (IDS.int(), None),
        (strided[:, ::2], None),
        (IDS, torch.ones_like(IDS).bool()),
        (IDS, torch.ones(1, 5)),
    ):
        assert torch.equal(LINEAR.generate(ids, mask, **GREEDY).long(), expected)
        torch.testing.assert_close(LINEAR(ids, attention_mask=mask).logits, LINEAR(IDS).logits)
    assert torch.equal(LINEAR.generate(inputs=IDS, logits_processor=None, **GREEDY), expected)
    torch.testing.assert_close(LINEAR(IDS.int(), labels=IDS.int()).loss, LINEAR(IDS, labels=IDS).loss)


def test_ngrams_count_what_int32_ids_of_a_large_vocabulary_say() -> None:
    size = 70_000  # squared beyond int32
    model = NGramModel.count([[69_000, 68_000, 5, 69_000, 68_000, 6]], size)
    ids = torch.tensor([[69_000, 68_000]])
    assert model(ids).logits[0, 1, 5] == 0.5
    assert torch.equal(model(ids.int()).logits, model(ids).logits)
    beyond = model(torch.tensor([[68_999, 68_000 + size]])).logits[0, 1]  # the same number as the pair above
    torch.testing.assert_close(beyond, 0.4**2 * model.unigrams)


@pytest.mark.parametrize("how", [{"prompt_lookup_num_tokens": 2}, {"assistant_model": 5}])
def test_assisted_generation_gives_what_greedy_gives(how: dict[str, Any]) -> None:
    options = {name: llama(value) if name == "assistant_model" else value for name, value in how.items()}
    assert torch.equal(LINEAR.generate(IDS, **options, **GREEDY), LINEAR.generate(IDS, **GREEDY))


def test_a_past_of_the_users_changes_nothing() -> None:
    past = LINEAR.target(IDS[:, :-1], use_cache=True)
    expected = LINEAR.generate(IDS, **GREEDY)
    name = "cache" if "cache" in past else "past_key_values"
    assert torch.equal(LINEAR.generate(IDS, **{name: past[name]}, **GREEDY), expected)


def test_pasts_of_forward_are_used_by_either_name_or_refused() -> None:
    longer = torch.cat([IDS, torch.tensor([[3]])], 1)
    whole = LINEAR(longer).logits[:, -1]
    for name in ("cache", "past_key_values"):
        past = LINEAR(IDS, use_cache=True).past_key_values
        step = LINEAR(longer[:, -1:], attention_mask=torch.ones_like(longer), **{name: past})
        torch.testing.assert_close(step.logits[:, 0], whole, atol=1e-4, rtol=1e-4)
    idle = LINEAR.with_fusion(Fusion(0))(IDS, use_cache=True).cache
    for wrong in (idle, LINEAR.target(IDS, use_cache=True).get("past_key_values") or object()):
        with pytest.raises(InputError, match="a past for each of the three"):
            LINEAR(longer[:, -1:], cache=wrong)


def test_generation_stops_at_any_of_several_end_marks() -> None:
    whole = LINEAR.generate(IDS, **GREEDY)[0].tolist()
    cut = LINEAR.generate(IDS, do_sample=False, max_new_tokens=6, eos_token_id=[whole[7], 2])[0].tolist()
    assert cut == whole[: whole.index(whole[7], 5) + 1]


@pytest.mark.parametrize("beams", [1, 3])
def test_state_space_auxiliaries_with_caches_say_what_they_say_without(beams: int) -> None:
    model = DivergenceModel(llama(0), mamba(1), mamba(2), Fusion(1.3))
    ids, mask = torch.tensor([[0, 0, 1, 5, 9], [1, 5, 9, 4, 11]]), torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])
    one = model.generate(ids, mask, num_beams=beams, **GREEDY)
    assert torch.equal(one, model.generate(ids, mask, num_beams=beams, use_cache=False, **GREEDY))


def test_an_auxiliary_without_a_cache_is_shown_everything() -> None:
    class Forgetful(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner, self.config = inner, inner.config

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor, position_ids: torch.Tensor) -> Any:
            return self.inner(
                input_ids=input_ids, attention_mask=attention_mask, position_ids=position_ids, use_cache=False
            )

    model = DivergenceModel(llama(0), llama(1), Forgetful(llama(2)).eval(), Fusion(1.3))
    assert torch.equal(model.generate(IDS, **GREEDY), LINEAR.generate(IDS, **GREEDY))


def test_encoder_decoders_are_refused() -> None:
    with pytest.raises(InputError, match="encoder-decoder"):
        DivergenceModel(t5(), llama(1), llama(2))
    with pytest.raises(InputError, match="encoder-decoder"):
        DivergenceLogitsProcessor(t5(), llama(2), Fusion(1.0))


def test_a_context_that_ends_is_refused_and_one_that_fades_is_warned_of() -> None:
    many = {"do_sample": False, "max_new_tokens": 70, "min_new_tokens": 70}
    short = gpt2(1)
    short.config.n_positions = 16
    short.transformer.wpe = torch.nn.Embedding(16, 16)
    for target, auxiliary in ((gpt2(0), llama(1)), (llama(0), short)):
        with pytest.raises(InputError, match="max_new_tokens"):
            DivergenceModel(target, auxiliary, llama(2), Fusion(1.0)).generate(IDS, **many)
    with pytest.raises(InputError, match="made for 16 tokens and is given 20"):
        DivergenceModel(llama(0), short, llama(2), Fusion(1.0))(torch.ones(1, 20, dtype=torch.long))
    with pytest.warns(UserWarning, match="made for 64 tokens and is given 65"):
        DivergenceModel(llama(0), llama(1), llama(2), Fusion(1.0)).generate(IDS, **many)


@pytest.mark.parametrize("only", [3, 4, 8])
@pytest.mark.parametrize("fusion", [Fusion(0, rank_k=21), Fusion(1.2, rank_k=21, strict_k=False), Fusion(1.0)])
def test_what_other_processors_force_is_said(only: int, fusion: Fusion) -> None:
    model = LINEAR.with_fusion(fusion)
    options = {"prefix_allowed_tokens_fn": lambda *_: [only], "return_dict_in_generate": True, "output_scores": True}
    out = LINEAR.target.generate(IDS, logits_processor=[model.processor()], **options, **GREEDY)
    assert out.sequences[0, 5:].tolist() == [only] * 6
    assert all(score[0, only] == 0 for score in out.scores)


def test_a_forced_end_mark_that_is_pinned_is_said() -> None:
    model = DivergenceModel(llama(0), llama(1), llama(2), Fusion(1.3, pinned=(2,)))
    out = LINEAR.target.generate(
        IDS, logits_processor=[model.processor()], do_sample=False, max_new_tokens=3, forced_eos_token_id=2
    )
    assert out[0, -1] == 2


def test_a_row_with_nothing_left_is_refused() -> None:
    with pytest.raises(InputError, match="forbid every token"):
        RANK.processor()(IDS, torch.full((1, V), -torch.inf))


@pytest.mark.parametrize("value", [-torch.inf, torch.inf, torch.nan])
def test_auxiliaries_of_infinite_logits_are_refused(value: float) -> None:
    class Masked(torch.nn.Module):
        def __init__(self, inner: Any) -> None:
            super().__init__()
            self.inner, self.config = inner, inner.config

        def forward(self, **options: Any) -> Any:
            output = self.inner(**options)
            output.logits[..., 5] = value
            return output

    model = DivergenceModel(llama(0), llama(1), Masked(llama(2)).eval(), Fusion(1.0))
    with pytest.raises(InputError, match="retain auxiliary gives NaN or infinite"):
        model(IDS)
    with pytest.raises(InputError, match="retain auxiliary gives NaN or infinite"):
        model.generate(IDS, **GREEDY)


def test_masks_of_other_prompts_are_refused() -> None:
    ids = torch.tensor([[0, 0, 1, 5, 9], [1, 5, 9, 4, 11]])
    options = GREEDY | {"attention_mask": (ids > 0).long()}
    with pytest.raises(InputError, match="one row a prompt"):
        LINEAR.target.generate(ids, logits_processor=[LINEAR.processor(torch.ones(1, 5))], **options)
    one = ids[:1]
    with pytest.raises(InputError, match="pass their attention_mask"):
        LINEAR.target.generate(one, attention_mask=(one > 0).long(), logits_processor=[LINEAR.processor()], **GREEDY)


def test_a_processor_after_a_failure_begins_anew() -> None:
    processor = LINEAR.processor(torch.ones_like(IDS))
    scores = torch.zeros(1, V)
    processor(IDS, scores)
    longer = torch.cat([IDS, torch.tensor([[3]])], 1)
    hook = LINEAR.retain.register_forward_pre_hook(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        processor(longer, scores)
    hook.remove()
    longest = torch.cat([longer, torch.tensor([[7]])], 1)
    fresh = LINEAR.processor(torch.ones_like(IDS))(longest, scores)
    torch.testing.assert_close(processor(longest, scores), fresh, atol=1e-5, rtol=1e-5)


def test_modes_of_auxiliaries_are_told_and_left() -> None:
    auxiliary = llama(1).train()
    with pytest.warns(UserWarning, match="forget auxiliary is in training mode"):
        DivergenceLogitsProcessor(auxiliary, llama(2), Fusion(1.0))
    assert auxiliary.training


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": "1"}, "alpha='1'"),
        ({"alpha": None}, "alpha=None"),
        ({"alpha": 1e39}, "from 0 to"),
        ({"rank_k": 2.5}, "rank_k=2.5"),
        ({"rank_k": True}, "rank_k=True"),
        ({"pinned": 3}, "pinned=3"),
        ({"pinned": (3.5,)}, "pinned="),
        ({"temperature": 0.5}, "use generate's own"),
        ({"rank_soft": "hard"}, "rank_soft='hard'"),
    ],
)
def test_wrong_fusions_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Fusion(**options)


def test_a_temperature_of_the_content_acts_without_a_strength() -> None:
    target = torch.tensor([0.0, 1.0, 2.0, 3.0])
    fusion = Fusion(0, pinned=(0,), temperature=2.0)
    found = fuse(target, torch.zeros(4), torch.zeros(4), fusion).exp()
    assert found[0] == pytest.approx(float(target.softmax(-1)[0]))
    torch.testing.assert_close(found[1:] / found[1:].sum(), (target[1:] / 2).softmax(-1))


@pytest.mark.parametrize(
    ("candidates", "message"), [([V], "none of a vocabulary"), ([-1], "none of a vocabulary"), ([], "at least one")]
)
def test_wrong_candidates_are_refused(candidates: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        DivergenceModel(llama(0), llama(1), llama(2), Fusion(0, rank_k=3), candidates=candidates)


def test_candidates_may_be_a_mask() -> None:
    model = DivergenceModel(llama(0), llama(1), llama(2), Fusion(0, rank_k=3), candidates=torch.arange(V) > 19)
    assert torch.nonzero(model.candidates).squeeze(1).tolist() == [20, 21, 22]


def test_parts_that_do_not_belong_together_are_refused() -> None:
    counted = NGramModel.count([[3, 4, 5]], V)
    with pytest.raises(InputError, match="probabilities and logits"):
        DivergenceModel(llama(0), counted, llama(2))
    with pytest.raises(InputError, match="probabilities and logits"):
        DivergenceLogitsProcessor(llama(1), counted, Fusion(1.0))
    with pytest.raises(InputError, match="scoring='loud'"):
        DivergenceModel(llama(0), llama(1), llama(2), scoring="loud")  # type: ignore[arg-type]


def test_offset_baselines_refuse_the_same() -> None:
    model = OffsetModel(llama(0), llama(1), Offset("uld", 0.5))
    for ids, mask, message in ((IDS[0], None, "shape"), (IDS, IDS[:, :3], "does not fit"), (IDS + 20, None, "id 31")):
        for ask in (model.forward, lambda i, m: model.generate(i, m, **GREEDY)):
            with pytest.raises(InputError, match=message):
                ask(ids, mask)
    with pytest.raises(InputError, match="neither embeddings nor pasts"):
        model(IDS, past_key_values=object())
    with pytest.raises(InputError, match="padding alone"):
        model.generate(IDS, torch.zeros_like(IDS), **GREEDY)
    slow = OffsetModel(llama(0), mamba(1), Offset("uld", 0.5))
    out = slow.generate(IDS, **GREEDY)
    logits = slow(out).logits[0, 4:-1].clone()
    logits[:, 2] = -torch.inf  # min_new_tokens forbids the end mark
    assert logits.argmax(-1).tolist() == out[0, 5:].tolist()
