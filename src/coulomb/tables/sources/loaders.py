"""The data set of a torch ``DataLoader``: batches are made anew, by the run."""

from typing import Any

from torch.utils.data import BatchSampler, DataLoader, RandomSampler, SequentialSampler

from coulomb.ground.errors import InputError


def dataset_of(loader: "DataLoader[Any]") -> Any:
    """Returns the data set of a loader, of which its order, batch size, workers and ``collate_fn`` are not used.

    Raises:
        InputError: the loader has a sampler of its own, which may leave items out or repeat them, or its data set has no items
            by number.
    """
    dataset = loader.dataset
    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        raise InputError(
            f"data=DataLoader of {type(dataset).__name__}: only a data set with __len__ and __getitem__ can be used, since "
            "a run reads each image again in every epoch"
        )
    plain = type(loader.sampler) in (SequentialSampler, RandomSampler) and type(loader.batch_sampler) in (
        BatchSampler,
        type(None),
    )
    if not plain or len(loader.sampler) != len(dataset):  # type: ignore[arg-type]
        sampler = type(loader.sampler if type(loader.batch_sampler) is BatchSampler else loader.batch_sampler).__name__
        raise InputError(
            f"data=DataLoader with {sampler}: its choice of items would be lost, because a run makes its own batches; give "
            "torch.utils.data.Subset(loader.dataset, indices), and see the option sampler"
        )
    return dataset
