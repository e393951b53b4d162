"""A plain convolutional network for tiny pictures and CPUs."""

from torch import Tensor, nn

from coulomb.models.resnet import convolution

LARGEST_MAP = 16  # pixels; larger pictures start with stride-2 stages so that the cost stays that of a tiny one


class ConvNet(nn.Module):
    """conv3×3–BN–ReLU ``depth`` times a stage; between stages the map halves and the width doubles; the mean at the end.

    [B,C,H,W] → [B, width·2^(stages−1)]: 256 features with the defaults, 32→64→128→256. Pictures above 16
    pixels are first halved by stride-2 convolutions of the first width until the map is at most 16 pixels wide.
    """

    def __init__(self, *, channels: int, image_size: int, width: int = 32, stages: int = 4, depth: int = 1) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs, size = channels, image_size

        def add(outputs: int, stride: int) -> None:
            nonlocal inputs, size
            layers.extend(
                [convolution(inputs, outputs, 3, stride), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)],
            )
            inputs, size = outputs, -(-size // stride)

        while size > LARGEST_MAP:
            add(width, 2)
        for stage in range(stages):
            add(width * 2**stage, 2 if stage else 1)
            for _ in range(depth - 1):
                add(width * 2**stage, 1)
        self.layers = nn.Sequential(*layers)
        self.feature_dim = inputs
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """Features [B,F] of normalised images [B,C,H,W]."""
        return self.layers(x).mean(dim=(2, 3))
