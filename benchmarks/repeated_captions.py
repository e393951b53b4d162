"""What equal captions in a batch cost: the losses of CLIP and SigLIP with and without ids, on frozen features.

python -m benchmarks.repeated_captions stamps.parquet --texts MODEL
"""

import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
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
from coulomb.tables.cell_split import equal_cells_split
from coulomb.tables.columns import open_columns

STEPS, BATCH, DIM, LR = 400, 512, 256, 1e-3
KS = (1, 5, 10)
WAYS = ("plain", "left_out", "positive")


def make_loss(name: str, way: str) -> InfoNCELoss | SigmoidLoss:
    """Returns the loss of CLIP or of SigLIP, with its learned temperature; ``way``: what equal ids mean."""
    same_id = "left_out" if way == "plain" else way
    if name == "siglip":
        return SigmoidLoss(same_id=same_id)
    return InfoNCELoss(LearnableTemperature(0.07), symmetric=True, same_id=same_id)


def train(
    name: str, pictures: Tensor, captions: Tensor, ids: Tensor, way: str, seed: int
) -> tuple[nn.Module, nn.Module]:
    """Returns linear maps of both towers after `STEPS` updates; ``way``: what ids say, or "plain", without them."""
    draw = generator(seed, "repeated captions")
    torch.manual_seed(seed)
    maps = nn.Linear(pictures.shape[1], DIM), nn.Linear(captions.shape[1], DIM)
    loss = make_loss(name, way)
    optimizer = torch.optim.AdamW([*maps[0].parameters(), *maps[1].parameters(), *loss.parameters()], lr=LR)
    for _ in range(STEPS):
        rows = torch.randperm(len(pictures), generator=draw)[:BATCH]
        value = loss(maps[0](pictures[rows]), maps[1](captions[rows]), ids=None if way == "plain" else ids[rows])
        assert isinstance(value, Tensor)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    return maps


def bench_repeated(
    data: Path, encoder: str, caption: str, loss: str, shares: tuple[float, ...], seeds: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Compares the ways on the same splits, batches and beginnings; a fifth of the captions is held out.

    For a ``share`` of the training rows another row is added with the mirrored picture and the same caption, as in scraped
    data, where a caption has several pictures. Plain CLIP repels it from all but one of them. Held-out rows stay as they are.

    Returns:
        ``{"machine", "loss", "rows": [{"share", "equal", "R@1": {way: [mean of both directions, per seed]}, …}]}``;
        ``equal``: share of the training rows whose caption another training row has.
    """
    table = open_columns(str(data), ["image:image", f"{caption}:text"])
    say("features of the pictures and the captions")
    texts_of = [table.columns[caption][row] for row in range(len(table))]
    pictures = [table.columns["image"].image(row) for row in range(len(table))]
    image_encoder, text_encoder = coulomb.load("lite0"), coulomb.load(encoder)
    seen = [
        image_encoder.encode(each, show_progress_bar=False)
        for each in (pictures, [each[:, ::-1].copy() for each in pictures])
    ]
    plain, mirrored, words = (
        normalize(torch.as_tensor(each).float(), dim=1)
        for each in (*seen, text_encoder.encode(texts_of, show_progress_bar=False))
    )
    _, ids = np.unique(np.asarray(texts_of), return_inverse=True)
    rows = []
    for share in shares:
        found: dict[str, dict[str, list[float]]] = {f"R@{k}": {way: [] for way in WAYS} for k in KS}
        equal = []
        for seed in range(seeds):
            train_rows, test_rows, _ = equal_cells_split(ids[:, None], 0.2, seed, names=[caption])
            added = numpy_generator(seed, "repeated captions").permutation(train_rows)[: round(share * len(train_rows))]
            captions = np.concatenate([train_rows, added])
            first, second = torch.cat([plain[train_rows], mirrored[added]]), words[captions]
            held = ids[captions]
            equal.append(float((np.bincount(held)[held] > 1).mean()))
            pairs = distinct_pairs(np.stack([np.arange(len(test_rows)), ids[test_rows]], axis=1))
            for way in WAYS:
                say(f"{share:.0%} of the captions repeated, seed {seed}: {way}")
                maps = train(loss, first, second, torch.from_numpy(held), way, seed)
                with torch.no_grad():
                    tested = (plain[test_rows[pairs.first_rows]], words[test_rows[pairs.second_rows]])
                    scores = pair_retrieval(maps[0](tested[0]), maps[1](tested[1]), pairs.correct, KS)
                for k in KS:
                    found[f"R@{k}"][way].append(scores["mean"]["recall_at"][str(k)])
        rows.append({"share": share, "equal": statistics.mean(equal)} | found)
    return {"machine": describe_machine(), "loss": loss, "rows": rows}


def render(result: dict[str, Any]) -> str:
    """Returns the result of `bench_repeated` as text: means, and gains over plain with the standard error over seeds."""
    lines = [
        f"loss of {result['loss']}, {STEPS} updates of linear maps, batches of {BATCH}; R@k is the mean of both directions"
    ]
    for row in result["rows"]:
        lines.append(
            f"{row['share']:.0%} of the rows repeated, mirrored; {row['equal']:.0%} of the training rows share their caption"
        )
        for name in (f"R@{k}" for k in KS):
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
    seeds: Annotated[int, typer.Option(help="splits", min=1)] = 5,
    as_json: Json = False,
) -> None:
    """Train with captions that several pictures have, with and without ids."""
    if any(not 0 <= each < 1 for each in share or ()):
        raise InputError(f"share={share}: must be at least 0 and below 1")
    if loss not in ("clip", "siglip"):
        raise InputError(f"loss={loss!r}: must be clip or siglip")
    with progress(quiet=as_json) as doing:
        result = bench_repeated(data, texts, caption, loss, tuple(share or (0.0, 0.2)), seeds, doing)
    show(result, as_json, render)


if __name__ == "__main__":
    command(main, "stamps.parquet --texts MODEL", "stamps.parquet --texts MODEL --share 0.2 --seeds 10")
