"""What equal captions in a batch cost: the losses of CLIP and SigLIP with and without ids, on frozen features.

python -m benchmarks.repeated_captions stamps.parquet --texts MODEL
"""

import copy
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.parquet as pq
import torch
import typer
from torch import Tensor, nn
from torch.nn.functional import normalize

import coulomb
from benchmarks.command import Json, command, progress, show
from benchmarks.timing import describe_machine
from coulomb.ground.errors import InputError
from coulomb.ground.randomness import generator, numpy_generator
from coulomb.losses import InfoNCELoss, LearnableTemperature, SigmoidLoss
from coulomb.metrics.matching import distinct_pairs, pair_retrieval
from coulomb.tables import Columns
from coulomb.tables.cell_split import equal_cells_split
from coulomb.tables.columns import open_columns

BATCH, DIM, LR = 512, 256, 1e-3
KS = (1, 5, 10)
WAYS = ("plain", "left_out", "positive")
SMALL, QUEUE, MOMENTUM = 64, 2048, 0.99  # of the setting with a queue
LANGUAGES = ("en", "de", "fr", "es", "it", "pt", "nl", "sv")  # captions of the same picture
SETTINGS = ("mirrored", "queue", "languages")


def make_loss(name: str, way: str, *, queue: bool) -> InfoNCELoss | SigmoidLoss:
    """Returns the loss of CLIP or of SigLIP, with its learned temperature; ``way``: what equal ids mean."""
    same_id = "left_out" if way == "plain" else way
    if name == "siglip":
        return SigmoidLoss(same_id=same_id)
    temperature = LearnableTemperature(0.07)
    if queue:
        return InfoNCELoss(temperature, in_batch=True, same_id=same_id)
    return InfoNCELoss(temperature, symmetric=True, same_id=same_id)


class Keys:
    """Keys of past batches of both columns with the ids of their rows, by maps that follow the trained ones slowly."""

    def __init__(self, maps: tuple[nn.Linear, nn.Linear]) -> None:
        self.maps = copy.deepcopy(maps)
        self.keys = [torch.empty(0, DIM), torch.empty(0, DIM)]
        self.ids = torch.empty(0, dtype=torch.int64)

    @torch.no_grad()
    def follow(self, maps: tuple[nn.Linear, nn.Linear], features: tuple[Tensor, Tensor], ids: Tensor) -> None:
        """Moves the maps towards the trained ones, and appends the keys of a batch."""
        for own, trained in zip(self.maps, maps, strict=True):
            for mine, other in zip(own.parameters(), trained.parameters(), strict=True):
                mine.lerp_(other, 1 - MOMENTUM)
        self.keys = [
            torch.cat([keys, own(x)])[-QUEUE:] for keys, own, x in zip(self.keys, self.maps, features, strict=True)
        ]
        self.ids = torch.cat([self.ids, ids])[-QUEUE:]


@dataclass(frozen=True)
class Rows:
    """Training rows: features of the pictures as they are and mirrored, of the captions, and ids [N] of what they mean."""

    pictures: Tensor
    mirrored: Tensor | None
    captions: Tensor
    ids: Tensor


def train(
    name: str, data: Rows, way: str, seed: int, updates: tuple[int, ...], *, queue: bool = False
) -> Iterator[tuple[nn.Module, nn.Module]]:
    """Yields linear maps of both towers after each number of ``updates``; ``way``: what ids say, or "plain", without them."""
    draw = generator(seed, "repeated captions")
    torch.manual_seed(seed)
    maps = nn.Linear(data.pictures.shape[1], DIM), nn.Linear(data.captions.shape[1], DIM)
    loss = make_loss(name, way, queue=queue)
    optimizer = torch.optim.AdamW([*maps[0].parameters(), *maps[1].parameters(), *loss.parameters()], lr=LR)
    past = Keys(maps)
    for step in range(max(updates)):
        rows = torch.randperm(len(data.pictures), generator=draw)[: SMALL if queue else BATCH]
        seen = data.pictures[rows]
        if data.mirrored is not None:
            mirror = torch.rand(len(rows), 1, generator=draw) < 0.5
            seen = torch.where(mirror, data.mirrored[rows], seen)
        features, ids = (seen, data.captions[rows]), data.ids[rows]
        first, second = (each(x) for each, x in zip(maps, features, strict=True))
        named: dict[str, Any] = {} if way == "plain" else {"ids": ids}
        if queue:
            known = {} if way == "plain" else {"negative_ids": past.ids}
            there = loss(first, second, negatives=past.keys[1], **named, **known)
            value = (there + loss(second, first, negatives=past.keys[0], **named, **known)) / 2
            past.follow(maps, features, ids)
        else:
            value = loss(first, second, **named)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        if step + 1 in updates:
            yield maps


def training_rows(
    setting: str, share: float, seed: int, rows: np.ndarray, features: dict[str, Tensor], ids: np.ndarray
) -> Rows:
    """Returns the training rows of a setting, see `bench_repeated`."""
    plain, mirrored = features["plain"], features["mirrored"]
    if setting == "languages":
        there = [
            (row, name) for name in LANGUAGES for row in rows.tolist() if not bool(features[name][row].isnan().any())
        ]
        at = torch.tensor([row for row, _ in there])
        captions = torch.stack([features[name][row] for row, name in there])
        return Rows(plain[at], mirrored[at], captions, torch.from_numpy(ids)[at])
    added = numpy_generator(seed, "repeated captions").permutation(rows)[: round(share * len(rows))]
    paired = np.concatenate([rows, added])
    pictures = torch.cat([plain[rows], mirrored[added]])
    return Rows(pictures, None, features["captions"][paired], torch.from_numpy(ids[paired]))


def bench_repeated(
    data: Path,
    encoder: str,
    caption: str,
    loss: str,
    setting: str,
    shares: tuple[float, ...],
    updates: tuple[int, ...],
    seeds: int,
    *,
    test: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Compares the ways on the same splits, batches and beginnings; a fifth of the captions is held out.

    Settings: ``"mirrored"``, batches of 512, in which for a ``share`` of the training rows another row is added with the
    mirrored picture and the same caption, as in scraped data, where a caption has several pictures: plain CLIP repels it from
    all but one of them. ``"queue"``, the same with batches of 64 and 2,048 keys of past batches. ``"languages"``, batches of
    512 of pictures, mirrored at random, with a caption in each of up to 8 languages; searched by ``caption`` alone. Held-out
    rows stay as they are.

    Args:
        test: search the held-out rows, once ``updates`` is chosen; else a quarter of the training rows, left out of training.

    Returns:
        ``{"machine", "loss", "setting", "rows": [{"share", "updates", "equal", "R@1": {way: [mean of both directions, per
        seed]}, …, "mrr": …}]}``; ``equal``: share of the training rows that mean the same as another one.
    """
    table = open_columns(str(data), ["image:image", f"{caption}:text"])
    say("features of the pictures and the captions")
    features = embed(table, data, caption, encoder, LANGUAGES if setting == "languages" else ())
    _, ids = np.unique(np.asarray([table.columns[caption][row] for row in range(len(table))]), return_inverse=True)
    rows = []
    for share in shares:
        found: dict[int, Any] = {
            count: {name: {way: [] for way in WAYS} for name in (*(f"R@{k}" for k in KS), "mrr")} for count in updates
        }
        equal = []
        for seed in range(seeds):
            train_rows, test_rows, _ = equal_cells_split(ids[:, None], 0.2, seed, names=[caption])
            if not test:
                inner, chosen, _ = equal_cells_split(ids[train_rows][:, None], 0.25, seed + 100, names=[caption])
                train_rows, test_rows = train_rows[inner], train_rows[chosen]
            learned = training_rows(setting, share, seed, train_rows, features, ids)
            held = learned.ids.numpy()
            equal.append(float((np.bincount(held)[held] > 1).mean()))
            pairs = distinct_pairs(np.stack([np.arange(len(test_rows)), ids[test_rows]], axis=1))
            tested = features["plain"][test_rows[pairs.first_rows]], features["captions"][test_rows[pairs.second_rows]]
            for way in WAYS:
                say(f"{setting}, {share:.0%} of the captions repeated, seed {seed}: {way}")
                trained = train(loss, learned, way, seed, updates, queue=setting == "queue")
                for count, maps in zip(sorted(updates), trained, strict=True):
                    with torch.no_grad():
                        scores = pair_retrieval(maps[0](tested[0]), maps[1](tested[1]), pairs.correct, KS)["mean"]
                    for k in KS:
                        found[count][f"R@{k}"][way].append(scores["recall_at"][str(k)])
                    found[count]["mrr"][way].append(scores["mrr"])
        rows += [
            {"share": share, "updates": count, "equal": statistics.mean(equal)} | found[count] for count in updates
        ]
    return {"machine": describe_machine(), "loss": loss, "setting": setting, "rows": rows}


def embed(table: Columns, data: Path, caption: str, encoder: str, languages: tuple[str, ...]) -> dict[str, Tensor]:
    """Returns features of unit length of pictures, mirrored ones, ``captions``, and each language, NaN where missing."""
    image_encoder, text_encoder = coulomb.load("lite0"), coulomb.load(encoder)
    pictures = [table.columns["image"].image(row) for row in range(len(table))]
    found = {
        "plain": image_encoder.encode(pictures, show_progress_bar=False),
        "mirrored": image_encoder.encode([each[:, ::-1].copy() for each in pictures], show_progress_bar=False),
        "captions": text_encoder.encode(
            [table.columns[caption][row] for row in range(len(table))], show_progress_bar=False
        ),
    }
    known = {name: normalize(torch.as_tensor(each).float(), dim=1) for name, each in found.items()}
    for name in languages:
        texts = pq.read_table(data, columns=[name]).column(name).to_pylist()
        there = [row for row, text in enumerate(texts) if text]
        rows = torch.full_like(known["captions"], float("nan"))
        encoded = text_encoder.encode([texts[row] for row in there], show_progress_bar=False)
        rows[there] = normalize(torch.as_tensor(encoded).float(), dim=1)
        known[name] = rows
    return known


def render(result: dict[str, Any]) -> str:
    """Returns the result of `bench_repeated` as text: means, and gains over plain with the standard error over seeds."""
    lines = [f"loss of {result['loss']}, {result['setting']}, linear maps; means of both directions"]
    for row in result["rows"]:
        lines.append(
            f"{row['updates']} updates, {row['share']:.0%} of the rows repeated; {row['equal']:.0%} of the training rows "
            "mean the same as another"
        )
        for name in (*(f"R@{k}" for k in KS), "mrr"):
            plain = row[name]["plain"]
            cells = [f"plain {statistics.mean(plain):.3f}"]
            for way in WAYS[1:]:
                gains = [here - there for here, there in zip(row[name][way], plain, strict=True)]
                error = statistics.stdev(gains) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
                cells.append(
                    f"{way} {statistics.mean(row[name][way]):.3f} ({statistics.mean(gains):+.3f} ± {error:.3f})"
                )
            lines.append(f"  {name:5}" + "   ".join(cells))
    return "\n".join(lines)


def main(
    data: Annotated[Path, typer.Argument(help="a Parquet file with pictures and captions")],
    texts: Annotated[str, typer.Option(help="encoder of the captions, such as a local folder", show_default=False)],
    caption: Annotated[str, typer.Option(help="column of the captions")] = "en",
    share: Annotated[
        list[float] | None, typer.Option(help="of rows that are repeated, mirrored; may be given again")
    ] = None,
    loss: Annotated[str, typer.Option(help="clip or siglip")] = "clip",
    setting: Annotated[str, typer.Option(help="mirrored, queue (clip only) or languages")] = "mirrored",
    updates: Annotated[list[int] | None, typer.Option(help="number of updates; may be given again", min=1)] = None,
    test: Annotated[bool, typer.Option(help="search the held-out rows instead of a part of the training rows")] = False,
    seeds: Annotated[int, typer.Option(help="splits", min=1)] = 5,
    as_json: Json = False,
) -> None:
    """Train with captions that several pictures have, with and without ids."""
    if any(not 0 <= each < 1 for each in share or ()):
        raise InputError(f"share={share}: must be at least 0 and below 1")
    if loss not in ("clip", "siglip"):
        raise InputError(f"loss={loss!r}: must be clip or siglip")
    if setting not in SETTINGS or (setting == "queue" and loss != "clip"):
        raise InputError(f"setting={setting!r}: must be {' or '.join(SETTINGS)}, and of queue loss='clip'")
    shares = tuple(share or ((0.0,) if setting == "languages" else (0.0, 0.2)))
    counts = tuple(sorted(set(updates or (25, 50, 100, 200, 400))))
    with progress(quiet=as_json) as doing:
        result = bench_repeated(data, texts, caption, loss, setting, shares, counts, seeds, test=test, say=doing)
    show(result, as_json, render)


if __name__ == "__main__":
    command(main, "stamps.parquet --texts MODEL", "stamps.parquet --texts MODEL --setting queue --updates 100 --test")
