"""How a batch is cut so that a chunk's pictures stay in the processor's second-level cache."""

from collections.abc import Iterator

import torch

VALUES_PER_THREAD = 300_000  # floats, 1.2 MB: about 100 images of 32×32×3; a core's second-level cache has 1 to 2 MB
VALUES_ON_DEVICE = 2**27  # elsewhere only memory limits: half a gigabyte


def chunks(batch: int, values_per_image: int, device: torch.device) -> Iterator[slice]:
    """Slices covering ``range(batch)``; results do not depend on where the cuts fall."""
    if device.type == "cpu":
        threads = torch.get_num_threads()
        step = max(threads, threads * VALUES_PER_THREAD // values_per_image)
    else:
        step = max(1, VALUES_ON_DEVICE // values_per_image)
    for start in range(0, batch, step):
        yield slice(start, min(batch, start + step))
