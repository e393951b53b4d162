"""Diagnosis of a run: evidence from its folder and images, and the verdicts written into it."""

import dataclasses
import hashlib
from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coulomb.evaluation.doctor import Evidence, diagnose
from coulomb.evaluation.examine_network import network_figures
from coulomb.ground.files import write_json
from coulomb.ground.randomness import numpy_generator
from coulomb.ground.reading import read_lines
from coulomb.kinds.image.views import ViewMaker
from coulomb.metrics.nearest import nearest_by_cosine
from coulomb.training.plan.config import load_config
from coulomb.training.plan.given import Given
from coulomb.training.plan.plan import Part, Plan, Prepared
from coulomb.training.plan.resolve import AnyPlan, reopen_run
from coulomb.training.record.folder import RunFolder, read_data, read_evaluation
from coulomb.training.record.journal import read_metrics

SMALL = 8  # pixels per side of the small pictures in which candidates are searched
# Correlations of the small pictures and of the full ones above which images are copies.
SMALL_CORRELATION, CORRELATION = 0.998, 0.98
QUERIES = 2_000  # images for which a near-copy is searched
BANK = 50_000  # training images that are searched
STREAMED = 50_000, 10_000  # largest number of training and test images to read if they are not in memory
FLAT = 2 / 255  # standard deviation of a blank image; blank images are only compared exactly


def examine(
    folder: RunFolder,
    plan: AnyPlan | None = None,
    given: Given | None = None,
    *,
    quick: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Diagnoses a run, writes ``doctor.json``, and returns its content; see `coulomb.evaluation.doctor.diagnose.diagnose`.

    Args:
        folder: the run; it may still be training, or have stopped.
        plan: the run's plan with its images decoded; default: reopened from its folder.
        given: objects that the run was trained with, to reopen it.
        quick: use only the files of the folder, neither images nor checkpoint; rules that need these return "unknown".
        progress: show progress bars.

    Raises:
        InputError: the folder is not a run, or its data has changed.
    """
    folder.require()
    result = diagnose(collect_evidence(folder, plan, given or Given({}), quick=quick, progress=progress))
    write_json(folder.doctor, result)
    return result


def collect_evidence(
    folder: RunFolder, plan: AnyPlan | None, given: Given, *, quick: bool, progress: bool = True
) -> Evidence:
    """Returns everything that the rules may use; arguments as in `examine`."""
    data = read_data(folder)
    network: dict[str, Any] = {}
    if quick:
        config = load_config(folder.config)
        method = None if given.method is None else given.find_method(config)
    else:
        plan = plan or reopen_run(folder, given, progress=progress)
        config, method = plan.config, plan.method
        if isinstance(plan, Plan):
            prepared = plan.prepared
            data = data | {"train": len(prepared.train.indices), "class_counts": prepared.class_counts}
            data |= count_copies(prepared, plan.views, config.seed)
            network = network_figures(plan, folder)
    return Evidence(
        config=dataclasses.asdict(config),
        metrics=read_metrics(folder.metrics),
        evaluation=read_evaluation(folder) if folder.evaluation.exists() else None,
        data=data,
        network=network,
        failed=read_failure(folder),
        needs_labels=None if method is None else bool(getattr(method, "needs_labels", False)),
    )


def read_failure(folder: RunFolder) -> str | None:
    """Returns the message of ``train.log`` if the last training ended with NaN or infinite values, else None."""
    if not folder.log.exists():
        return None
    failure = None
    for line in (content.decode("utf-8", errors="replace").rstrip("\r\n") for content in read_lines(folder.log)):
        if "stopped: NonFiniteError" in line:
            failure = line.partition("NonFiniteError: ")[2].partition(". ")[0]
        elif " INFO trained " in line:
            failure = None
    return failure


def count_copies(prepared: Prepared, views: ViewMaker, seed: int) -> dict[str, Any]:
    """Counts copies of images in their plain views: ``{"copies": {"images", "exact", "near", "blank"}, "leaks": {...}}``.

    ``copies`` counts training images, ``leaks`` test images with a copy in the training part. ``exact``: copies with the
    same pixels (of a group, all but the first). ``blank``: images with a standard deviation below 2/255. ``near``: other
    images nearly identical to a training image, that is with a correlation above .98, which ignores brightness and
    contrast; searched for at most 2,000 images among at most 50,000 training images, and extrapolated. Images that do
    not fit into memory are sampled, and copies are searched within the sample, so that the counts are lower bounds.
    """
    parts = [
        part if part.images.cached else part.sample(most, seed, "doctor copies")
        for part, most in zip((prepared.train, prepared.test), STREAMED, strict=True)
    ]
    train, test = (_Pictures(part, views) for part in parts)
    hashes = Counter(train.hashes)
    repeated = np.array([hashes[each] > 1 for each in train.hashes], dtype=bool)
    leaked = np.array([each in hashes for each in test.hashes], dtype=bool)
    bank = _sample(np.arange(len(train.hashes)), BANK, seed)
    pairs = _count_near(train, _sample(np.flatnonzero(~repeated), QUERIES, seed), train, bank)
    copies = {"images": len(train.hashes), "exact": len(train.hashes) - len(hashes), "blank": train.blank}
    copies["near"] = round(pairs / 2)  # one image of each pair is the copy
    leaks = {"images": len(test.hashes), "exact": int(leaked.sum())}
    leaks["near"] = round(_count_near(test, _sample(np.flatnonzero(~leaked), QUERIES, seed), train, bank))
    return {"copies": copies, "leaks": leaks}


class _Pictures:
    """Plain views of a part: their hashes, and small pictures of unit length to search in."""

    def __init__(self, part: Part, views: ViewMaker):
        self.part, self.views = part, views
        self.hashes: list[bytes] = []
        self.indices: list[int] = []
        self.blank = 0
        small = []
        for batch in part.images.batches(part.indices, 256, part.images.readers):
            plain = views.plain(batch.stack)
            for row in (plain * 255).round().to(torch.uint8).numpy():
                self.hashes.append(hashlib.blake2b(row.tobytes(), digest_size=16).digest())
            self.indices += batch.sample.tolist()
            self.blank += int((plain.flatten(1).float().std(1) < FLAT).sum())
            small.append(_standardize(functional.adaptive_avg_pool2d(plain.float(), SMALL)))
        self.small = torch.cat(small) if small else torch.empty(0, SMALL**2)

    def full(self, positions: np.ndarray) -> Tensor:
        """Returns the standardized pictures at full size."""
        batches = self.part.images.batches(np.asarray(self.indices)[positions], 256)
        return torch.cat([_standardize(self.views.plain(each.stack).float()) for each in batches])


def _standardize(pictures: Tensor) -> Tensor:
    """Flattened pictures with mean 0 and length 1; zeros for flat pictures."""
    rows = pictures.flatten(1)
    rows = rows - rows.mean(1, keepdim=True)
    norms = rows.norm(dim=1, keepdim=True)
    flat = norms < FLAT * rows.shape[1] ** 0.5
    return torch.where(flat, torch.zeros_like(rows), rows / norms.clamp_min(1e-12))


def _count_near(queries: _Pictures, rows: np.ndarray, among: _Pictures, bank: np.ndarray) -> float:
    """How many of all ``queries`` have a near-copy in the bank, extrapolated from the share among ``rows``."""
    if not len(rows) or not len(bank):
        return 0.0
    best, best_column = [], []
    k = min(2 if queries is among else 1, len(bank))  # the nearest may be the image itself
    for block, cosines, columns in nearest_by_cosine(queries.small[rows], among.small[bank], k):
        if queries is among:
            cosines.masked_fill_(torch.from_numpy(bank)[columns] == torch.from_numpy(rows[block])[:, None], -1)
        top = cosines.max(1)
        best.append(top.values)
        best_column.append(columns.gather(1, top.indices[:, None])[:, 0])
    candidates = torch.cat(best) > SMALL_CORRELATION
    if not bool(candidates.any()):
        return 0.0
    partners = bank[torch.cat(best_column)[candidates].numpy()]
    confirmed = (queries.full(rows[candidates.numpy()]) * among.full(partners)).sum(1) > CORRELATION
    total = len(queries.hashes) if len(rows) == QUERIES else len(rows)
    return float(confirmed.sum()) / len(rows) * total


def _sample(positions: np.ndarray, most: int, seed: int) -> np.ndarray:
    if len(positions) <= most:
        return positions
    return np.sort(numpy_generator(seed, "doctor copies").choice(positions, most, replace=False))
