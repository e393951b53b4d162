"""Embeds the texts of one process, and keeps their features and facts as unfinished work."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from coulomb.ground.progress import progress_bar
from coulomb.index.kinds import TEXTS
from coulomb.index.texts import TextFacts, TextSource, describe_text, digest
from coulomb.index.work import ZERO, Outcome, PartWriter
from coulomb.models.text_encoder import TextEncoder

ROWS = 4096  # texts that are tokenized at a time


@dataclass
class TextEmbedder:
    """Embeds texts of a source.

    Attributes:
        encoder: texts → features.
        source: the texts.
        hashes: SHA-256 of the stored texts, which are not embedded again.
        batch_size: texts per forward pass.
    """

    encoder: TextEncoder
    source: TextSource
    hashes: frozenset[bytes]
    batch_size: int

    def write(self, indices: list[int], part: Path, precision: str, *, progress: bool) -> Outcome:
        """Embeds the texts at ``indices`` into a part of the unfinished work."""
        outcome = Outcome()
        if not indices:
            return outcome
        writer = PartWriter(part, TEXTS.lines)
        with progress_bar(len(indices), "indexing", progress) as advance:
            for first in range(0, len(indices), ROWS):
                rows = indices[first : first + ROWS]
                for index, facts, features in self.embed(rows, outcome):
                    writer.add(self.source.item_id(index), facts, features.astype(precision))
                advance(len(rows))
        writer.write()
        return outcome

    def embed(self, indices: list[int], outcome: Outcome) -> list[tuple[int, TextFacts, np.ndarray]]:
        """Returns texts with their features [D] of unit length; adds the other texts to ``outcome``."""
        texts = dict(zip(indices, self.source.plain(indices), strict=True))
        known = {index for index, text in texts.items() if bytes.fromhex(digest(text)) in self.hashes}
        outcome.known |= {index: describe_text(texts[index]) for index in indices if index in known}
        new = [index for index in indices if index not in known]
        if not new:
            return []
        column = self.encoder.encoder.tokenize([texts[index] for index in new])
        features = self.encoder.encode_tokens(column, self.batch_size).numpy()
        lengths = np.linalg.norm(features, axis=1, keepdims=True)
        usable = (np.isfinite(lengths) & (lengths > 0)).ravel()
        for place in column.reasons:
            usable[place] = False
        units = np.divide(features, lengths, out=features, where=usable[:, None])
        found = []
        for place, index in enumerate(new):
            if usable[place]:
                found.append((index, describe_text(texts[index], bool(column.cut[place])), units[place]))
            else:
                outcome.failed[index] = column.reasons.get(place, ZERO)
        return found
