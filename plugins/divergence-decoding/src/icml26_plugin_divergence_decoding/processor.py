"""Steering inside ``generate``: a logits processor that runs the auxiliaries beside the model that generates."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from icml26.errors import InputError
from transformers import LogitsProcessor

from icml26_plugin_divergence_decoding.calling import cache_of, call, refuse_nan
from icml26_plugin_divergence_decoding.fusion import Fusion, fuse
from icml26_plugin_divergence_decoding.ngram import NGramModel, scores_are_logits
from icml26_plugin_divergence_decoding.vocabulary import vocabulary_size


class DivergenceLogitsProcessor(LogitsProcessor):
    """Fuses the scores of ``generate`` with those of two auxiliaries, which keep key-value caches of their own.

    ``attention_mask`` (B, T) is the prompt's and must be given for left-padded batches; it is repeated for beams and
    for several samples a prompt. Rows of the next call are matched with those of the last by their tokens, so that
    caches follow beams; what cannot be matched (a new ``generate``) is computed anew. The result is normalised: beam
    scores stay sums of log-probabilities.
    """

    def __init__(
        self,
        forget: Any,
        retain: Any,
        fusion: Fusion,
        *,
        attention_mask: torch.Tensor | None = None,
        candidates: torch.Tensor | None = None,
        vocabulary: int | None = None,
        use_cache: bool = True,
    ) -> None:
        fusion.check_vocabulary(vocabulary or min(vocabulary_size(forget), vocabulary_size(retain)))
        self.auxiliaries = {"forget auxiliary": forget, "retain auxiliary": retain}
        self.fusion, self.candidates, self.vocabulary = fusion, candidates, vocabulary
        self.centre = scores_are_logits(forget, retain)
        self.prompt_mask, self.use_cache = attention_mask, use_cache
        for name, model in self.auxiliaries.items():
            if getattr(model, "training", False) and not isinstance(model, NGramModel):
                warnings.warn(f"The {name} is in training mode: its dropout is noise, call its eval().", stacklevel=2)
        self.reset()

    def reset(self) -> None:
        """Forget the past."""
        self._past: torch.Tensor | None = None
        self._caches: dict[str, Any] = {}

    @torch.no_grad()
    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        """Log-probabilities (R, V) float32 from ``scores`` (R, V), logits or log-probabilities of the token after
        ``input_ids``.
        """
        if self.fusion.idle:
            return scores
        mask = self._mask(input_ids)
        new = self._follow(input_ids.masked_fill(mask == 0, -1))
        fed = input_ids[:, -new:]
        logits = {}
        try:
            for name, model in self.auxiliaries.items():
                output = call(model, fed, mask, cache=self._caches.get(name), use_cache=self.use_cache, keep=1)
                if self.use_cache:
                    self._caches[name] = cache_of(output)
                logits[name] = output.logits[:, -1, : self.vocabulary]
                refuse_nan(logits[name], name, finite=True)
        except BaseException:
            self.reset()  # one cache may have grown and the other not
            raise
        if self.use_cache and any(cache is None for cache in self._caches.values()):
            self.use_cache, self._caches = False, {}  # a model that gives none must be shown everything each time
        fused = fuse(
            scores,
            logits["forget auxiliary"],
            logits["retain auxiliary"],
            self.fusion,
            mode="hard",
            candidates=self.candidates,
            centre=self.centre,
        )
        steered = torch.log_softmax(fused, dim=-1)
        if bool(torch.isnan(steered[:, 0]).any()):  # one NaN makes its whole row NaN: looking at one column is enough
            refuse_nan(scores, "target")
            raise InputError("Other logits processors forbid every token of a row: there is nothing left to generate.")
        return steered

    def _mask(self, ids: torch.Tensor) -> torch.Tensor:
        """The mask (R, T) of all tokens so far."""
        prompt = self.prompt_mask
        if prompt is None:
            self._refuse_padding(ids)
            return torch.ones_like(ids)
        rows, length = ids.shape
        if rows % len(prompt) or length < prompt.shape[1]:
            raise InputError(
                f"The attention mask {tuple(prompt.shape)} is not that of these prompts {tuple(ids.shape)}: "
                "make one processor for each batch of prompts."
            )
        groups = ids[:, : prompt.shape[1]].view(len(prompt), -1, prompt.shape[1])
        if not self._caches and not torch.equal(groups, groups[:, :1].expand_as(groups)):
            raise InputError(
                f"The attention mask has {len(prompt)} rows for {rows} different prompts: give it one row a prompt."
            )
        repeated = prompt.to(ids.device).long().repeat_interleave(rows // len(prompt), dim=0)
        return torch.cat([repeated, repeated.new_ones(rows, length - prompt.shape[1])], dim=1)

    def _refuse_padding(self, ids: torch.Tensor) -> None:
        config = getattr(self.auxiliaries["forget auxiliary"], "config", None)
        pad = getattr(config, "pad_token_id", None)
        begins = ids[:, 0] == pad if isinstance(pad, int) else torch.zeros(1, dtype=torch.bool)
        # Some models begin every prompt with the token that they pad with.
        ordinary = pad in (getattr(config, "bos_token_id", None), getattr(config, "eos_token_id", None))
        if bool(begins.any()) and not (ordinary and bool(begins.all())):
            raise InputError("Some prompts begin with padding: pass their attention_mask to DivergenceLogitsProcessor.")

    def _follow(self, ids: torch.Tensor) -> int:
        """How many tokens of ``ids`` (R, T; -1 where masked) are new to the caches, after these were put in the rows'
        order.
        """
        past, self._past = self._past, ids
        if past is None or not self._caches or ids.shape[1] <= past.shape[1]:
            self._caches = {}
            return ids.shape[1]
        seen = ids[:, : past.shape[1]]
        if not torch.equal(seen, past):
            _, which = torch.unique(torch.cat([seen, past]), dim=0, return_inverse=True)  # (R, R, T) would not fit
            same = which[: len(seen), None] == which[None, len(seen) :]
            if not bool(same.any(1).all()):
                self._caches = {}
                return ids.shape[1]
            rows = same.int().argmax(1)
            for cache in self._caches.values():
                cache.reorder_cache(rows)
        return ids.shape[1] - past.shape[1]
