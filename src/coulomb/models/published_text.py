"""Encoders of texts of transformers and sentence-transformers: ``hf:NAME`` and folders."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from coulomb.ground.errors import InputError, did_you_mean
from coulomb.ground.reading import Shape, check_file, check_shape, list_of, maybe, table, text, whole
from coulomb.kinds.text import Tokens
from coulomb.models.library_preprocessing import first_line
from coulomb.models.names import Published
from coulomb.models.published import import_library, quiet, require_complete, without_pooling
from coulomb.models.text_backbones import StaticVectors, mean_of_tokens
from coulomb.models.text_layout import (
    ACTIVATIONS,
    LONGEST,
    POOLINGS,
    Dense,
    Layout,
    Repository,
    inside,
    read_layout,
    read_published_tokenizer,
)
from coulomb.models.text_network import TextNetwork, require_vocabulary
from coulomb.models.tokenizing import train_tokenizer

PUBLISHED = "published"
POOLED = ("clip_text_model", "siglip_text_model", "siglip2_text_model")  # model types with their own pooling
NOT_AUTOMATIC = {
    "siglip_text_model": "SiglipTextModel",
    "siglip2_text_model": "Siglip2TextModel",
}  # unknown to AutoModel
PADDED = ("siglip_text_model", "siglip2_text_model")  # whose padding is read like tokens
BAND = 1.5  # texts up to this much longer than the shortest are computed together on a CPU
LEAST = 8  # texts computed together, if there are so many


class PublishedTexts(nn.Module):
    """Backbone around a transformers model of texts: tokens → features [B, F], pooled, perhaps projected and normalized.

    Args:
        model: of transformers.
        layout: what follows the model.
        padded: pad all texts to this number of tokens, and let the model read the padding, as SigLIP was trained; None: the
            padding is masked.
        padding: the id of the padding.
    """

    def __init__(self, model: nn.Module, layout: Layout, *, padded: int | None, padding: int) -> None:
        super().__init__()
        self.model = model
        self.pooling, self.normalize, self.padded, self.padding = layout.pooling, layout.normalize, padded, padding
        self.dense, self.units = dense_layers(layout)

    def forward(self, tokens: Tokens) -> Tensor:
        """Returns features [B, F]. On a CPU, texts of similar lengths are computed together."""
        if tokens.device.type != "cpu" or self.padded is not None:
            return self.features_of(tokens)
        lengths, order = tokens.lengths.sort(stable=True)
        sizes = bands(lengths.tolist())
        if len(sizes) <= 1:
            return self.features_of(tokens)
        features = torch.cat([self.features_of(tokens.rows(rows)) for rows in order.split(sizes)])
        return features[order.argsort()]

    def features_of(self, tokens: Tokens) -> Tensor:
        """Returns features [B, F] of texts that are computed together."""
        # SigLIP reads its padding, and stacks may be padded with another id.
        ids, mask = tokens.ids.masked_fill(~tokens.mask, self.padding), tokens.mask
        if self.padded is None:
            output = self.model(input_ids=ids, attention_mask=mask.long())
        else:
            output = self.model(input_ids=functional.pad(ids, (0, self.padded - ids.shape[1]), value=self.padding))
        if self.pooling == "pooler":
            features = output.pooler_output
        else:
            features = pooled(output.last_hidden_state, mask, self.pooling)
        return self.projected(features)

    def projected(self, features: Tensor) -> Tensor:
        """Returns what follows the pooled features."""
        return projected(features, self.dense, self.units, normalize=self.normalize)


def dense_layers(layout: Layout) -> tuple[nn.ModuleList, tuple[bool, ...]]:
    """Returns the dense layers of a layout, and which of them take features of unit length."""
    layers = nn.ModuleList(
        nn.Sequential(nn.Linear(each.width_in, each.width_out, bias=each.bias), getattr(nn, each.activation)())
        for each in layout.dense
    )
    return layers, tuple(each.unit for each in layout.dense)


def projected(features: Tensor, dense: nn.ModuleList, units: tuple[bool, ...], *, normalize: bool) -> Tensor:
    """Returns the features after dense layers, of unit length if ``normalize``."""
    for layer, unit in zip(dense, units, strict=True):
        features = layer(functional.normalize(features, dim=1) if unit else features)
    return functional.normalize(features, dim=1) if normalize else features


def bands(lengths: list[int]) -> list[int]:
    """Returns the sizes of groups of texts, sorted by their ``lengths``, that differ little within a group."""
    sizes, shortest = [0], 0
    for length in lengths:
        if sizes[-1] >= LEAST and length > BAND * shortest:
            sizes.append(0)
        if not sizes[-1]:
            shortest = length
        sizes[-1] += 1
    return sizes


def pooled(states: Tensor, mask: Tensor, pooling: str) -> Tensor:
    """Returns one vector per text, [B, F], of token features [B, L, F] with padding on the right."""
    if pooling == "cls":
        return states[:, 0]
    if pooling == "last":
        return states[torch.arange(states.shape[0], device=states.device), (mask.sum(dim=1) - 1).clamp_min(0)]
    if pooling == "max":
        return states.masked_fill(~mask.unsqueeze(-1), -torch.inf).amax(dim=1)
    return mean_of_tokens(states, mask)


class PublishedStatic(StaticVectors):
    """Averaged token vectors of sentence-transformers, perhaps projected and normalized."""

    def __init__(self, layout: Layout, *, vocabulary: int, width: int) -> None:
        super().__init__(vocabulary=vocabulary, longest=1, width=width)
        self.normalize = layout.normalize
        self.dense, self.units = dense_layers(layout)
        self.feature_dim = layout.dense[-1].width_out if layout.dense else width

    def forward(self, tokens: Tokens) -> Tensor:
        """Returns features [B, F]."""
        return self.projected(super().forward(tokens))

    def projected(self, features: Tensor) -> Tensor:
        """Returns what follows the averaged vectors."""
        return projected(features, self.dense, self.units, normalize=self.normalize)


def build_published_text(
    name: str, parsed: Published, *, texts: Iterable[Any] | None, longest: int | None
) -> TextNetwork:
    """Builds an encoder of texts of another library, with the current generator where weights are random.

    Args:
        name: of the encoder, for messages.
        parsed: its name in the library, or its folder, and whether its weights are used.
        texts: from which the vocabulary of a model type such as ``hf:bert`` is learned.
        longest: tokens of a text that are used; default: what the files say, at most 512 if they only have a limit.

    Raises:
        InputError: the library is missing, the name is unknown, a file is missing or damaged, or needs what is not supported.
    """
    repository = Repository(parsed.name, name)
    local = Path(parsed.name).is_dir()
    transformers = None if local and (Path(parsed.name) / "modules.json").is_file() else import_library("hf")
    if transformers is not None and not local and parsed.name in transformers.CONFIG_MAPPING:
        return _of_type(transformers, name, parsed, texts, longest)
    layout = read_layout(repository)
    tokenizer, padding, limit = read_published_tokenizer(repository, layout)
    if layout.static:
        return _static(repository, layout, tokenizer, longest or limit, weights=parsed.weights)
    transformers = import_library("hf")
    part = {"subfolder": layout.part} if layout.part else {}
    try:
        config = transformers.AutoConfig.from_pretrained(parsed.name, trust_remote_code=False, **part)
    except (OSError, ValueError) as error:
        raise repository.error(
            f"no such configuration ({first_line(error)}); give a name of the hub or a folder"
        ) from None
    config = getattr(config, "text_config", config)  # the text encoder of a model for images and text
    if config.model_type in POOLED:
        layout.pooling = "pooler"
    model = _model(transformers, repository, config, part, weights=parsed.weights)
    padding = padding if config.pad_token_id is None else config.pad_token_id
    known = [each for each in (limit, positions(model, config)) if each is not None]
    if longest is not None and known and longest > min(known):
        raise InputError(f"longest={longest}: {name} takes at most {min(known)} tokens")
    chosen = longest or layout.longest or min([*known, LONGEST])
    chosen = min([chosen, *known])
    backbone = _backbone(model, config, layout, padding or 0)
    if parsed.weights:
        _load_dense(repository, backbone, layout)
    options = {"architecture": _architecture(config), **layout.saved()}
    return _network(f"hf:{config.model_type}", backbone, tokenizer, chosen, padding or 0, options)


def _architecture(config: Any) -> dict[str, Any]:
    """Returns a configuration as JSON, without the place where it was."""
    entries: dict[str, Any] = json.loads(config.to_json_string(use_diff=False))
    entries.pop("_name_or_path", None)
    return entries


def _of_type(
    transformers: Any, name: str, parsed: Published, texts: Iterable[Any] | None, longest: int | None
) -> TextNetwork:
    """Builds the default configuration of a model type, with a vocabulary learned from ``texts``."""
    if parsed.weights:
        raise InputError(
            f"encoder={name!r}: {parsed.name!r} is a model type and has no weights; give the name of a model"
        )
    config = transformers.AutoConfig.for_model(parsed.name)
    config = getattr(config, "text_config", config)
    tokenizer = train_tokenizer(texts, name)
    config.vocab_size, config.pad_token_id = tokenizer.get_vocab_size(), 0
    for token in ("bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id"):
        if getattr(config, token, None) is not None:
            setattr(config, token, None)
    model = _model(transformers, Repository(parsed.name, name), config, {}, weights=False)
    most = positions(model, config)
    chosen = min(longest or 128, *([] if most is None else [most]), longest or 128)
    options = {"architecture": _architecture(config), **Layout().saved()}
    return _network(f"hf:{config.model_type}", _backbone(model, config, Layout(), 0), tokenizer, chosen, 0, options)


def _model(
    transformers: Any, repository: Repository, config: Any, part: Mapping[str, str], *, weights: bool
) -> nn.Module:
    """Builds the model of a configuration, in float32, with its weights or with random ones."""
    extra: dict[str, Any] = {}
    if config.model_type in NOT_AUTOMATIC:
        chosen = getattr(transformers, NOT_AUTOMATIC[config.model_type])
        from_config = chosen
    else:
        mapping = getattr(transformers, "MODEL_FOR_TEXT_ENCODING_MAPPING", {})
        chosen = transformers.AutoModelForTextEncoding if type(config) in mapping else transformers.AutoModel
        from_config, extra = chosen.from_config, without_pooling(config)
    try:
        if not weights:
            model: nn.Module = from_config(config, **extra)
        else:
            options = {"output_loading_info": True, "ignore_mismatched_sizes": True, **part, **extra}
            with quiet():
                model, loaded = chosen.from_pretrained(repository.name, config=config, **options)
            other = [key if isinstance(key, str) else key[0] for key in loaded["mismatched_keys"]]
            require_complete(repository.text, model, loaded["missing_keys"], loaded["unexpected_keys"], other)
    except InputError:
        raise
    except OSError as error:
        raise repository.error(f"its weights could not be downloaded or loaded ({first_line(error)})") from error
    except Exception as error:
        raise repository.error(f"cannot be built: {first_line(error)}") from error
    return model.float()


def positions(model: nn.Module, config: Any) -> int | None:
    """Returns how many tokens a model has positions for; None if it has no limit."""
    for name, part in model.named_modules():
        if name.endswith("position_embeddings") and isinstance(part, nn.Embedding):
            first = 0 if part.padding_idx is None else part.padding_idx + 1  # RoBERTa counts from there
            return part.num_embeddings - first
    most = getattr(config, "max_position_embeddings", None)
    return most if isinstance(most, int) and most > 0 else None


def _backbone(model: nn.Module, config: Any, layout: Layout, padding: int) -> PublishedTexts:
    padded = config.max_position_embeddings if config.model_type in PADDED else None
    return PublishedTexts(model, layout, padded=padded, padding=padding)


def _network(
    name: str, backbone: nn.Module, tokenizer: Any, longest: int, padding: int, options: Mapping[str, Any]
) -> TextNetwork:
    """Returns the network, after a trial that measures its features."""
    config = {
        "cells": TextNetwork.cells,
        "kind": PUBLISHED,
        "name": name,
        "longest": longest,
        "padding": padding,
        "options": dict(options),
    }
    if isinstance(backbone, PublishedTexts):
        embeddings = backbone.model.get_input_embeddings()  # type: ignore[operator]
        require_vocabulary(tokenizer, embeddings.num_embeddings, name)
    network = TextNetwork(backbone, tokenizer, longest=longest, feature_dim=0, config=config, padding=padding)
    training = network.training
    try:
        with torch.no_grad():
            network.feature_dim = int(network.eval()(network.trial_cells(2)).shape[1])
    except InputError:
        raise
    except Exception as error:
        raise InputError(
            f"encoder={name!r}: failed on two texts ({first_line(error)}); it must be an encoder of texts"
        ) from error
    network.train(training)
    return network


def _static(
    repository: Repository, layout: Layout, tokenizer: Any, longest: int | None, *, weights: bool
) -> TextNetwork:
    """Builds averaged token vectors of sentence-transformers."""
    tensors = _tensors(repository, inside(layout.part, "model.safetensors"))
    vectors = tensors.get("embedding.weight", tensors.get("embeddings"))
    if vectors is None or vectors.ndim != 2:
        raise repository.error(f"{inside(layout.part, 'model.safetensors')} has no token vectors 'embedding.weight'")
    require_vocabulary(tokenizer, len(vectors), repository.text)
    backbone = PublishedStatic(layout, vocabulary=vectors.shape[0], width=vectors.shape[1])
    if weights:
        backbone.vectors.load_state_dict({"weight": vectors.float()}, assign=True)
        _load_dense(repository, backbone, layout)
    options = {"vocabulary": vectors.shape[0], "width": vectors.shape[1], "normalize": layout.normalize}
    if layout.dense:
        options["dense"] = layout.saved()["dense"]
    return _network("static", backbone, tokenizer, longest or 256, 0, options)


def _tensors(repository: Repository, relative: str) -> dict[str, Tensor]:
    path = repository.file(relative)
    if path is None:
        raise repository.error(f"there is no {relative}; pickles are not read, since they could run code")
    check_file(path, remedy="save the model again")
    try:
        return {key: tensor.clone() for key, tensor in load_file(path).items()}
    except (OSError, SafetensorError) as error:
        raise repository.error(f"{relative} is damaged ({error})") from None


def _load_dense(repository: Repository, backbone: PublishedTexts | PublishedStatic, layout: Layout) -> None:
    for layer, where in zip(backbone.dense, layout.dense_parts, strict=True):
        tensors = _tensors(repository, inside(where, "model.safetensors"))
        _load_into(repository, layer.get_submodule("0"), tensors, "linear.")


def _load_into(repository: Repository, layer: nn.Module, tensors: Mapping[str, Tensor], prefix: str) -> None:
    try:
        layer.load_state_dict({key.removeprefix(prefix): tensor.float() for key, tensor in tensors.items()})
    except RuntimeError as error:
        raise repository.error(
            f"the weights of its dense layer do not match its config.json ({first_line(error)})"
        ) from None


_flag = Shape("true or false", lambda value: isinstance(value, bool))
SAVED: dict[str, Shape] = {"architecture": table, "pooling": text, "dense": list_of(table), "normalize": _flag}
DENSE: dict[str, Shape] = {
    "width_in": whole,
    "width_out": whole,
    "bias": _flag,
    "activation": text,
    "unit": maybe(_flag),
}
STATIC: dict[str, Shape] = {"vocabulary": whole, "width": whole, "normalize": _flag, "dense": maybe(list_of(table))}


def assemble_published_text(
    name: str, tokenizer: Any, *, longest: int, padding: int, options: Mapping[str, Any], where: Path, remedy: str
) -> TextNetwork:
    """Builds the architecture of a saved encoder, with the current generator; nothing is downloaded.

    ``where`` and ``remedy``: the file that describes it, for messages.

    Raises:
        InputError: the description is damaged, or the library is missing.
    """
    options = dict(options)
    if name == "static":
        check_shape(where, options, STATIC, remedy)
        dense = _saved_dense(options.get("dense") or [], where, remedy)
        layout = Layout(static=True, dense=dense, normalize=options["normalize"])
        if options["vocabulary"] * options["width"] > 2**31:
            raise InputError(f"{where}: describes more than 2³¹ parameters; {remedy}")
        require_vocabulary(tokenizer, options["vocabulary"], name)
        static = PublishedStatic(layout, vocabulary=options["vocabulary"], width=options["width"])
        return _network(name, static, tokenizer, longest, padding, options)
    check_shape(where, options, SAVED, remedy)
    if options["pooling"] not in (*POOLINGS.values(), "pooler"):
        raise InputError(f"{where}: describes no encoder of texts that is known; {remedy}")
    dense = _saved_dense(options["dense"], where, remedy)
    layout = Layout(pooling=options["pooling"], dense=dense, normalize=options["normalize"])
    transformers = import_library("hf")
    model_type = options["architecture"].get("model_type")
    if model_type not in transformers.CONFIG_MAPPING:
        hint = did_you_mean(str(model_type), transformers.CONFIG_MAPPING)
        raise InputError(f"{where}: transformers has no model type {model_type!r}{hint}; {remedy}")
    config = transformers.AutoConfig.for_model(**options["architecture"])
    model = _model(transformers, Repository(name, name), config, {}, weights=False)
    return _network(name, _backbone(model, config, layout, padding), tokenizer, longest, padding, options)


def _saved_dense(entries: Iterable[Any], where: Path, remedy: str) -> list[Dense]:
    """Returns the dense layers of a saved encoder, as its file describes them."""
    found = []
    for each in entries:
        checked = check_shape(where, each, DENSE, remedy)
        found.append(Dense(**{key: checked[key] for key in DENSE if checked.get(key) is not None}))
    sizes = all(1 <= size <= 2**16 for each in found for size in (each.width_in, each.width_out))
    if not sizes or any(each.activation not in ACTIVATIONS for each in found):
        raise InputError(f"{where}: describes no encoder of texts that is known; {remedy}")
    return found
