"""The network of an encoder as an ONNX graph: pixels [B, C, S, S] in [0, 1] → features [B, F]."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from coulomb.export.extras import quiet
from coulomb.export.preparation import OPSET
from coulomb.ground.errors import InputError
from coulomb.models import ImageNetwork

LARGEST = 2**31 - 2**20  # bytes of a protobuf file, minus a reserve for the preparation
FOLDED = 2**18  # largest constant, in elements, whose results are computed in advance


class Network(nn.Module):
    """An encoder, optionally with features of unit length."""

    def __init__(self, encoder: ImageNetwork, unit: bool) -> None:
        super().__init__()
        self.encoder, self.unit = encoder, unit

    def forward(self, pixels: Tensor) -> Tensor:
        """Returns features [B, F]."""
        features: Tensor = self.encoder(pixels)
        return functional.normalize(features, dim=1) if self.unit else features


def network_graph(encoder: ImageNetwork, unit: bool) -> Any:
    """Returns the ONNX model ``pixels`` → ``features`` of an encoder in eval mode, for batches of any size.

    Raises:
        InputError: PyTorch cannot convert the network.
    """
    from onnxscript.optimizer import optimize
    from torch.onnx import export

    example = torch.full((2, encoder.channels, encoder.image_size, encoder.image_size), 0.5)
    example = example.to(next((each.device for each in encoder.parameters()), torch.device("cpu")))
    try:
        with quiet("torch.onnx", "onnxscript", "onnx_ir"):
            program = export(
                Network(encoder, unit).eval(),
                (example,),
                dynamo=True,
                dynamic_shapes={"pixels": {0: torch.export.Dim("batch", min=1)}},
                input_names=["pixels"],
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
            f"{encoder.name}: PyTorch cannot convert this network to ONNX ({type(error).__name__}: {reason}); give an encoder "
            "of another architecture"
        ) from error
    if model.ByteSize() > LARGEST:
        raise InputError(
            f"{encoder.name}: its {model.ByteSize()} bytes exceed the 2 GiB of one ONNX file; give a smaller encoder"
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
