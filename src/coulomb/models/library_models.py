"""Model objects of transformers and timm as encoders of images: features in place of their outputs for other tasks."""

import inspect

from torch import Tensor, nn


class HFBackbone(nn.Module):
    """Backbone around a transformers model: images [B, C, S, S] → features [B, F].

    Features are the ``pooler_output`` of the model if it has one, else the mean of its last hidden state over tokens or
    positions. An optional pooling layer is omitted, because published weights often lack it.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        parameters = inspect.signature(model.forward).parameters
        self.options = {"interpolate_pos_encoding": True} if "interpolate_pos_encoding" in parameters else {}

    def forward(self, images: Tensor) -> Tensor:
        """Returns features [B, F]."""
        output = self.model(pixel_values=images, **self.options)
        pooled = getattr(output, "pooler_output", None)
        if pooled is not None:
            return pooled.flatten(1)
        last: Tensor = output.last_hidden_state
        return last.mean(dim=1) if last.ndim == 3 else last.mean(dim=(2, 3))


class BeforeHead(nn.Module):
    """A model of timm without its classifier: images [B, C, S, S] → the pooled features [B, F] that it classifies."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, images: Tensor) -> Tensor:
        """Returns features [B, F]."""
        features: Tensor = self.model.forward_head(self.model.forward_features(images), pre_logits=True)  # type: ignore[operator]
        return features


def as_backbone(module: nn.Module) -> nn.Module:
    """Returns a module whose output are features: of a model of transformers or timm its backbone, else ``module`` itself."""
    if any(each.__name__ == "PreTrainedModel" and "transformers" in each.__module__ for each in type(module).__mro__):
        backbone = getattr(module, "base_model", module)  # without the head for classes, tokens or regions
        return HFBackbone(backbone) if getattr(backbone, "main_input_name", "") == "pixel_values" else module
    if hasattr(module, "forward_features") and hasattr(module, "forward_head"):
        return BeforeHead(module)
    return module
