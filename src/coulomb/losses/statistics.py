"""Two views and their statistics over the batch of all processes, for losses that compare dimensions instead of samples.

With ``gather`` every process computes the same loss of the whole batch. The gradients of a sum over processes are summed
over processes as well, so that averaging over processes, as DistributedDataParallel does, gives the gradient of one
process with the whole batch.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from coulomb.losses.inputs import paired_rows, warn_counted
from coulomb.losses.negatives import summed_over
from coulomb.similarity.collectives import Gather, all_reduce_sum, gather_group


@dataclass(frozen=True)
class Views:
    """Two views of each sample.

    Attributes:
        rows: both views in fp32 or fp64, not normalized, [2, N, D].
        samples: number of samples in all processes.
        group: the processes that share their statistics; None: this process only.
    """

    rows: Tensor
    samples: int
    group: dist.ProcessGroup | None

    def sum(self, value: Tensor) -> Tensor:
        """Returns the sum over processes, with gradient."""
        return all_reduce_sum(self.group, value)

    def centered(self) -> Tensor:
        """Returns ``rows`` minus the mean of each view over all samples, [2, N, D]."""
        return self.rows - self.sum(self.rows.sum(1, keepdim=True)) / self.samples


def two_views(view0: Tensor, view1: Tensor, gather: Gather, *, degree: int) -> Views:
    """Checks two views and returns them as `Views`. ``degree``: see `coulomb.losses.inputs.normalized`."""
    rows = paired_rows(("view0", "view1"), view0, view1, normalize=False, degree=degree)
    samples, group = len(view0), gather_group(gather)
    if group is not None:
        samples = int(summed_over(group, torch.tensor(samples, device=rows.device)))
    if samples == 1:
        warn_counted(1, 1, "samples have no other sample in the batch (N = 1): the variance is 0")
    return Views(rows.view(2, len(view0), -1), samples, group)
