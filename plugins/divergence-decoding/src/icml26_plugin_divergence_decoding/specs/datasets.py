"""The offline benches, and files of the user."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from icml26 import DatasetSpec, Provides

from icml26_plugin_divergence_decoding.specs import PACKAGE, TASK

FILES = ("path", "target", "retrain", "small_base")


def datasets() -> Iterator[DatasetSpec]:
    """All data sets."""
    yield DatasetSpec(
        name="mini-tofu",
        task=TASK,
        target=f"{PACKAGE}.mini_tofu:MiniTofu",
        summary="Facts about invented persons, and small transformers trained in this run to know them.",
        provides=("qa", "keywords", "small-base", "retrain", "holdout", "perturbed", "world"),
        profile="small",
        smoke={
            "forget": 3,
            "retain": 9,
            "holdout": 3,
            "pretraining": 6,
            "judged_retain": 4,
            "width": 32,
            "small_width": 16,
            "layers": 1,
            "small_layers": 1,
            "pretraining_epochs": 2,
            "epochs": 3,
        },
    )
    yield DatasetSpec(
        name="digits-ar",
        task=TASK,
        target=f"{PACKAGE}.digits:Digits",
        summary="Handwritten digits as sequences of 64 pixel tokens; one class is to be forgotten.",
        provides=("images", "small-base", "retrain", "holdout"),
        profile="digits",
        smoke={"images": 300, "width": 16, "small_width": 8, "layers": 1, "small_layers": 1, "epochs": 1},
        license="CC-BY-4.0",
        source="https://archive.ics.uci.edu/dataset/80/optical+recognition+of+handwritten+digits",
    )
    yield DatasetSpec(
        name="mini-muse",
        task=TASK,
        target=f"{PACKAGE}.mini_muse:MiniMuse",
        summary="Help topics of Python's own documentation, memorised by small transformers in this run.",
        provides=("texts", "small-base", "retrain", "holdout", "verbatim"),
        profile="texts",
        smoke={
            "topics": 8,
            "topic_words": 80,
            "width": 16,
            "small_width": 8,
            "layers": 1,
            "small_layers": 1,
            "epochs": 1,
        },
        license="PSF-2.0",
        source="https://docs.python.org/3/library/pydoc.html",
    )
    yield _from_files(
        "tofu",
        "TofuFiles",
        "TOFU from your copy or the hub, with models of yours.",
        provides=("qa", "retrain", "holdout", "perturbed", "world"),
        source="https://huggingface.co/datasets/locuslab/TOFU",
        license="see the hub card",
    )
    yield _from_files(
        "muse",
        "MuseFiles",
        "MUSE (News or Books) from your copy or the hub, with models of yours.",
        provides=(
            "texts",
            "retrain",
            "holdout",
            Provides("knowledge", when={"knowledge": [True]}),
            Provides("verbatim", when={"verbatim": ["verbmem"]}),
        ),
        source="https://huggingface.co/muse-bench",
        license="see the hub card",
    )
    yield _from_files("own-questions", "OwnQuestions", "Questions and models of your own.", provides=("qa",))


def _from_files(name: str, target: str, summary: str, **options: Any) -> DatasetSpec:
    return DatasetSpec(
        name=name,
        task=TASK,
        target=f"{PACKAGE}.file_datasets:{target}",
        summary=summary,
        files=FILES,
        seeded=False,
        **options,
    )
