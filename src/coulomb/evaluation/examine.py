"""Evidence for the doctor: what a run folder and its images show."""

import dataclasses
import hashlib
import logging
from collections import Counter
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from coulomb.data.views import ViewMaker
from coulomb.doctor import Evidence, diagnose
from coulomb.evaluation.examine_network import network_figures
from coulomb.metrics.cosines import nearest
from coulomb.randomness import numpy_generator
from coulomb.reading import read_lines
from coulomb.runs.config import load_config
from coulomb.runs.folder import RunFolder, read_data, read_evaluation, write_json
from coulomb.runs.journal import read_metrics
from coulomb.runs.objects import Objects
from coulomb.runs.prepare import Part, Prepared
from coulomb.training.launch import reopen

log = logging.getLogger("coulomb")


def examine(
    folder: RunFolder,
    prepared: Prepared | None = None,
    objects: Objects | None = None,
    *,
    quick: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Judge a run, write ``doctor.json``, and return its content; see `coulomb.doctor.diagnose.diagnose`.

    Args:
        folder: the run; it may still be training, or have stopped.
        prepared: the run's data, when at hand; else opened again as ``config.yaml`` says.
        objects: what the run was handed over in Python, if anything.
        quick: from the files of the folder alone: neither images nor checkpoint are opened, and the rules that need them
            answer "unknown".
        progress: show what goes on.

    Raises:
        InputError: the folder is no run, or its data changed.
    """
    folder.require()
    result = diagnose(evidence_of(folder, prepared, objects or Objects(), quick=quick, progress=progress))
    write_json(folder.doctor, result)
    return result


def evidence_of(
    folder: RunFolder, prepared: Prepared | None, objects: Objects, *, quick: bool, progress: bool = True
) -> Evidence:
    """All that rules may look at."""
    config = load_config(folder.config)
    data = read_data(folder)
    network: dict[str, Any] = {}
    method = None if quick and objects.method is None else objects.method_of(config)
    if not quick:
        if prepared is None:
            config, prepared = reopen(folder, objects, progress=progress)
        views = objects.views_of(config, prepared.facts.image_size, prepared.facts.channels)
        data = data | {"train": len(prepared.train.indices), "class_counts": prepared.class_counts}
        data |= copies(prepared, views, config.seed)
        network = network_figures(config, folder, prepared, objects, views)
    return Evidence(
        config=dataclasses.asdict(config),
        metrics=read_metrics(folder.metrics),
        evaluation=read_evaluation(folder) if folder.evaluation.exists() else None,
        data=data,
        network=network,
        failed=stopped_by(folder),
        needs_labels=None if method is None else bool(getattr(method, "needs_labels", False)),
    )


def stopped_by(folder: RunFolder) -> str | None:
    """What ended the training, if its last word in ``train.log`` is of NaN or infinite values."""
    if not folder.log.exists():
        return None
    told = None
    for line in (content.decode("utf-8", errors="replace").rstrip("\r\n") for content in read_lines(folder.log)):
        if "stopped: NonFiniteError" in line:
            told = line.partition("NonFiniteError: ")[2].partition(". ")[0]
        elif " INFO trained " in line:
            told = None
    return told


SMALL = 8  # pixels a side in which candidates are searched
ALIKE, SAME = 0.998, 0.98  # correlation of the small pictures and of the pictures themselves: nearly identical
ASKED = 2_000  # images for which a nearly identical one is searched
AMONG = 50_000  # training images that are searched
STREAMED = 50_000, 10_000  # training and test images that are read at most where they are not in memory
FLAT = 2 / 255  # standard deviation of an image with nothing in it: compared exactly alone


def copies(prepared: Prepared, views: ViewMaker, seed: int) -> dict[str, Any]:
    """``{"copies": {"images", "exact", "near", "blank"}, "leaks": {...}}``, of pictures as the network sees them,
    without augmentation.

    ``exact``: how many of the images are copies (beyond the first of each group), or are in the training part too, with the
    same pixels. ``blank``: how many have nothing in them, that is a standard deviation below 2/255. ``near``: how many further
    ones are nearly identical to a training image: correlation above .98, up to
    brightness and contrast; looked for among at most 50,000 training images for at most 2,000, and scaled up. Images that
    do not fit into memory are sampled: copies are then found of the sample, within the sample, so that these are lower bounds.
    """
    parts = [
        part if part.images.cached else part.sample(most, seed, "doctor copies")
        for part, most in zip((prepared.train, prepared.test), STREAMED, strict=True)
    ]
    train, test = (_Pictures(part, views) for part in parts)
    known = Counter(train.hashes)
    repeated = np.array([known[each] > 1 for each in train.hashes], dtype=bool)
    leaked = np.array([each in known for each in test.hashes], dtype=bool)
    bank = _sampled(np.arange(len(train.hashes)), AMONG, seed)
    pairs = _near(train, _sampled(np.flatnonzero(~repeated), ASKED, seed), train, bank, seed)
    found = {"images": len(train.hashes), "exact": len(train.hashes) - len(known), "blank": train.blank}
    leaks = {"images": len(test.hashes), "exact": int(leaked.sum())}
    leaks["near"] = round(_near(test, _sampled(np.flatnonzero(~leaked), ASKED, seed), train, bank, seed))
    # Of a pair of nearly identical images one is the copy.
    return {"copies": found | {"near": round(pairs / 2)}, "leaks": leaks}


class _Pictures:
    """Plain views of a part: their hashes, and small pictures of unit length to search in."""

    def __init__(self, part: Part, views: ViewMaker):
        self.part, self.views = part, views
        self.hashes: list[bytes] = []
        self.kept: list[int] = []
        small, blank = [], 0
        for batch in part.images.batches(part.indices, 256, 0 if part.images.cached else part.images.workers):
            seen = views.plain(batch["image"], batch["aspect"])
            for row in (seen * 255).round().to(torch.uint8).numpy():
                self.hashes.append(hashlib.blake2b(row.tobytes(), digest_size=16).digest())
            self.kept += batch["index"].tolist()
            blank += int((seen.flatten(1).float().std(1) < FLAT).sum())
            small.append(_centred(functional.adaptive_avg_pool2d(seen.float(), SMALL)))
        self.blank = blank
        self.small = torch.cat(small) if small else torch.empty(0, SMALL**2)

    def pictures(self, positions: np.ndarray) -> Tensor:
        """Pictures at full size, centred, of unit length."""
        chosen = np.asarray(self.kept)[positions]
        found = [
            _centred(self.views.plain(batch["image"], batch["aspect"]).float())
            for batch in self.part.images.batches(chosen, 256)
        ]
        return torch.cat(found)


def _centred(pictures: Tensor) -> Tensor:
    """Rows of mean 0 and length 1; zeros where a picture is flat."""
    rows = pictures.flatten(1)
    rows = rows - rows.mean(1, keepdim=True)
    norms = rows.norm(dim=1, keepdim=True)
    flat = norms < FLAT * rows.shape[1] ** 0.5
    return torch.where(flat, torch.zeros_like(rows), rows / norms.clamp_min(1e-12))


def _near(asked: _Pictures, rows: np.ndarray, among: _Pictures, bank: np.ndarray, seed: int) -> float:
    """How many of all images of ``asked`` have a nearly identical one in the bank, from the share among ``rows``."""
    if not len(rows) or not len(bank):
        return 0.0
    best, where = [], []
    two = min(2 if asked is among else 1, len(bank))  # the nearest may be the image itself
    for block, cosines, columns in nearest(asked.small[rows], among.small[bank], two):
        if asked is among:
            cosines.masked_fill_(torch.from_numpy(bank)[columns] == torch.from_numpy(rows[block])[:, None], -1)
        top = cosines.max(1)
        best.append(top.values)
        where.append(columns.gather(1, top.indices[:, None])[:, 0])
    alike = torch.cat(best) > ALIKE
    if not bool(alike.any()):
        return 0.0
    partners = bank[torch.cat(where)[alike].numpy()]
    exactly = (asked.pictures(rows[alike.numpy()]) * among.pictures(partners)).sum(1) > SAME
    total = len(asked.hashes) if len(rows) == ASKED else len(rows)
    return float(exactly.sum()) / len(rows) * total


def _sampled(positions: np.ndarray, most: int, seed: int) -> np.ndarray:
    if len(positions) <= most:
        return positions
    return np.sort(numpy_generator(seed, "doctor copies").choice(positions, most, replace=False))
