"""CLIP trained on vectors with DistributedDataParallel, each process with its part of every batch."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from coulomb.methods import CLIP
from coulomb.models import Tower, Towers, ViewRows


class Linear(nn.Module):
    """An encoder of vectors."""

    def __init__(self, seed):
        super().__init__()
        self.linear = nn.Linear(5, 6)
        with torch.no_grad():
            for part in self.linear.parameters():
                part.copy_(torch.randn(part.shape, generator=torch.Generator().manual_seed(seed)))
        self.feature_dim, self.column = 6, "x"

    def forward(self, cells):
        return self.linear(cells)


def trained(steps=5, sizes=(4, 3, 5)):
    """Returns the losses (means over processes) and the saved state; without a group, of the whole batches."""
    together = dist.is_initialized()
    rank, world = (dist.get_rank(), dist.get_world_size()) if together else (0, 1)
    total = sum(sizes)
    share = slice(sum(sizes[:rank]), sum(sizes[: rank + 1])) if together else slice(total)
    draw = torch.Generator().manual_seed(1)
    ids = torch.stack(
        [torch.randint(15, (20,), generator=draw), 100 + torch.arange(20), 100 + torch.randperm(20, generator=draw)],
        dim=1,
    )
    towers = Towers({name: Tower(Linear(place), head_layers=0) for place, name in enumerate(("a", "b", "n"))})
    method = CLIP(towers, ids, ("n",), temperature=0.3, queue_size=17, momentum=0.7)
    model = DistributedDataParallel(method) if together else method
    optimizer, losses = torch.optim.SGD(method.parameters(), lr=0.3), []
    for number in range(steps):
        draw = torch.Generator().manual_seed(number)
        columns = {name: torch.randn(total, 5, generator=draw)[share] for name in ("a", "b", "n")}
        train_row = torch.randperm(20, generator=draw)[:total][share]
        loss = model(ViewRows(columns, len(train_row)), None, train_row)
        optimizer.zero_grad()
        loss.backward()
        method.after_batch()
        optimizer.step()
        method.after_update(number / steps)
        value = loss.detach().clone()
        if together:
            dist.all_reduce(value)
        losses.append(float(value) / world)
    return losses, {key: value.clone() for key, value in method.state_dict().items()}
