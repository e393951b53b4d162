"""Exports encoders and indexes to formats of other programs."""

from coulomb.export.faiss_file import to_faiss
from coulomb.export.lance_table import to_lance
from coulomb.export.tables import to_csv, to_npz
from coulomb.export.towers import to_hub, to_onnx
from coulomb.export.upload import push

__all__ = ["push", "to_csv", "to_faiss", "to_hub", "to_lance", "to_npz", "to_onnx"]
