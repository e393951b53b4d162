"""An encoder that takes strings."""

import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from coulomb.ground.errors import CoulombWarning, InputError, counted
from coulomb.ground.progress import progress_bar
from coulomb.ground.text import visible
from coulomb.kinds.text import TokenColumn
from coulomb.models.features import frozen
from coulomb.models.named_encoder import NamedEncoder, finished
from coulomb.models.text_network import TextNetwork
from coulomb.tables.columns import Column, open_columns

IMAGE_FILES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".heic")
ROWS = 65_536  # texts per row group of the Parquet file


class TextEncoder(NamedEncoder):
    """An encoder of texts by its name.

    Args:
        network: of texts, such as `coulomb.models.build_text_encoder` makes.
        name: for messages.

    >>> from coulomb.models import build_text_encoder
    >>> network = build_text_encoder("static-random", texts=["a red flower", "two cats"] * 10, width=8)
    >>> TextEncoder(network, "mine").encode(["a cat", "a flower"]).shape
    torch.Size([2, 8])
    """

    def __init__(self, network: TextNetwork, name: str):
        self._network = network
        self.name = name
        self.device: torch.device | None = None

    @cached_property
    def encoder(self) -> TextNetwork:
        """The network in eval mode: `coulomb.kinds.text.Tokens` → features [B, F]."""
        return self._network.eval().to(self.device)

    @property
    def tokenizer(self) -> Any:
        """The `tokenizers.Tokenizer` of the network."""
        return self._network.tokenizer

    def encode(
        self,
        texts: Any,
        batch_size: int = 256,
        show_progress_bar: bool = False,
        *,
        convert_to_numpy: bool = False,
        normalize_embeddings: bool = False,
    ) -> Any:
        """Returns the features [N, F] of texts; float32, on the CPU.

        A text does not depend on the others. Texts longer than the network takes are cut, and a warning counts them.

        Args:
            texts: a string, or a list, an array or another sequence of strings.
            batch_size: texts per forward pass; does not change the result beyond rounding.
            show_progress_bar: show a progress bar, or lines if stderr is no terminal.
            convert_to_numpy: return an array instead of a tensor.
            normalize_embeddings: divide each row by its length; zeros stay zeros.

        Raises:
            InputError: something is no text, is empty, or is the path of an image.

        Example:
            >>> coulomb.load("static").encode(["a red flower", "two cats"]).shape
            torch.Size([2, 256])
        """
        chosen = as_texts(texts)
        require_size(batch_size)
        with progress_bar(2 * len(chosen), "encoding", show_progress_bar) as advance:
            column = self._column(chosen, advance)
            features = self.encode_tokens(column, batch_size, advance)
        if column.notes:
            warnings.warn(f"{self.name}: {column.notes[0]}", CoulombWarning, stacklevel=2)
        return finished(features, convert_to_numpy=convert_to_numpy, normalize_embeddings=normalize_embeddings)

    def _column(self, texts: Sequence[Any], advance: Callable[[int], object] = lambda texts: None) -> TokenColumn:
        """Returns texts as tokens; raises `InputError` for the first that is none."""
        column = self.encoder.tokenize(texts, advance)
        reasons = dict(column.reasons)
        for row, text in enumerate(texts):
            if isinstance(text, str) and text.lower().endswith(IMAGE_FILES) and _is_file(text):
                reasons[row] = (
                    "is the path of an image, and texts are encoded as they are; give it to an encoder of images"
                )
        if reasons:
            row = min(reasons)
            more = f" (and {len(reasons) - 1} more of {len(texts)} texts)" if len(reasons) > 1 else ""
            shown = f"={visible(texts[row], 100)!r}" if isinstance(texts[row], str) and texts[row].strip() else ""
            raise InputError(f"texts[{row}]{shown}: {reasons[row]}{more}; leave out what is no text")
        return column

    @torch.no_grad()
    def encode_tokens(
        self, column: TokenColumn, batch_size: int, advance: Callable[[int], object] = lambda texts: None
    ) -> Tensor:
        """Returns the features [N, F] of texts as tokens, zeros for texts without tokens.

        Texts of similar lengths are computed together.

        Args:
            column: of ``encoder.tokenize``.
            batch_size: texts per forward pass.
            advance: is called with the number of texts after each pass.
        """
        encoder = self.encoder
        device = next((parameter.device for parameter in encoder.parameters()), torch.device("cpu"))
        features = torch.zeros(len(column), encoder.feature_dim)
        order = np.argsort(column.lengths, kind="stable")
        empty = int((column.lengths == 0).sum())
        order = order[empty:]
        advance(empty)
        with frozen(encoder):
            for first in range(0, len(order), batch_size):
                rows = order[first : first + batch_size]
                features[torch.from_numpy(rows)] = encoder(column.stack(rows).to(device)).float().cpu()
                advance(len(rows))
        return features

    def embed(
        self,
        data: Any,
        out: str | Path,
        *,
        column: str = "text",
        batch_size: int = 256,
        progress: bool = True,
        **options: Any,
    ) -> dict[str, Any]:
        """Writes one row per text: ``id``, ``text`` and ``features``, a fixed-size list of float32.

        Args:
            data: a list of strings, a .txt file with a text per line, a table (.csv, .jsonl, .parquet, …), or what else
                `coulomb.tables.columns.open_columns` opens.
            out: Parquet file to write; it must not exist.
            column: of a table, the column with the texts.
            batch_size: texts per forward pass.
            progress: show a progress bar on a terminal.
            options: none; for images only.

        Returns:
            ``{"rows", "features", "cut", "notes"}``: ``cut`` counts texts that were longer than the network takes, ``notes``
            says what was left out.

        Raises:
            InputError: ``out`` exists, does not end in .parquet or cannot be written, or ``data`` has no texts.
        """
        import pyarrow as pa
        import pyarrow.parquet as pq

        for option, value in options.items():
            raise InputError(f"{option}={value!r}: is an option for images, and {self.name} takes texts; leave it out")
        require_size(batch_size)
        out = Path(out)
        if out.suffix.lower() not in (".parquet", ".pq"):
            raise InputError(f"out={str(out)!r}: embed writes Parquet; give a name that ends in .parquet")
        if out.exists():
            raise InputError(f"out={str(out)!r}: already exists; choose another file")
        table = open_columns(data, [Column(column, "text")])
        texts = table.columns[column]
        width = self.encoder.feature_dim
        schema = pa.schema([("id", pa.string()), ("text", pa.string()), ("features", pa.list_(pa.float32(), width))])
        temporary, cut = out.with_name(out.name + ".tmp"), 0
        try:
            with (
                pq.ParquetWriter(temporary, schema) as writer,
                progress_bar(2 * len(table), "embedding", progress) as advance,
            ):
                for first in range(0, len(table), ROWS):
                    part = list(texts[first : first + ROWS])
                    tokens = self._column(part, advance)
                    features = self.encode_tokens(tokens, batch_size, advance)
                    columns = {
                        "id": [table.item_id(row) for row in range(first, first + len(part))],
                        "text": part,
                        "features": pa.FixedSizeListArray.from_arrays(pa.array(features.numpy().ravel()), width),
                    }
                    writer.write_table(pa.table(columns, schema=schema))
                    cut += int(tokens.cut.sum())
            temporary.replace(out)
        except OSError as error:
            raise InputError(f"out={str(out)!r}: cannot be written ({error.strerror})") from None
        finally:
            temporary.unlink(missing_ok=True)
        if cut:
            longest = self.encoder.longest
            warnings.warn(
                f"{self.name}: {counted(cut, 'text')} of {len(table):,} had more than {longest} tokens and were cut there",
                CoulombWarning,
                stacklevel=2,
            )
        return {"rows": len(table), "features": width, "cut": cut, "notes": list(table.notes)}


def as_texts(texts: Any) -> Sequence[Any]:
    """Returns texts as a sequence; a string is one text. Raises `InputError` for something else."""
    if isinstance(texts, str):
        return [texts]
    if texts is None or isinstance(texts, bytes | int | float | dict | Path | Tensor) or not hasattr(texts, "__len__"):
        raise InputError(
            f"texts: must be a string or a list of strings, got {type(texts).__name__}"
            + ("; read the file first" if isinstance(texts, Path) else "")
            + ("; decode it, for example by texts.decode('utf-8')" if isinstance(texts, bytes) else "")
        )
    listed = list(texts)
    if getattr(texts, "ndim", 1) != 1:
        raise InputError(f"texts: has shape {list(texts.shape)}; it must be one list of strings")
    return [str(each) if isinstance(each, np.str_) else each for each in listed]


def require_size(batch_size: int) -> None:
    """Raises `InputError` for a batch size below 1."""
    if not isinstance(batch_size, int) or isinstance(batch_size, bool) or batch_size < 1:
        raise InputError(f"batch_size={batch_size!r}: must be a whole number of at least 1")


def _is_file(path: str) -> bool:
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False
