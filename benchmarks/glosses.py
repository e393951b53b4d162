"""Terms and their definitions: encoders trained on pairs by coulomb and sentence-transformers, or on definitions alone.

python -m benchmarks.glosses glosses.parquet
"""

import contextlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow.parquet as pq
import torch
import typer
from torch import nn

import coulomb
from benchmarks.command import Json, command, progress, show
from benchmarks.contenders import UnavailableError, loaded
from benchmarks.timing import describe_machine
from coulomb.ground.errors import InputError
from coulomb.ground.randomness import numpy_generator
from coulomb.metrics.inputs import labeled_split
from coulomb.metrics.knn import default_neighbors, knn_predict
from coulomb.metrics.matching import distinct_pairs, match_ranks, pair_retrieval
from coulomb.models.build_text import build_text_encoder
from coulomb.tables.cell_split import equal_cells_split, joint_ids, split_rows
from coulomb.tables.columns import open_columns

COLUMNS = ("term", "gloss")
TOPIC = "topic"
HELD_OUT = 5000
SIGMA = 0.1  # of kNN
TRAINING = (
    "import sys; from benchmarks.glosses import print_training; print_training(sys.argv[1])"  # of a fresh process
)
# The first two were chosen by the validation part, the scale is their default.
THEIRS = {"batch_size": 1024, "lr": 0.03, "scale": 20.0}


def write_parts(data: Path, folder: Path, most: int | None = None) -> dict[str, Path]:
    """Writes ``train``, ``validation``, ``all`` and ``test`` as Parquet files: no term and no definition is in two of them.

    ``all`` is both of the training and the validation part; ``most``: rows of each of ``train`` and ``all``, drawn at random.
    """
    table = open_columns(str(data), list(COLUMNS))
    rest, test, _ = split_rows(table, HELD_OUT / len(table), seed=0)
    ids = joint_ids([table], COLUMNS)[0]
    alike = [table.kinds[name] for name in COLUMNS]
    inner, chosen, _ = equal_cells_split(ids[rest], HELD_OUT / len(rest), 1, names=COLUMNS, alike=alike)
    whole = pq.read_table(data, columns=[*COLUMNS, *({TOPIC} & set(pq.read_schema(data).names))])
    if len(whole) != len(table):
        raise InputError(f"data={str(data)!r}: {len(whole) - len(table)} rows lack a term or a gloss; leave them out")
    parts = {"train": rest[inner], "validation": rest[chosen], "all": rest, "test": test}
    for name in ("train", "all") if most is not None else ():
        drawn = numpy_generator(0, "rows of glosses").permutation(len(parts[name]))[:most]
        parts[name] = parts[name][np.sort(drawn)]
    paths = {name: folder / f"{name}.parquet" for name in parts}
    for name, rows in parts.items():
        pq.write_table(whole.take(rows), paths[name])
    return paths


def train_coulomb(task: dict[str, Any], folder: Path) -> Callable[[list[str]], torch.Tensor]:
    """Trains with coulomb's defaults for ``task["epochs"]`` epochs; other entries of ``options`` replace them."""
    options = task["options"] | {"epochs": task["epochs"]}
    run = coulomb.train(
        task["train"], test=task["held_out"], columns=",".join(COLUMNS), encoder=task["encoder"], out=str(folder / "run"),
        evaluate=False, progress=False, knn_every=0, **options,
    )  # fmt: skip
    return lambda texts: torch.as_tensor(run.encode(texts, convert_to_numpy=False, show_progress_bar=False))


def train_simcse(task: dict[str, Any], folder: Path) -> Callable[[list[str]], torch.Tensor]:
    """Trains on two views of each definition alone, by dropout (SimCSE); no term and no topic is seen."""
    options = task["options"] | {"epochs": task["epochs"]}
    run = coulomb.train(
        task["train"], test=task["held_out"], columns=COLUMNS[1], labels="none", encoder=task["encoder"],
        out=str(folder / "run"), evaluate=False, progress=False, knn_every=0, **options,
    )  # fmt: skip
    return lambda texts: torch.as_tensor(run.encode(texts, convert_to_numpy=False, show_progress_bar=False))


def train_sentence_transformers(task: dict[str, Any], folder: Path) -> Callable[[list[str]], torch.Tensor]:
    """Trains their StaticEmbedding, from the same token vectors, with their loss and trainer."""
    package = loaded("sentence_transformers", "sentence-transformers")
    modules = loaded("sentence_transformers.sentence_transformer.modules", "sentence-transformers")
    losses = loaded("sentence_transformers.sentence_transformer.losses", "sentence-transformers")
    import datasets

    start = build_text_encoder("static")
    vectors = start.backbone.vectors
    assert isinstance(vectors, nn.EmbeddingBag)
    static = modules.StaticEmbedding(start.tokenizer, embedding_weights=vectors.weight.detach().clone())
    model = package.SentenceTransformer(modules=[static], device="cpu")
    options = THEIRS | task["options"]
    arguments = package.SentenceTransformerTrainingArguments(
        output_dir=str(folder / "run"),
        num_train_epochs=task["epochs"],
        per_device_train_batch_size=int(options["batch_size"]),
        learning_rate=options["lr"],
        warmup_ratio=0.1,
        batch_sampler=options.get("batch_sampler", "batch_sampler"),
        use_cpu=True,
        save_strategy="no",
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
    )
    package.SentenceTransformerTrainer(
        model=model,
        args=arguments,
        train_dataset=datasets.Dataset.from_parquet(task["train"], cache_dir=str(folder / "cache")),
        loss=losses.MultipleNegativesRankingLoss(model, scale=options["scale"]),
    ).train()
    return lambda texts: model.encode(texts, convert_to_tensor=True, show_progress_bar=False)


def open_untouched(task: dict[str, Any], folder: Path) -> Callable[[list[str]], torch.Tensor]:
    """Opens the encoder as it is, without any training."""
    encoder = coulomb.load(task["encoder"])
    return lambda texts: torch.as_tensor(encoder.encode(texts, convert_to_numpy=False, show_progress_bar=False))


MEASURES: dict[str, Callable[[Any], Any]] = {
    "R@1": lambda ranks: (ranks <= 1).astype(float),
    "R@10": lambda ranks: (ranks <= 10).astype(float),
    "mrr": lambda ranks: 1 / ranks,
}
CONTESTANTS = {
    "coulomb": train_coulomb,
    "simcse": train_simcse,
    "sentence-transformers": train_sentence_transformers,
    "untouched": open_untouched,
}


def print_training(text: str) -> None:
    """Prints seconds, processor seconds, peak memory and the ranks of held-out definitions; runs in a fresh process."""
    task = json.loads(text)
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        start, used = time.perf_counter(), time.process_time()
        encode = CONTESTANTS[task["contestant"]](task, Path(folder))
        seconds, processor = time.perf_counter() - start, time.process_time() - used
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        table = open_columns(task["held_out"], list(COLUMNS))
        pairs = distinct_pairs(joint_ids([table], COLUMNS)[0])
        terms, glosses = (
            encode([table.columns[name][int(row)] for row in rows]).float()
            for name, rows in zip(COLUMNS, (pairs.first_rows, pairs.second_rows), strict=True)
        )
        found = pair_retrieval(terms, glosses, pairs.correct)["first_to_second"]
        ranks = match_ranks(terms, glosses, pairs.correct)
    figures = {"seconds": seconds, "processor": processor, "peak_mib": peak, "mrr": found["mrr"]} | {
        f"R@{k}": found["recall_at"][k] for k in ("1", "10")
    }
    figures |= {"ranks": ranks.tolist()}
    if task["topics"]:
        right = topics_found(task, encode)
        figures |= {"kNN": float(right.mean()), "right": right.tolist()}
    sys.stdout.write(json.dumps(figures | {"queries": found["queries"], "keys": found["keys"]}))


def topics_found(task: dict[str, Any], encode: Callable[[list[str]], torch.Tensor]) -> np.ndarray:
    """Returns which held-out definitions get their topic by the nearest training definitions."""
    sides: list[Any] = []
    for name in ("train", "held_out"):
        rows = pq.read_table(task[name], columns=[COLUMNS[1], TOPIC])
        features = encode(rows.column(COLUMNS[1]).to_pylist()).float()
        sides += [features, torch.tensor(rows.column(TOPIC).to_pylist())]
    train, held_out = labeled_split(*sides)
    right: np.ndarray = (knn_predict(train, held_out, default_neighbors(len(train.y)), SIGMA) == held_out.y).numpy()
    return right


def fresh(task: dict[str, Any]) -> dict[str, float]:
    """Returns the figures of one training in a fresh process.

    Raises:
        UnavailableError: the training failed, such as without the other library.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", TRAINING, json.dumps(task)],
        capture_output=True, text=True, check=False, env=os.environ | {"TOKENIZERS_PARALLELISM": "true"},
    )  # fmt: skip
    if done.returncode:
        raise UnavailableError((done.stderr.strip().splitlines() or ["no message"])[-1])
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def bench_glosses(
    data: Path,
    contestants: Sequence[str],
    epochs: Sequence[int],
    options: dict[str, Any],
    encoder: str,
    *,
    most: int | None = None,
    topics: bool = False,
    test: bool,
    say: Callable[[str], None],
) -> dict[str, Any]:
    """Trains each contestant once for each number of epochs, in turn, and searches held-out definitions by their terms.

    Args:
        data: a Parquet file with the columns ``term`` and ``gloss``.
        contestants: names in `CONTESTANTS`.
        epochs: lengths of the trainings, each with a schedule of its own.
        options: of the training, such as ``lr`` and ``batch_size``.
        encoder: of coulomb, and of ``untouched``, which is it without any training.
        most: training rows, drawn at random; default: all.
        topics: also the share of held-out definitions whose topic the nearest training definitions have (kNN).
        test: search the test part, once settings are chosen; else a validation part, which is left out of the training.
        say: called with progress messages.

    Returns:
        ``{"machine", "held_out", "options", "rows": [{"contestant", "epochs", "seconds", "processor", "peak_mib", "R@1",
        "R@10", "mrr", "queries", "keys", "gains"}]}``, with ``topics`` also "kNN"; ``gains`` over
        ``untouched``, if it was measured, see `gains`.
    """
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        parts = write_parts(data, Path(folder), most)
        train, held_out = (parts["all"], parts["test"]) if test else (parts["train"], parts["validation"])
        for count in epochs:
            for name in contestants:
                if name == "untouched" and any(row["contestant"] == name for row in rows):
                    continue
                say(f"{name}, {count} epochs")
                task = {
                    "contestant": name, "train": str(train), "held_out": str(held_out), "epochs": count, "encoder": encoder,
                    "options": options, "topics": topics,
                }  # fmt: skip
                rows.append({"contestant": name, "epochs": count} | fresh(task))
                say(line(rows[-1]))
    untouched = next((row for row in rows if row["contestant"] == "untouched"), None)
    for row in rows:
        if untouched is not None and row is not untouched:
            row["gains"] = gains(row["ranks"], untouched["ranks"])
            if topics:
                row["gains"]["kNN"] = gain(row["right"], untouched["right"])
    for row in rows:
        del row["ranks"]
        row.pop("right", None)
    return {
        "machine": describe_machine(),
        "held_out": "test" if test else "validation",
        "options": options,
        "rows": rows,
    }


def gains(ranks: Sequence[int], others: Sequence[int]) -> dict[str, tuple[float, float]]:
    """Returns measurement → the mean gain over others, and half its 95% interval, over the same queries."""
    ours, theirs = np.asarray(ranks, np.float64), np.asarray(others, np.float64)
    return {name: gain(measure(ours), measure(theirs)) for name, measure in MEASURES.items()}


def gain(ours: Any, theirs: Any) -> tuple[float, float]:
    """Returns the mean difference of paired figures, and half its 95% interval."""
    difference = np.asarray(ours, np.float64) - np.asarray(theirs, np.float64)
    return float(difference.mean()), 1.96 * float(difference.std(ddof=1)) / len(difference) ** 0.5


def line(row: dict[str, Any]) -> str:
    """One line of the table."""
    cells = f"{row['seconds']:>8.0f}{row['processor']:>8.0f}{row['peak_mib']:>10,.0f}"
    knn = f"{row['kNN']:>8.3f}" if "kNN" in row else ""
    return (
        f"{row['contestant']:24}{row['epochs']:>6}{cells}{row['R@1']:>8.3f}{row['R@10']:>8.3f}{row['mrr']:>8.3f}{knn}"
    )


def render(result: dict[str, Any]) -> str:
    """Returns the result of `bench_glosses` as text."""
    machine, rows = result["machine"], result["rows"]
    keys = f"{rows[0]['keys']:,} definitions of the {result['held_out']} part" if rows else "nothing"
    head = f"{'':24}{'epochs':>6}{'s':>8}{'CPU s':>8}{'peak MiB':>10}{'R@1':>8}{'R@10':>8}{'MRR':>8}"
    head += f"{'kNN':>8}" if rows and "kNN" in rows[0] else ""
    over = [
        f"{row['contestant']}, {row['epochs']} epochs, over untouched: "
        + ", ".join(f"{name} {mean:+.3f} ± {half:.3f}" for name, (mean, half) in row["gains"].items())
        for row in rows
        if "gains" in row
    ]
    about = f"{machine['processor']}, {machine['threads']} threads, torch {machine['torch']}, {machine['date']}"
    return "\n".join([f"term → gloss among {keys}; {result['options']}; {about}", head, *map(line, rows), *over])


def main(
    data: Annotated[Path, typer.Argument(help="a Parquet file with the columns term and gloss")],
    contestant: Annotated[
        list[str] | None, typer.Option(help="coulomb, simcse, sentence-transformers or untouched; may be repeated")
    ] = None,
    epochs: Annotated[list[int] | None, typer.Option(help="length of the training; may be repeated")] = None,
    option: Annotated[list[str] | None, typer.Option(help="of the training, NAME=VALUE; may be repeated")] = None,
    encoder: Annotated[str, typer.Option(help="of coulomb")] = "static",
    rows: Annotated[int | None, typer.Option(help="training rows, drawn at random; default: all", min=2)] = None,
    topics: Annotated[bool, typer.Option(help="also kNN by the column topic, of definitions")] = False,
    test: Annotated[bool, typer.Option(help="search the test part instead of a part of the training rows")] = False,
    as_json: Json = False,
) -> None:
    """Search unseen definitions by their terms after training an encoder, beside sentence-transformers."""
    chosen = contestant or ["coulomb", "sentence-transformers"]
    if unknown := sorted(set(chosen) - set(CONTESTANTS)):
        raise InputError(f"contestant={', '.join(unknown)}: unknown; there are {', '.join(CONTESTANTS)}")
    options: dict[str, Any] = {}
    for text in option or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"option={text!r}: is not NAME=VALUE")
        try:
            options[name] = json.loads(value)
        except ValueError:
            options[name] = value
    with progress(quiet=as_json) as doing:
        result = bench_glosses(
            data, chosen, epochs or (5, 20), options, encoder, most=rows, topics=topics, test=test, say=doing
        )
    show(result, as_json, render)


if __name__ == "__main__":
    command(main, "glosses.parquet", "glosses.parquet --contestant coulomb --epochs 10 --test")
