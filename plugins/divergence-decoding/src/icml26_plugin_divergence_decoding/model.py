"""The steered model: three models behind the call signature of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, Literal, NamedTuple

import torch
from icml26.errors import InputError
from torch import nn
from transformers import LogitsProcessorList

from icml26_plugin_divergence_decoding.calling import LMOutput, cache_of, call, learnt_positions, refuse_nan
from icml26_plugin_divergence_decoding.fusion import Fusion, RankMode, fuse
from icml26_plugin_divergence_decoding.ngram import scores_are_logits
from icml26_plugin_divergence_decoding.processor import DivergenceLogitsProcessor
from icml26_plugin_divergence_decoding.prompts import check_ids, check_left_padded
from icml26_plugin_divergence_decoding.vocabulary import common_vocabulary, vocabulary_size

IGNORED = -100


class Pasts(NamedTuple):
    """The caches of the three models."""

    target: Any
    forget: Any
    retain: Any


class DivergenceModel(nn.Module):
    """A target whose distribution is steered away from what ``forget`` knows beyond ``retain``.

    Args:
        target: the big model P; its weights are never touched. All three are put into evaluation mode.
        forget: the auxiliary p that was trained on what is to be forgotten.
        retain: the auxiliary q that was not.
        fusion: strength and form, see :class:`Fusion`.
        tokenizers: of target and auxiliaries, as far as known; compared, and needed when embeddings are padded
        differently. candidates: ids that the rank form may suppress, None for all.
        scoring: what the rank form does in ``forward``: "soft" as ``fusion.rank_soft`` says, for losses; "hard" as in
        generation.

    Raises InputError when vocabularies do not fit, or k covers all of it.
    """

    def __init__(
        self,
        target: Any,
        forget: Any,
        retain: Any,
        fusion: Fusion | None = None,
        *,
        tokenizers: Sequence[Any] = (),
        candidates: Sequence[int] | torch.Tensor | None = None,
        scoring: Literal["soft", "hard"] = "soft",
    ) -> None:
        super().__init__()
        self.fusion = fusion or Fusion()
        self.vocabulary = common_vocabulary(target, forget, retain, tokenizers=tuple(tokenizers))
        self.fusion.check_vocabulary(self.vocabulary)
        scores_are_logits(forget, retain)
        if scoring not in ("soft", "hard"):
            raise InputError(f"scoring={scoring!r} must be 'soft' or 'hard'.")
        self.scoring = scoring
        self.target, self.forget, self.retain = target, forget, retain
        self.register_buffer("candidates", _allowed(candidates, self.vocabulary))
        self.eval()

    @property
    def config(self) -> Any:
        """The target's."""
        return self.target.config

    @property
    def generation_config(self) -> Any:
        """The target's."""
        return self.target.generation_config

    @property
    def device(self) -> torch.device:
        """The target's."""
        return next(self.target.parameters()).device

    def can_generate(self) -> bool:
        """Whether the target can."""
        return hasattr(self.target, "generate")

    def with_fusion(self, fusion: Fusion, scoring: Literal["soft", "hard"] | None = None) -> DivergenceModel:
        """The same three models, combined otherwise."""
        parts = {"target": self.target, "forget": self.forget, "retain": self.retain}
        return self.from_parts(parts, self.settings() | {"fusion": asdict(fusion), "scoring": scoring or self.scoring})

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        cache: Pasts | None = None,
        labels: torch.Tensor | None = None,
        use_cache: bool = False,
        logits_to_keep: int = 0,
        past_key_values: Pasts | None = None,
        inputs_embeds: None = None,
        **_: Any,
    ) -> LMOutput:
        """Adjusted logits (B, T, V) float32 at every position, the target's own when nothing is to be adjusted.

        ``labels`` (B, T), -100 where not counted, give the mean next-token loss. ``cache``, or ``past_key_values``, is
        that of a former output. Raises InputError for ids, masks, and caches that do not fit.
        """
        check_ids(input_ids if inputs_embeds is None else None, attention_mask, vocabulary_size(self.target), past=True)
        if labels is not None and logits_to_keep:
            raise InputError("labels need the logits of all positions: leave logits_to_keep at 0.")
        pasts = self._pasts(past_key_values if cache is None else cache)
        outputs = []
        for model, past in zip((self.target, self.forget, self.retain), pasts, strict=True):
            if model is not self.target and self.fusion.idle:
                break
            options = {"cache": past, "use_cache": use_cache, "keep": logits_to_keep, "position_ids": position_ids}
            outputs.append(call(model, input_ids, attention_mask, **options))
        logits = self._fuse(*(output.logits for output in outputs), mask=attention_mask)
        kept = Pasts(*map(cache_of, outputs), *[None] * (3 - len(outputs))) if use_cache else None
        loss = None if labels is None else _loss(logits, labels)
        return LMOutput(loss=loss, logits=logits, cache=kept)

    def _pasts(self, given: Any) -> Pasts:
        if given is None:
            return Pasts(None, None, None)
        if not isinstance(given, Pasts) or any(past is None for past in given[: 1 if self.fusion.idle else 3]):
            raise InputError(
                "The cache must be that of a former output of this model: it holds a past for each of the three."
            )
        return given

    def _fuse(self, target: torch.Tensor, *auxiliaries: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        refuse_nan(target, "target", mask)
        if not auxiliaries:
            return target
        for logits, whose in zip(auxiliaries, ("forget", "retain"), strict=True):
            refuse_nan(logits, f"{whose} auxiliary", mask, finite=True)
        forget, retain = (logits[..., : self.vocabulary] for logits in auxiliaries)
        mode: RankMode = "hard" if self.scoring == "hard" else self.fusion.rank_soft
        centre = scores_are_logits(self.forget, self.retain)
        return fuse(target, forget, retain, self.fusion, mode=mode, candidates=self.candidates, centre=centre)

    def processor(
        self, attention_mask: torch.Tensor | None = None, *, use_cache: bool = True
    ) -> DivergenceLogitsProcessor:
        """A logits processor for one ``generate`` of the target; ``attention_mask`` (B, T) is the prompts'."""
        return DivergenceLogitsProcessor(
            self.forget,
            self.retain,
            self.fusion,
            attention_mask=attention_mask,
            candidates=self.candidates,
            vocabulary=self.vocabulary,
            use_cache=use_cache,
        )

    @torch.no_grad()
    def generate(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        logits_processor: Sequence[Any] | None = None,
        use_cache: bool = True,
        **options: Any,
    ) -> Any:
        """What the target's ``generate`` gives with the auxiliaries beside it; all its options work.

        Batches are left-padded, with their ``attention_mask``. Raises InputError for prompts and masks that do not fit,
        and for ``inputs_embeds``.
        """
        given = options.pop("inputs", None) if input_ids is None else input_ids
        input_ids = None if options.get("inputs_embeds") is not None else given
        check_ids(input_ids, attention_mask, vocabulary_size(self.target))
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        check_left_padded(attention_mask)
        processors = LogitsProcessorList(
            [self.processor(attention_mask, use_cache=use_cache), *(logits_processor or ())]
        )
        try:
            return self.target.generate(
                input_ids=input_ids,
                attention_mask=attention_mask,
                logits_processor=processors,
                use_cache=use_cache,
                **options,
            )
        except IndexError as error:
            if not learnt_positions(self.target):
                raise
            raise InputError(
                f"The target reads {self.target.config.max_position_embeddings} tokens and no more: shorten prompts or "
                "max_new_tokens."
            ) from error

    def parts(self) -> dict[str, Any]:
        """The models, as stored."""
        return {"target": self.target, "forget": self.forget, "retain": self.retain}

    def settings(self) -> dict[str, Any]:
        """All else, as JSON values."""
        candidates = None if self.candidates is None else torch.nonzero(self.candidates).squeeze(1).tolist()
        return {
            "fusion": asdict(self.fusion),
            "candidates": candidates,
            "scoring": self.scoring,
            "vocabulary": self.vocabulary,
        }

    @classmethod
    def from_parts(cls, parts: dict[str, Any], settings: dict[str, Any]) -> DivergenceModel:
        """The model of :meth:`parts` and :meth:`settings`."""
        model = cls.__new__(cls)
        nn.Module.__init__(model)
        fusion = dict(settings["fusion"])
        model.fusion = Fusion(**fusion | {"pinned": tuple(fusion["pinned"])})
        model.vocabulary, model.scoring = settings["vocabulary"], settings["scoring"]
        model.target, model.forget, model.retain = parts["target"], parts["forget"], parts["retain"]
        least = min(vocabulary_size(part) for part in parts.values())
        if model.scoring not in ("soft", "hard") or not 0 < model.vocabulary <= least:
            raise InputError(f"The settings {settings} do not fit models of {least} tokens.")
        model.fusion.check_vocabulary(model.vocabulary)
        model.register_buffer("candidates", _allowed(settings["candidates"], model.vocabulary))
        return model.eval()


def _allowed(ids: Sequence[int] | torch.Tensor | None, size: int) -> torch.Tensor | None:
    if ids is None:
        return None
    given = torch.as_tensor(ids).flatten()
    if given.dtype == torch.bool and len(given) == size:
        given = torch.nonzero(given).squeeze(1)
    if not len(given) or given.is_floating_point() or given.dtype == torch.bool:
        raise InputError("candidates must be ids of the vocabulary, at least one, or a mask of it.")
    if int(given.min()) < 0 or int(given.max()) >= size:
        raise InputError(f"candidates hold an id that is none of a vocabulary of {size} tokens.")
    allowed = torch.zeros(size, dtype=torch.bool)
    allowed[given.long()] = True
    return allowed


def _loss(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(
        logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten().long(), ignore_index=IGNORED
    )
