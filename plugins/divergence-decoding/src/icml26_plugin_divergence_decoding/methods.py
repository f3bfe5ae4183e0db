"""Divergence Decoding as methods of ``unlearning.language``: thin adapters over the native API."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

from icml26 import Method, Problem, RunContext
from icml26.errors import InputError

from icml26_plugin_divergence_decoding import storage
from icml26_plugin_divergence_decoding.auxiliaries import (
    Auxiliaries,
    AuxiliaryData,
    auxiliaries_key,
    count_auxiliaries,
    train_auxiliaries,
    trained_once,
    warn_if_swapped,
)
from icml26_plugin_divergence_decoding.checks import checked_sequences
from icml26_plugin_divergence_decoding.configs import (
    DistilledConfig,
    DivergenceConfig,
    FusionConfig,
    NgramConfig,
    RankConfig,
)
from icml26_plugin_divergence_decoding.distillation import distill
from icml26_plugin_divergence_decoding.encoding import candidate_ids, pad_id
from icml26_plugin_divergence_decoding.loading import causal_model, refuse_other_tokenizer
from icml26_plugin_divergence_decoding.model import DivergenceModel
from icml26_plugin_divergence_decoding.task import Inputs, Output, Truth
from icml26_plugin_divergence_decoding.vocabulary import vocabulary_size


class SteeredMethod(Method[Inputs, Output]):
    """What all forms share: checks, fusion, storage."""

    @abstractmethod
    def auxiliaries(self, inputs: Inputs, data: AuxiliaryData, ctx: RunContext) -> Auxiliaries:
        """The two auxiliaries."""

    def steered(self, inputs: Inputs, data: AuxiliaryData, ctx: RunContext) -> tuple[DivergenceModel, dict[str, Any]]:
        """The steered model, and what there is to say of it."""
        config: FusionConfig = self.config
        fusion = config.fusion(inputs.tokenizer)
        fusion.check_vocabulary(vocabulary_size(inputs.target))
        pair = self.auxiliaries(inputs, data, ctx)
        swapped = warn_if_swapped(pair, data.forget, pad=pad_id(inputs.tokenizer))
        model = DivergenceModel(
            inputs.target, *pair, fusion, tokenizers=(inputs.tokenizer,), candidates=self._candidates(inputs)
        )
        sizes = [sum(p.numel() for p in part.parameters()) for part in (inputs.target, *pair)]
        return model, {
            "alpha": fusion.alpha,
            "rank_k": fusion.rank_k,
            "auxiliary_parameters": max(sizes[1:]),
            "target_parameters": sizes[0],
            "auxiliaries_look_swapped": swapped,
        }

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Make the auxiliaries and steer the target by them."""
        return Output(*self.steered(inputs, AuxiliaryData(*checked_sequences(inputs)), ctx))

    def _candidates(self, inputs: Inputs) -> Any:
        if not self.config.restrict_candidates or not self.config.rank_k:
            return None
        if inputs.candidates is not None:
            return inputs.candidates
        rows = (*inputs.forget, *inputs.retain, *inputs.background)
        return candidate_ids(rows, inputs.tokenizer, inputs.format)

    def visualize(self, problem: Problem[Inputs, Truth], output: Output, ctx: RunContext) -> None:
        """Write answers before and after, and the trade-off over alpha."""
        from icml26_plugin_divergence_decoding.show import visualize

        visualize(problem, output, ctx)

    def save(self, output: Output, folder: Path) -> None:
        """Write the models (safetensors) and settings (JSON)."""
        storage.save_output(output, folder)

    @classmethod
    def load(cls, folder: Path) -> Output:
        """Read what :meth:`save` wrote."""
        return storage.load_output(folder)


class DivergenceDecoding(SteeredMethod):
    """The linear form with two trained auxiliaries."""

    class Config(DivergenceConfig):
        """Options."""

    def auxiliaries(self, inputs: Inputs, data: AuxiliaryData, ctx: RunContext) -> Auxiliaries:
        """Load the user's auxiliaries, or train two from the small base."""
        config: DivergenceConfig = self.config
        if config.forget_auxiliary is not None and config.retain_auxiliary is not None:
            folders = (config.forget_auxiliary, config.retain_auxiliary)
            return Auxiliaries(*(_own(folder, ctx.device, inputs.tokenizer) for folder in folders))
        base = inputs.small_base
        if base is None:
            raise InputError(
                "This problem has no small model to train auxiliaries from: set forget_auxiliary and retain_auxiliary."
            )
        training, seed = config.training(), ctx.torch_seed()

        def build() -> Auxiliaries:
            pad = pad_id(inputs.tokenizer)
            return train_auxiliaries(
                base,
                data,
                config.pairing,
                training,
                couple=config.couple,
                seed=seed,
                pad=pad,
                device=ctx.device,
                log=ctx.log,
            )

        if not config.reuse:
            return build()
        from icml26.datacache import cached_folder

        key = auxiliaries_key(base, data, config.pairing, training, couple=config.couple, seed=seed, device=ctx.device)
        return Auxiliaries(*(model.to(ctx.device) for model in trained_once(key, build, cached_folder)))


class DivergenceRank(DivergenceDecoding):
    """The rank form."""

    class Config(RankConfig):
        """Options."""


class DivergenceNgram(SteeredMethod):
    """The linear or rank form with trigram counts as auxiliaries."""

    class Config(NgramConfig):
        """Options."""

    def auxiliaries(self, inputs: Inputs, data: AuxiliaryData, ctx: RunContext) -> Auxiliaries:
        """Count what is to be forgotten, and what is to be kept."""
        config: NgramConfig = self.config
        size = vocabulary_size(inputs.target)
        counted = count_auxiliaries(data, config.pairing, size, config.backoff)
        return Auxiliaries(*(model.to(ctx.device) for model in counted))


class DivergenceDistilled(DivergenceDecoding):
    """The linear form, distilled into a copy of the target: no auxiliaries when it is used."""

    class Config(DistilledConfig):
        """Options."""

    def run(self, inputs: Inputs, ctx: RunContext) -> Output:
        """Steer, then train a copy of the target to say the same of what is to be forgotten."""
        config: DistilledConfig = self.config
        data = AuxiliaryData(*checked_sequences(inputs))
        teacher, info = self.steered(inputs, data, ctx)
        settings, training = config.distillation()
        student = distill(
            inputs.target,
            teacher,
            data.forget,
            settings,
            training,
            retain=[*data.retain, *data.background],
            seed=ctx.torch_seed(),
            pad=pad_id(inputs.tokenizer),
            device=ctx.device,
            log=ctx.log,
        )
        return Output(student, info)


def _own(path: Path, device: str, tokenizer: Any) -> Any:
    if not (path / "config.json").is_file():
        raise InputError(f"{path} holds no model in transformers format (config.json and safetensors).")
    refuse_other_tokenizer(path, tokenizer)
    return causal_model(path).to(device)
