"""Data sets from files and models of the user: TOFU and MUSE as their authors lay them out, or rows of one's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from string import Formatter
from typing import Any, Literal

from icml26 import Dataset, Problem, RunContext
from icml26.dataset import DatasetConfig
from icml26.errors import InputError
from pydantic import Field

from icml26_plugin_divergence_decoding.encoding import encode_all
from icml26_plugin_divergence_decoding.loading import causal_model, refuse_other_tokenizer, tokenizer_of
from icml26_plugin_divergence_decoding.row_files import (
    as_questions,
    find_file,
    read_hub,
    read_records,
    read_text,
    text_of,
)
from icml26_plugin_divergence_decoding.task import QA, Format, Inputs, Knowledge, Truth

KNOWLEDGE_FORMAT = Format("Question: {question}\nAnswer:", " {answer}")


class ModelsConfig(DatasetConfig):
    """Where rows and models come from."""

    path: str = Field(description="Folder of the data set's files; with hub=true a data set's id on the hub.")
    target: str = Field(description="Folder of the model that was trained on everything (transformers format).")
    retrain: str | None = Field(None, description="Folder of the same model trained without what is to be forgotten.")
    small_base: str | None = Field(
        None, description="Folder of a small model of the same vocabulary, from which auxiliaries are trained."
    )
    hub: bool = Field(
        False, description="Take path and models from the hub, by their ids; nothing is downloaded otherwise."
    )
    revision: str | None = Field(None, description="Revision of the data set on the hub.")
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Number format of all models; auto takes that of their files."
    )
    max_length: int = Field(2048, ge=8, le=1_000_000, description="Longest sequence in tokens.")
    max_rows: int | None = Field(None, ge=1, description="Use only the first rows of each kind, to try things out.")

    def records(self, name: str, *, part: str | None = None, split: str | None = None) -> list[dict[str, Any]]:
        """The records of a file ``name`` of the folder, or of a part of the hub's data set."""
        if self.hub:
            found = read_hub(self.path, part or name, split, self.revision)
        else:
            found = read_records(find_file(Path(self.path), name))
        return found[: self.max_rows]


def load_model(name: str, config: ModelsConfig, device: str) -> Any:
    """A causal language model in eval mode. Raises InputError when ``name`` is no folder and the hub was not asked for."""
    _check_place(name, config)
    return causal_model(name, dtype=config.dtype, hub=config.hub).to(device)


def load_tokenizer(name: str, config: ModelsConfig) -> Any:
    """The tokenizer that belongs to a model, padding on the left. Raises InputError when there is none."""
    _check_place(name, config)
    return tokenizer_of(name, hub=config.hub)


def _check_place(name: str, config: ModelsConfig) -> None:
    if not config.hub and not Path(name).is_dir():
        raise InputError(f"{name!r} is no folder; a model from the hub is loaded only with hub=true")


def _check_prompt(prompt: str) -> None:
    try:
        asked = {name for _, name, _, _ in Formatter().parse(prompt) if name is not None}
    except ValueError as error:
        raise InputError(f"prompt={prompt!r}: {error}; double the braces that are meant as such") from None
    if asked != {"question"}:
        raise InputError(f"prompt={prompt!r} must contain {{question}}, and no other field")


def _check_lengths(rows: list[QA], tokenizer: Any, form: Format) -> None:
    """InputError before anything is trained when an answer that metrics ask about is too long."""
    texts = [(row.question, text) for row in rows for text in (row.answer, row.paraphrased, *row.perturbed) if text]
    encode_all([QA(*pair) for pair in dict.fromkeys(texts)], tokenizer, form)


class TofuFiles(Dataset[Inputs, Truth]):
    """TOFU: JSON lines with ``question`` and ``answer``, wrong and paraphrased answers in those that are judged."""

    wrong_answers_needed = True

    class Config(ModelsConfig):
        """Files and models; names are those of TOFU's forget10 task."""

        retrain: str = Field(description="Folder of the same model trained without what is to be forgotten.")
        forget: str = Field("forget10_perturbed", description="File of what is to be forgotten.")
        retain: str = Field("retain90", description="File of what is to be kept.")
        judged_retain: str | None = Field(
            "retain_perturbed", description="File of kept rows that metrics ask about; null: the retain file."
        )
        holdout: str | None = Field("holdout10", description="File of rows like those to be forgotten, never trained.")
        others: str | None = Field("real_authors_perturbed", description="File of questions about real neighbours.")
        world: str | None = Field("world_facts_perturbed", description="File of questions of general knowledge.")
        chat: bool = Field(True, description="Ask through the tokenizer's chat template; false: as prompt says.")
        prompt: str = Field("Question: {question}\nAnswer:", description="How a question is asked without a chat.")

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Read rows and models."""
        config = self.config
        _check_prompt(config.prompt)
        rows = {name: self._rows(getattr(config, name)) for name in ("retain", "judged_retain", "holdout")}
        rows["forget"] = self._rows(config.forget, perturbed=self.wrong_answers_needed)
        others, world = (self._rows(name, perturbed=True) for name in (config.others, config.world))
        form = Format(config.prompt, " {answer}", config.chat, config.max_length)
        target, tokenizer, retrain, small = load_models(config, ctx.device)
        if config.chat and not getattr(tokenizer, "chat_template", None):
            raise InputError("the tokenizer has no chat template; set chat=false and say in prompt how to ask")
        _check_lengths([*(row for found in rows.values() for row in found), *others, *world], tokenizer, form)
        inputs = Inputs(target, tokenizer, rows["forget"], rows["retain"], small_base=small, format=form)
        truth = Truth(
            target,
            tokenizer,
            rows["forget"],
            rows["judged_retain"] or rows["retain"],
            retrain=retrain,
            holdout=rows["holdout"],
            world=world,
            others=others,
            format=replace(form),
        )
        return Problem(inputs, truth, {f"{name}_rows": len(found) for name, found in rows.items()})

    def _rows(self, name: str | None, *, perturbed: bool = False) -> tuple[QA, ...]:
        if name is None:
            return ()
        return as_questions(self.config.records(name), f"{self.config.path}/{name}", perturbed=perturbed)


class OwnQuestions(TofuFiles):
    """Questions of your own in TOFU's fields; there need be nothing but what is to be forgotten and what is to be kept."""

    wrong_answers_needed = False

    class Config(ModelsConfig):
        """Files and models."""

        forget: str = Field("forget", description="File of what is to be forgotten.")
        retain: str = Field("retain", description="File of what is to be kept.")
        judged_retain: str | None = Field(None, description="File of kept rows that metrics ask about.")
        holdout: str | None = Field(None, description="File of rows like those to be forgotten, never trained.")
        others: str | None = Field(None, description="File of questions about neighbours, with wrong answers.")
        world: str | None = Field(None, description="File of questions of general knowledge, with wrong answers.")
        chat: bool = Field(True, description="Ask through the tokenizer's chat template; false: as prompt says.")
        prompt: str = Field("Question: {question}\nAnswer:", description="How a question is asked without a chat.")


class MuseFiles(Dataset[Inputs, Truth]):
    """MUSE: running texts as plain files, verbatim continuations and knowledge questions as JSON."""

    class Config(ModelsConfig):
        """Files and models; names are those of MUSE."""

        retrain: str = Field(description="Folder of the same model trained without what is to be forgotten.")
        forget: str = Field("forget", description="Text file of what is to be forgotten.")
        retain: str = Field("retain1", description="Text file of what is to be kept.")
        judged_retain: str | None = Field("retain2", description="Text file of kept text that metrics read.")
        holdout: str | None = Field("holdout", description="Text file that was never trained on.")
        verbatim: str | None = Field("verbmem", description="JSON file of prompt and gt (continuation).")
        knowledge: bool = Field(True, description="Read knowledge questions: knowmem_forget and knowmem_retain.")
        block: int = Field(512, ge=8, description="Tokens that are read at once; MUSE trains on 2048.")

    def load(self, ctx: RunContext) -> Problem[Inputs, Truth]:
        """Read texts and models."""
        config = self.config
        forget, retain, judged, holdout = (
            self._texts(name) for name in (config.forget, config.retain, config.judged_retain, config.holdout)
        )
        length = config.max_length
        knowledge = Knowledge(
            *self._knowledge(),
            self._verbatim(),
            replace(KNOWLEDGE_FORMAT, max_length=length),
            Format(answer="{answer}", max_length=length),
        )
        target, tokenizer, retrain, small = load_models(config, ctx.device)
        form = Format(max_length=min(config.block, config.max_length))
        inputs = Inputs(target, tokenizer, forget, retain, small_base=small, format=form)
        truth = Truth(
            target,
            tokenizer,
            forget,
            judged or retain,
            retrain=retrain,
            holdout=holdout,
            format=replace(form),
            knowledge=knowledge,
        )
        return Problem(inputs, truth, {"forget_texts": len(forget), "retain_texts": len(retain)})

    def _texts(self, name: str | None) -> tuple[str, ...]:
        if name is None:
            return ()
        if self.config.hub:
            return tuple(str(record["text"]) for record in self.config.records(name, part="raw", split=name))
        path = find_file(Path(self.config.path), name, (".txt", ".jsonl", ".json"))
        if path.suffix == ".txt":
            return (read_text(path),)
        records = read_records(path)[: self.config.max_rows]
        return tuple(text_of(record, "text", f"{path}, record {number}") for number, record in enumerate(records, 1))

    def _verbatim(self) -> tuple[QA, ...]:
        name = self.config.verbatim
        if name is None:
            return ()
        records = self.config.records(name, part="verbmem", split="forget")
        renamed = [{"question": r.get("prompt"), "answer": r.get("gt")} for r in records]
        for number, record in enumerate(renamed, 1):
            if not all(isinstance(value, str) and value for value in record.values()):
                raise InputError(f"{self.config.path}/{name}, record {number}: the fields prompt and gt must be texts")
        return as_questions(renamed, f"{self.config.path}/{name}")

    def _knowledge(self) -> tuple[tuple[QA, ...], tuple[QA, ...]]:
        if not self.config.knowledge:
            return (), ()
        forget, retain = (
            as_questions(
                self.config.records(f"knowmem_{kind}", part="knowmem", split=f"{kind}_qa"),
                f"{self.config.path}/knowmem_{kind}",
            )
            for kind in ("forget", "retain")
        )
        return forget, retain


def load_models(config: ModelsConfig, device: str) -> tuple[Any, Any, Any, Any]:
    """Target, its tokenizer, retrained reference or None, small base or None."""
    target = load_model(config.target, config, device)
    tokenizer = load_tokenizer(config.target, config)
    for name in (config.retrain, config.small_base):
        if name is not None:
            _check_place(name, config)
            refuse_other_tokenizer(name, tokenizer, hub=config.hub)
    retrain, small = (
        None if name is None else load_model(name, config, device) for name in (config.retrain, config.small_base)
    )
    return target, tokenizer, retrain, small
