"""The two auxiliaries: fine-tuned from one small base by one recipe, so that only the data tell them apart."""

from __future__ import annotations

import copy
import hashlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from icml26.errors import InputError
from icml26.fingerprints import fingerprint

from icml26_plugin_divergence_decoding.calling import call
from icml26_plugin_divergence_decoding.encoding import IGNORED, Encoded, collate
from icml26_plugin_divergence_decoding.ngram import BACKOFF, NGramModel
from icml26_plugin_divergence_decoding.trainer import Log, Training, fine_tune

Pairing = Literal["full_vs_retain", "forget_vs_retain"]


class Auxiliaries(NamedTuple):
    """``forget`` (p) saw what is to be forgotten, ``retain`` (q) did not."""

    forget: Any
    retain: Any


@dataclass(frozen=True)
class AuxiliaryData:
    """Sequences to be forgotten, to be kept, and of what was known before, which both auxiliaries are trained on."""

    forget: Sequence[Encoded]
    retain: Sequence[Encoded]
    background: Sequence[Encoded] = ()

    def of(self, pairing: Pairing) -> tuple[list[Encoded], list[Encoded]]:
        """What p and q are trained on.

        "full_vs_retain": everything against what is kept (TOFU). "forget_vs_retain": what is to be forgotten against
        as many tokens, about, of what is kept (MUSE).
        """
        if not self.forget or not self.retain:
            raise InputError("Auxiliaries need rows to be forgotten and rows to be kept.")
        if pairing == "full_vs_retain":
            return [*self.forget, *self.retain, *self.background], [*self.retain, *self.background]
        kept = _of_like_size(self.retain, sum(len(s.ids) for s in self.forget))
        return [*self.forget, *self.background], [*kept, *self.background]


def _of_like_size(rows: Sequence[Encoded], tokens: int) -> list[Encoded]:
    """Rows spread evenly over ``rows`` that have about ``tokens`` tokens together, all when there are fewer."""
    total = sum(len(s.ids) for s in rows)
    count = max(1, min(len(rows), round(len(rows) * tokens / total)))
    return [rows[i * len(rows) // count] for i in range(count)]


def coupled(larger: Sequence[Encoded], smaller: Sequence[Encoded]) -> tuple[list[list[Encoded]], list[list[Encoded]]]:
    """Two data sets as equally many groups, so that one seed brings what they share in the same steps.

    Group i of both holds row i of ``smaller``; what ``larger`` has beyond it is spread evenly over its groups. Raises
    InputError when ``larger`` does not hold ``smaller``.
    """
    extra = list(larger)
    for row in smaller:
        if row not in extra:
            raise InputError("Coupled training needs a forget auxiliary that is trained on all that the other one is.")
        extra.remove(row)
    groups = [[row] for row in smaller]
    for i, row in enumerate(extra):
        groups[i * len(groups) // len(extra) if len(extra) <= len(groups) else i % len(groups)].append(row)
    return groups, [[row] for row in smaller]


def train_auxiliaries(
    base: Any,
    data: AuxiliaryData,
    pairing: Pairing,
    training: Training,
    *,
    couple: bool = False,
    seed: int,
    pad: int = 0,
    device: str = "cpu",
    log: Log | None = None,
) -> Auxiliaries:
    """Copies of ``base``, trained by one recipe and seed; ``base`` stays as it is.

    With ``couple`` both take as many steps, and see what their data share in the same ones: less of their difference is
    chance. It needs the pairing "full_vs_retain".
    """
    trained = []
    sets: tuple[list[Any], list[Any]] = data.of(pairing)
    if couple:
        sets = coupled(*sets)
    for name, rows in zip(("forget", "retain"), sets, strict=True):
        model = copy.deepcopy(base)
        kept = training.checkpoints
        recipe = training if kept is None else replace(training, checkpoints=kept / name)
        fine_tune(model, rows, recipe, seed=seed, pad=pad, device=device, log=log, label=f"{name}-auxiliary-loss")
        trained.append(model)
    return Auxiliaries(*trained)


def count_auxiliaries(data: AuxiliaryData, pairing: Pairing, vocab_size: int, backoff: float = BACKOFF) -> Auxiliaries:
    """Trigram models in place of networks."""
    forget, retain = data.of(pairing)
    return Auxiliaries(*(NGramModel.count([s.ids for s in rows], vocab_size, backoff) for rows in (forget, retain)))


def auxiliaries_key(
    base: Any,
    data: AuxiliaryData,
    pairing: Pairing,
    training: Training,
    *,
    couple: bool = False,
    seed: int,
    device: str,
) -> str:
    """What decides trained auxiliaries: base, sequences, recipe, seed, device kind, libraries, and this code."""
    import transformers

    here = Path(__file__).parent
    code = [(here / name).read_bytes() for name in ("auxiliaries.py", "trainer.py", "encoding.py")]
    recipe = asdict(replace(training, checkpoints=None))
    parts = (base, [list(map(tuple, rows)) for rows in data.of(pairing)], pairing, recipe, couple, seed, device)
    versions = (torch.__version__, transformers.__version__)
    return hashlib.sha256(fingerprint((parts, versions, code)).encode()).hexdigest()


def trained_once(
    key: str, build: Callable[[], Auxiliaries], cached: Callable[[str, str, Callable[[Path], None]], Path]
) -> Auxiliaries:
    """The auxiliaries of ``key``, built when the cache does not hold them yet; always read back from it.

    Runs that differ only in how they combine the same auxiliaries (a sweep of alpha) then train them once. The key holds
    all that decides them, so that a run gets what it would have trained itself.
    """
    from icml26_plugin_divergence_decoding.storage import load_model, save_model

    def fill(folder: Path) -> None:
        built = build()
        for name, model in built._asdict().items():
            (folder / name).mkdir()
            save_model(model, folder / name)

    folder = cached(key, "auxiliaries", fill)
    return Auxiliaries(load_model(folder / "forget"), load_model(folder / "retain"))


@torch.no_grad()
def mean_loss(model: Any, sequences: Sequence[Encoded], *, pad: int = 0, batch_size: int = 32) -> float:
    """Mean next-token loss (nats) of a model on the answers of ``sequences``."""
    total, count = 0.0, 0
    device = str(next(iter(model.state_dict().values())).device)
    for at in range(0, len(sequences), batch_size):
        batch = collate(sequences[at : at + batch_size], pad=pad, device=device)
        logits = call(model, batch.ids, batch.mask).logits[:, :-1].float()
        targets = batch.labels[:, 1:]
        total += float(
            torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), targets.flatten(), ignore_index=IGNORED, reduction="sum"
            )
        )
        count += int((targets != IGNORED).sum())
    return total / max(1, count)


def warn_if_swapped(auxiliaries: Auxiliaries, forget: Sequence[Encoded], *, pad: int = 0) -> bool:
    """Warn, and return True, when p knows what is to be forgotten less well than q does.

    An n-gram model's scores are no logits, but more of the right score is a lower loss with them, too.
    """
    losses = [mean_loss(model, forget, pad=pad) for model in auxiliaries]
    if losses[0] <= losses[1]:
        return False
    warnings.warn(
        f"The forget auxiliary has a higher loss on what is to be forgotten ({losses[0]:.3g}) than the retain auxiliary "
        f"({losses[1]:.3g}): the two look swapped, or the first was trained too little.",
        stacklevel=2,
    )
    return True
