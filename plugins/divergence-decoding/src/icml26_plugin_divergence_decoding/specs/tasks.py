"""The task."""

from __future__ import annotations

from icml26 import TaskSpec

from icml26_plugin_divergence_decoding.specs import PACKAGE, TASK

UNLEARNING = TaskSpec(
    name=TASK,
    summary="Make a language model forget some rows of its training data and keep the rest.",
    inputs=f"{PACKAGE}.task:Inputs",
    truth=f"{PACKAGE}.task:Truth",
    output=f"{PACKAGE}.task:Output",
    metrics=("token-loss", "agg", "keyword-forget", "keyword-retain", "mia-gap", "verbmem", "knowmem", "image-loss"),
    words={
        "qa": "rows are questions with answers",
        "keywords": "each answer has a known part that gives the fact away",
        "small-base": "the inputs carry a small model of the same vocabulary, to fine-tune auxiliaries from",
        "retrain": "the truth holds a model that was trained without what is to be forgotten",
        "holdout": "the truth holds rows like the forgotten ones that were never trained on",
        "perturbed": "questions have paraphrased answers and wrong ones in the same words",
        "world": "the truth holds questions of general knowledge",
        "knowledge": "the truth holds questions about the texts to be forgotten and to be kept",
        "verbatim": "the truth holds beginnings of the texts to be forgotten, with their continuations",
        "texts": "rows are running texts",
        "images": "rows are images as sequences of pixel tokens",
        "auxiliaries": "the method steers by auxiliary models, and tells their size",
    },
)
