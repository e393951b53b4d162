"""Writes ONNX models as bytes, and opens them with onnxruntime."""

from collections.abc import Mapping
from typing import Any

from coulomb.ground.version import __version__


def open_session(content: bytes) -> Any:
    """Returns a session of onnxruntime for the content of a file."""
    from onnxruntime import InferenceSession, SessionOptions

    options = SessionOptions()
    options.log_severity_level = 3  # errors
    return InferenceSession(content, options)


def serialized(model: Any, about: Mapping[str, str], description: str) -> bytes:
    """Returns the content of a file.

    Args:
        model: the ONNX model, which is changed.
        about: its metadata.
        description: one line on its inputs and outputs.
    """
    from onnx import helper

    helper.set_model_props(model, dict(about))
    model.producer_name, model.producer_version = "coulomb", __version__
    model.graph.name = model.doc_string = description
    content: bytes = model.SerializeToString()
    return content
