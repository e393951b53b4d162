"""Batch norm over the images of all processes."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from coulomb.losses.negatives import summed_over
from coulomb.similarity.collectives import all_reduce_sum, gather_group

KINDS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class SharedBatchNorm(_BatchNorm):
    """Batch norm whose statistics in training mode cover the batches of all processes, which may differ in size.

    y = (x − μ)/√(σ² + ε) · weight + bias, with the mean μ and the biased variance σ² of each channel over all processes, and
    moving averages as in `torch.nn.BatchNorm2d`. `torch.nn.SyncBatchNorm` does the same on GPUs only. Gradients are summed
    over processes, so that averaging the gradients of the weights gives the gradient of one process with the whole batch.
    """

    def _check_input_dim(self, input: Tensor) -> None:
        """Accepts any number of dimensions; the replaced layer's inputs are this one's."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalizes ``input`` [N, C, …]; all processes must call this."""
        group = gather_group("auto")
        if group is None or not self.training:
            return super().forward(input)
        with torch.autocast(input.device.type, enabled=False):
            exact = input if input.dtype == torch.float64 else input.float()
            return self._shared(exact, group).to(input.dtype)

    def _shared(self, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        axes = [axis for axis in range(x.ndim) if axis != 1]
        shape = [-1 if axis == 1 else 1 for axis in range(x.ndim)]
        count = float(summed_over(group, torch.tensor(x.numel() / x.shape[1], device=x.device, dtype=torch.float64)))
        if count < 2:
            raise ValueError("batch norm needs more than one value per channel over all processes")
        mean = all_reduce_sum(group, x.sum(axes)) / count
        centered = x - mean.view(shape)
        variance = all_reduce_sum(group, centered.square().sum(axes)) / count
        if self.running_mean is not None and self.running_var is not None:
            with torch.no_grad():
                assert self.num_batches_tracked is not None
                self.num_batches_tracked += 1
                rate = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
                self.running_mean.lerp_(mean, rate)
                self.running_var.lerp_(variance * (count / (count - 1)), rate)
        scale = (variance + self.eps).rsqrt()
        if self.weight is not None:
            scale = scale * self.weight
        out = centered * scale.view(shape)
        return out if self.bias is None else out + self.bias.view(shape)


def share_batch_norms(model: nn.Module) -> int:
    """Replaces the batch norms inside ``model`` by `SharedBatchNorm` with the same tensors; returns their number.

    Subclasses of torch's layers, which may compute something else, are left alone.
    """
    count = 0
    for parent in list(model.modules()):
        for name, part in parent.named_children():
            if type(part) in KINDS:
                setattr(parent, name, _shared_copy(part))
                count += 1
    return count


def _shared_copy(norm: nn.Module) -> SharedBatchNorm:
    assert isinstance(norm, _BatchNorm)
    copy = SharedBatchNorm(norm.num_features, norm.eps, norm.momentum, affine=False, track_running_stats=False)
    copy.affine, copy.track_running_stats, copy.training = norm.affine, norm.track_running_stats, norm.training
    for name in ("weight", "bias"):
        copy.register_parameter(name, getattr(norm, name))
    for name in ("running_mean", "running_var", "num_batches_tracked"):
        copy.register_buffer(name, getattr(norm, name))
    return copy


def describe_batch_norms(model: nn.Module, shared: bool, images: int) -> str | None:
    """Returns a sentence for the log of a run with several processes; None without batch norm."""
    norms = [part for part in model.modules() if isinstance(part, _BatchNorm)]
    own = sum(not isinstance(part, SharedBatchNorm) for part in norms)
    if not norms:
        return None
    if not own:
        return f"batch norm: the statistics of all {len(norms)} layers cover the images of all processes"
    rest = "of classes that are not torch's" if shared else "sync_batchnorm shares them"
    return f"batch norm: {own} of {len(norms)} layers use statistics of each process's own {images} images ({rest})"
