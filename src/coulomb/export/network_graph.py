"""The network of an encoder as an ONNX graph: pixels [B, C, S, S] in [0, 1] → features [B, F]."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from coulomb.export.extras import quiet
from coulomb.export.preparation import OPSET
from coulomb.ground.errors import InputError
from coulomb.models import Encoder, ImageNetwork

LARGEST = 2**31 - 2**20  # bytes of a protobuf file, minus a reserve for the preparation
FOLDED = 2**18  # largest constant, in elements, whose results are computed in advance


class Network(nn.Module):
    """An encoder, optionally with features of unit length."""

    def __init__(self, encoder: Encoder, unit: bool) -> None:
        super().__init__()
        self.encoder, self.unit = encoder, unit

    def forward(self, pixels: Tensor) -> Tensor:
        """Returns features [B, F]."""
        features: Tensor = self.encoder(pixels)
        return functional.normalize(features, dim=1) if self.unit else features


def network_graph(encoder: Encoder, unit: bool, example: Tensor | None = None, name: str = "pixels") -> Any:
    """Returns the ONNX model ``pixels`` → ``features`` of an encoder in eval mode, for batches of any size.

    Args:
        encoder: of images or vectors.
        unit: features of unit length.
        example: cells of 2 rows; default: gray images.
        name: of the input.

    Raises:
        InputError: PyTorch cannot convert the network.
    """
    if example is None:
        assert isinstance(encoder, ImageNetwork)
        example = torch.full((2, encoder.channels, encoder.image_size, encoder.image_size), 0.5)
    example = example.to(next((each.device for each in encoder.parameters()), torch.device("cpu")))
    dims = {name: {0: torch.export.Dim("batch", min=1)}}
    return convert(Network(encoder, unit), {name: example}, dims, encoder.name)


def convert(module: nn.Module, examples: dict[str, Tensor], dims: dict[str, dict[int, Any]], name: str) -> Any:
    """Returns the ONNX model of a module in eval mode, with the output ``features``.

    Args:
        module: the module.
        examples: its inputs in order, by their names in the model.
        dims: of each input, the dimensions that may have any size.
        name: of the encoder, for messages.

    Raises:
        InputError: PyTorch cannot convert it, or is older than 2.9, or the model is too large for one file.
    """
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 9):
        raise InputError(f"to=onnx: needs PyTorch 2.9 or later, this is {torch.__version__}; update it")
    from onnxscript.optimizer import optimize
    from torch.onnx import export

    try:
        with quiet("torch.onnx", "onnxscript", "onnx_ir"):
            program = export(
                module.eval(),
                tuple(examples.values()),
                dynamo=True,
                dynamic_shapes=tuple(dims.values()),
                input_names=list(examples),
                output_names=["features"],
                opset_version=OPSET,
                verbose=False,
            )
            assert program is not None
            optimize(program.model, input_size_limit=FOLDED)  # onnxruntime would pad the input instead of the kernel
        model = program.model_proto
    except Exception as error:  # from torch.export, the converter, or protobuf beyond 2 GiB
        reason = (str(error).strip().splitlines() or [""])[0]
        raise InputError(
            f"{name}: PyTorch cannot convert this network to ONNX ({type(error).__name__}: {reason}); give an encoder "
            "of another architecture"
        ) from error
    if model.ByteSize() > LARGEST:
        raise InputError(
            f"{name}: its {model.ByteSize()} bytes exceed the 2 GiB of one ONNX file; give a smaller encoder"
        )
    fixed = [
        f"dimension {place} of {value.name}"
        for value in model.graph.input
        for place in dims[value.name]
        if not value.type.tensor_type.shape.dim[place].dim_param
    ]
    if fixed:
        raise InputError(
            f"{name}: PyTorch fixes {fixed[0]} when it converts this network; give an encoder of another architecture"
        )
    for node in model.graph.node:  # paths of source files of this machine
        del node.metadata_props[:]
    del model.metadata_props[:]
    return model


def joined(preparation: Any, network: Any) -> Any:
    """Returns one model ``images`` → ``features`` of the two parts."""
    from onnx import compose

    preparation.ir_version = network.ir_version
    return compose.merge_models(preparation, network, io_map=[("pixels", "pixels")])
