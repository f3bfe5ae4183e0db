"""Metrics of images as pixel sequences."""

from __future__ import annotations

import numpy as np
import torch
from icml26 import RunContext

from icml26_plugin_divergence_decoding.digits import LEVELS, PIXELS, START
from icml26_plugin_divergence_decoding.evaluation import evaluate
from icml26_plugin_divergence_decoding.task import Images, Output, Truth

SAMPLES = 300
_BATCH = 100


def image_loss(output: Output, truth: Truth) -> dict[str, float]:
    """Loss (nats a pixel) on unseen images of the forgotten class and of the kept ones.

    ``gap-share``: how far, from the target (0) to the retrained model (1), the loss of the forgotten class rose;
    ``retain-excess``: by which share the loss on kept classes exceeds the target's.
    """
    found, target = evaluate(output.model, truth), evaluate(truth.target, truth)
    forget, retain = found.holdout.loss, found.retain.loss
    values = {"forget": forget, "retain": retain, "retain-excess": retain / target.retain.loss - 1}
    if truth.retrain is not None:
        gap = evaluate(truth.retrain, truth).holdout.loss - target.holdout.loss
        values["gap-share"] = (forget - target.holdout.loss) / gap
    return values


def class_share(output: Output, truth: Truth, ctx: RunContext) -> dict[str, float]:
    """Share, 0 to 1, of sampled images that a classifier takes for the forgotten class, and its ratio to the target's."""
    images = truth.images
    if images is None:
        raise ValueError("this metric needs images")
    seed = ctx.torch_seed()
    share, before = (_share(sample(model, SAMPLES, seed), images) for model in (output.model, truth.target))
    return {"": share, "relative": share / max(before, 1 / SAMPLES)}


@torch.no_grad()
def sample(model: torch.nn.Module, count: int, seed: int) -> np.ndarray:
    """Images (count, 64) with levels 0 to 16, drawn from ``model``; the global generator is left as it was."""
    device = next(model.parameters()).device
    found = []
    with torch.random.fork_rng(devices=[] if device.type == "cpu" else None):
        torch.manual_seed(seed)
        for at in range(0, count, _BATCH):
            start = torch.full((min(_BATCH, count - at), 1), START, device=device)
            drawn = model.generate(
                input_ids=start,
                attention_mask=torch.ones_like(start),
                max_new_tokens=PIXELS,
                min_new_tokens=PIXELS,
                do_sample=True,
                top_k=0,
                pad_token_id=0,
            )
            found.append(drawn[:, 1:].clamp_max(LEVELS - 1).cpu().numpy())
    return np.concatenate(found)


def _share(drawn: np.ndarray, images: Images) -> float:
    from sklearn.svm import SVC

    classifier = SVC(gamma=0.001).fit(images.pixels, images.labels)
    return float(np.mean(classifier.predict(drawn.astype(np.float32)) == images.forget_class))
