"""The blocks of a backbone in order, from the images to the features: for ``tune=last:K`` and ``layer_decay``."""

from collections.abc import Iterator

from torch import nn

STAGE = ("blocks", "layers", "stages")  # a block that has a list of this name is a stage, whose blocks count instead


def ordered_blocks(backbone: nn.Module) -> list[list[nn.Module]]:
    """Returns the modules of a backbone in L + 2 groups: the stem, each of the L blocks, and what follows the last block.

    Modules are taken in the order in which they are registered, which is the order of their use in the usual networks. Blocks
    are the entries of the backbone's lists (`torch.nn.Sequential` or `torch.nn.ModuleList`) of modules with submodules: the
    residual blocks of ResNets, EfficientNets and ConvNeXts, the layers of transformers. Stages are opened: entries that are
    such lists, or have one named blocks, layers or stages. Modules between two blocks, such as a stage's downsampling, belong
    to the next one. In a backbone without such lists, as in the built-in ConvNet, each layer with a weight matrix or filter is
    a block, together with the norm that follows it.

    Parameters of the backbone that are in none of the groups, such as learned positions, belong to the stem. Adapters of peft
    count as the layer that they adapt.
    """
    stem: list[nn.Module] = []
    groups, waiting = [stem], stem
    for module, is_block in _composite(backbone, root=True):
        if is_block:
            groups.append([module] if waiting is stem else [*waiting, module])
            waiting = []
        else:
            waiting.append(module)
    if len(groups) > 1:
        return [*groups, waiting]
    return [*_layers(backbone), []]


def _composite(module: nn.Module, *, root: bool = False) -> Iterator[tuple[nn.Module, bool]]:
    """Yields modules in order, and whether each is a block."""
    if _is_leaf(module) or not _holds_list(module):
        yield module, False
        return
    entries = [entry for entry in module.children() if _has_state(entry)]
    wrapper = root and sum(not _is_leaf(entry) for entry in entries) == 1  # such as Sequential(network, Linear)
    for entry in entries:
        if not _is_list(module) or _is_leaf(entry) or _is_stage(entry) or (wrapper and _holds_list(entry)):
            yield from _composite(entry)
        else:
            yield entry, True


def _layers(backbone: nn.Module) -> list[list[nn.Module]]:
    """Groups the layers of a backbone without lists of blocks; the first group is the stem."""
    groups: list[list[nn.Module]] = [[]]
    for layer in _leaves(backbone):
        if any(parameter.ndim > 1 for parameter in layer.parameters()):
            groups.append([])
        groups[-1].append(layer)
    return groups


def _leaves(module: nn.Module) -> Iterator[nn.Module]:
    if _is_leaf(module):
        yield module
        return
    for child in module.children():
        yield from _leaves(child)


def _is_leaf(module: nn.Module) -> bool:
    return hasattr(module, "lora_A") or next(module.children(), None) is None


def _has_state(module: nn.Module) -> bool:
    return bool(module.state_dict(keep_vars=True))


def _is_list(module: nn.Module) -> bool:
    """Returns True for a list with an entry that has submodules."""
    return isinstance(module, nn.Sequential | nn.ModuleList) and not all(map(_is_leaf, module))


def _holds_list(module: nn.Module) -> bool:
    return any(map(_is_list, module.modules()))


def _is_stage(entry: nn.Module) -> bool:
    return _is_list(entry) or any(_is_list(getattr(entry, name, None) or nn.Identity()) for name in STAGE)
