"""Evaluation of an encoder on scored pairs, such as semantic textual similarity."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from coulomb.evaluation.one_column import by_scores
from coulomb.evaluation.one_column_verdict import BM25, RAW_VALUES
from coulomb.evaluation.starting_tower import starting_tower
from coulomb.ground.errors import InputError, counted, did_you_mean
from coulomb.ground.files import write_json
from coulomb.ground.progress import progress_bar
from coulomb.ground.text import safe_name, visible
from coulomb.metrics.bm25_neighbors import bm25_similarities
from coulomb.metrics.rows import cosines
from coulomb.models import Encoder
from coulomb.models.image_encoder import ImageEncoder
from coulomb.models.load import load
from coulomb.models.pair_encoder import PairEncoder
from coulomb.models.text_encoder import TextEncoder
from coulomb.models.text_network import TextNetwork
from coulomb.models.vector_network import VectorNetwork
from coulomb.tables.scored import SCORES, ScoredPairs, open_scored_pairs
from coulomb.training.plan.config import load_config
from coulomb.training.plan.given import data_name
from coulomb.training.record.folder import RunFolder
from coulomb.training.record.provenance import environment

BATCH = 256  # cells per forward pass
FEWEST = 3  # pairs of a correlation


def assess_scored(
    encoder: str | PairEncoder | TextEncoder,
    data: Any,
    *,
    columns: str | Sequence[str] | None = None,
    tower: str | None = None,
    seed: int = 0,
    progress: bool = True,
) -> dict[str, Any]:
    """Measures how well the cosines of an encoder agree with given scores of pairs; writes nothing.

    ``trained`` and ``starting_point`` (or ``random_init``, if the run began with random weights) hold ``scored_pairs``, see
    `coulomb.metrics.scored_pairs`, of a run after and before its training; published weights are ``starting_point``.
    ``bm25`` holds the same of words that both texts share, and of vectors ``raw_values`` of their standardized values.
    ``comparison`` has the differences of Spearman's correlation from the trained encoder's, resampled over the same pairs.

    Args:
        encoder: what `coulomb.load` returns, or its name: a run on texts or vectors, a run on pairs, published weights.
        data: a table with two columns of texts and one of scores, see `coulomb.tables.scored.open_scored_pairs`.
        columns: the first text, the second text and the score: "sentence1,sentence2,score"; default: read from the table.
        tower: of a run on several columns, the column whose encoder is measured; default: the first of texts, or of vectors.
        seed: seed of the bootstrap.
        progress: show a progress bar on a terminal.

    Raises:
        InputError: the encoder takes images, there is no such column, ``data`` holds no scored pairs, scores are no numbers
            or all equal, or all cosines are.
    """
    opened = load(encoder) if isinstance(encoder, str) else encoder
    column, kind, networks = _networks(opened, tower)
    pairs = _open(data, column, kind, columns)
    cells, (first, second) = pairs.table.columns[column], pairs.places
    read, cut = np.ones(len(cells), bool), 0
    features: dict[str, np.ndarray] = {}
    for name, network in networks.items():
        if isinstance(network, TextNetwork):
            features[name], known, cut = _of_texts(TextEncoder(network, opened.name), cells, progress)
            read &= known
        else:
            features[name] = _of_vectors(network, cells, opened.name)
    kept = np.flatnonzero(read[first] & read[second])
    if len(kept) < FEWEST:
        raise InputError(f"{visible(pairs.table.name)}: only {counted(len(kept), 'pair')} have texts with known tokens")
    first, second, scores = first[kept], second[kept], pairs.scores[kept]
    if kind == "vector":
        network = next(iter(networks.values()))
        assert isinstance(network, VectorNetwork)
        values = torch.from_numpy(np.asarray(cells, np.float32))
        features[RAW_VALUES] = network.standardize.forward(values).numpy()
    similarities = {name: cosines(rows, first, rows, second) for name, rows in features.items()}
    if kind == "text":
        similarities[BM25] = bm25_similarities(*([cells[row] for row in rows.tolist()] for rows in (first, second)))
    result: dict[str, Any] = {"column": column, "kind": kind, **{name: {} for name in similarities}}
    protocol: dict[str, Any] = {
        "name": pairs.table.name,
        "pairs": data_name(data),
        "columns": list(pairs.names),
        "judged_by": "scored pairs",
        "pairs_measured": len(kept),
        "pairs_left_out": pairs.left_out + len(pairs) - len(kept),
        "texts_cut": cut,
        "encoder": opened.name,
        "similarity": f"by the cosine {'in the space that all columns share' if _shared(opened) else 'of features'}",
        "bm25": "(score(a, b) + score(b, a)) / (score(a, a) + score(b, b)), k1 = 1.2, b = .75"
        if kind == "text"
        else None,
        "intervals": "95%, percentiles of 2,000 resamples of the pairs",
        "seed": seed,
    }
    result["comparison"] = by_scores(scores, similarities, result, protocol, seed)
    main = next(iter(networks))
    if result[main]["scored_pairs"] is None:
        raise InputError(
            f"{opened.name}: its cosines of all {len(kept)} pairs are equal, so that nothing correlates with the scores"
        )
    result["protocol"] = {name: value for name, value in protocol.items() if value is not None}
    result["protocol"]["versions"] = environment()
    return result


def assess_scored_run(folder: RunFolder, data: Any, **options: Any) -> dict[str, Any]:
    """`assess_scored` of a run on columns; writes the result to ``transfer/NAME.json`` in its folder."""
    result = assess_scored(PairEncoder(folder.path), data, seed=load_config(folder.config).seed, **options)
    folder.transfer.mkdir(exist_ok=True)
    write_json(folder.transfer / f"{safe_name(result['protocol']['name'])}.json", result)
    return result


def _networks(
    opened: ImageEncoder | TextEncoder | PairEncoder, tower: str | None
) -> tuple[str, str, dict[str, Encoder]]:
    """Returns the column, its kind, and contestant → network.

    Raises:
        InputError: there is no such column, or it is of images.
    """
    if isinstance(opened, ImageEncoder):
        raise InputError(f"{opened.name!r}: takes images; scored pairs are of texts or vectors")
    if isinstance(opened, TextEncoder):
        if tower is not None:
            raise InputError(f"tower={tower!r}: {opened.name} has one encoder only; leave it out")
        return "text", "text", {"starting_point": opened.encoder}
    kinds = {name: each["kind"] for name, each in opened.columns.items()}
    if tower is not None and tower not in kinds:
        raise InputError(
            f"tower={tower!r}: {opened.name} has {', '.join(kinds)}{did_you_mean(tower, list(kinds))}; name a column of them"
        )
    column = tower
    if column is None:
        usable = sorted((name for name in kinds if kinds[name] != "image"), key=lambda name: kinds[name] != "text")
        if not usable:
            raise InputError(f"{opened.name!r}: has columns of images alone; scored pairs are of texts or vectors")
        column = usable[0]
    encoder = opened[column]
    if kinds[column] == "image":
        raise InputError(f"tower={column!r}: takes images; scored pairs are of texts or vectors")
    network: Encoder = encoder.encoder if isinstance(encoder, TextEncoder) else encoder
    if not isinstance(network, TextNetwork | VectorNetwork):
        raise InputError(f"tower={column!r}: a {type(network).__name__} takes neither texts nor vectors")
    if not (opened.path / "config.yaml").is_file():
        return column, kinds[column], {"starting_point": network}
    before = starting_tower(RunFolder(opened.path), opened, column)
    return column, kinds[column], {"trained": network, **({} if before is None else {before[0]: before[1].eval()})}


def _shared(opened: object) -> bool:
    return isinstance(opened, PairEncoder) and len(opened.columns) > 1


def _open(data: Any, column: str, kind: str, columns: str | Sequence[str] | None) -> ScoredPairs:
    names = [each.strip() for each in columns.split(",")] if isinstance(columns, str) else list(columns or ())
    if columns is not None and len(names) != 3:
        raise InputError(f"columns={columns!r}: must name three columns: FIRST,SECOND,SCORE")
    pairs = open_scored_pairs(data, column, kind, names=names)
    if pairs is None:
        raise InputError(
            f"pairs={visible(data_name(data))!r}: has no column of scores ({', '.join(SCORES[::2])}, …) beside two of "
            f"{kind}s; name them: columns='FIRST,SECOND,SCORE' (--columns)"
        )
    return pairs


def _of_texts(encoder: TextEncoder, cells: Sequence[str], progress: bool) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns features [n, F], which texts have tokens, [n], and how many were cut; equal texts are encoded once."""
    place: dict[str, int] = {}
    at = np.fromiter((place.setdefault(text, len(place)) for text in cells), np.int64, len(cells))
    with progress_bar(2 * len(place), f"evaluating {encoder.name}", progress) as advance:
        tokens = encoder.encoder.tokenize(list(place), advance)
        features = encoder.encode_tokens(tokens, BATCH, advance).numpy()
    return features[at], tokens.lengths[at] > 0, int(tokens.cut.sum())


@torch.no_grad()
def _of_vectors(network: Encoder, cells: Any, name: str) -> np.ndarray:
    """Returns features [n, F]; raises `InputError` for vectors of another length."""
    rows = torch.from_numpy(np.asarray(cells, np.float32))
    assert isinstance(network, VectorNetwork)
    if rows.shape[1] != network.dim:
        raise InputError(f"pairs: vectors of {rows.shape[1]} values, and {name} takes {network.dim}; give others")
    features: np.ndarray = torch.cat([network(part) for part in rows.split(BATCH)]).numpy()
    return features
