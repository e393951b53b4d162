"""Writes an encoder of texts as a folder that sentence-transformers opens, without code of its own."""

from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import save
from torch import Tensor, nn

from coulomb.export.extras import library
from coulomb.export.tokenizer_file import complete_tokenizer
from coulomb.ground.errors import InputError
from coulomb.ground.files import write_atomically, write_json
from coulomb.ground.version import __version__
from coulomb.models.adapter import UnitLinear
from coulomb.models.published import quiet
from coulomb.models.published_text import PublishedStatic, PublishedTexts
from coulomb.models.text_backbones import StaticVectors, TextBlock, TextTransformer
from coulomb.models.text_layout import POOLINGS
from coulomb.models.text_network import TextNetwork
from coulomb.models.tokenizing import TOKENIZER

MODULES, SETTINGS, TENSORS, CONFIG = (
    "modules.json",
    "config_sentence_transformers.json",
    "model.safetensors",
    "config.json",
)
TYPE = "sentence_transformers.models."


class Modules:
    """The modules of a folder of sentence-transformers, one folder each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listed: list[dict[str, Any]] = []

    def add(self, kind: str) -> Path:
        """Adds a module, and returns its folder; Normalize has no files and needs none."""
        name = f"{len(self.listed)}_{kind}"
        self.listed.append({"idx": len(self.listed), "name": name, "path": name, "type": TYPE + kind})
        if kind != "Normalize":
            (self.folder / name).mkdir(parents=True)
        return self.folder / name

    def normalize(self) -> None:
        """Adds the division by the length, unless it is the last module already."""
        if not self.listed[-1]["type"].endswith("Normalize"):
            self.add("Normalize")

    def dense(self, layer: nn.Linear, activation: nn.Module | None = None) -> None:
        """Adds a linear layer."""
        chosen = type(activation or nn.Identity())
        config = {
            "in_features": layer.in_features,
            "out_features": layer.out_features,
            "bias": layer.bias is not None,
            "activation_function": f"{chosen.__module__}.{chosen.__qualname__}",
        }
        folder = self.add("Dense")
        write_json(folder / CONFIG, config)
        write_tensors(folder / TENSORS, {f"linear.{name}": each for name, each in layer.state_dict().items()})

    def write(self) -> None:
        """Writes the list of modules and the settings."""
        write_modules(self.folder, self.listed)


def write_modules(folder: Path, listed: list[dict[str, Any]]) -> None:
    """Writes ``modules.json`` and the settings of a folder."""
    settings = {
        "model_type": "SentenceTransformer",
        "__version__": {"coulomb": __version__},
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "cosine",
    }
    write_json(folder / MODULES, listed)
    write_json(folder / SETTINGS, settings)


def write_tensors(path: Path, tensors: dict[str, Tensor]) -> None:
    """Writes tensors as safetensors."""
    kept = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_atomically(path, save(kept, metadata={"format": "pt"}))


def write_sentence_folder(network: TextNetwork, folder: Path) -> list[dict[str, Any]]:
    """Writes an encoder of texts, and returns the content of ``modules.json``.

    ====================  =======================================================================================
    backbone              modules
    ====================  =======================================================================================
    averaged vectors      StaticEmbedding
    of transformers       Transformer, Pooling, its Dense layers and Normalize
    transformer-small     Transformer, Pooling: exactly XLM-RoBERTa-XL, a transformer whose layers normalize first
    ====================  =======================================================================================

    The adapter becomes a Dense without activation, and Normalize is last: features have unit length.

    Raises:
        InputError: sentence-transformers has no modules for this encoder.
    """
    backbone, modules = network.backbone, Modules(folder)
    if isinstance(backbone, StaticVectors):
        _write_static(network, backbone, modules)
    elif isinstance(backbone, TextTransformer):
        _write_transformer(network, as_xlm_roberta_xl(backbone, network), modules, "mean")
    else:
        if not isinstance(backbone, PublishedTexts):
            raise InputError(
                f"to=hub: {network.name} is a module of your own, for which sentence-transformers has no module; export it "
                "with --to onnx"
            )
        if backbone.pooling == "pooler" or backbone.padded is not None:
            raise InputError(
                f"to=hub: {network.name} pools in a way of its own, for which sentence-transformers has no module; "
                "export it with --to onnx"
            )
        _write_transformer(network, backbone.model, modules, backbone.pooling)
    if isinstance(backbone, PublishedTexts | PublishedStatic):
        for layer, unit in zip(backbone.dense, backbone.units, strict=True):
            if unit:
                modules.normalize()
            modules.dense(cast(nn.Linear, layer.get_submodule("0")), layer.get_submodule("1"))
        if backbone.normalize:
            modules.normalize()
    if network.adapter is not None:
        if isinstance(network.adapter, UnitLinear):
            modules.normalize()
        modules.dense(cast(nn.Linear, network.adapter))
    modules.normalize()
    modules.write()
    return modules.listed


def _write_static(network: TextNetwork, backbone: StaticVectors, modules: Modules) -> None:
    if network.tokenizer.num_special_tokens_to_add(False):
        raise InputError(
            f"to=hub: the tokenizer of {network.name} adds tokens to each text, and StaticEmbedding of sentence-transformers "
            "does not; export it with --to onnx"
        )
    folder = modules.add("StaticEmbedding")
    write_atomically(folder / TOKENIZER, complete_tokenizer(network, pad=False).to_str(pretty=False).encode())
    write_tensors(folder / TENSORS, {"embedding.weight": backbone.vectors.weight})


def _write_transformer(network: TextNetwork, model: nn.Module, modules: Modules, pooling: str) -> None:
    folder = modules.add("Transformer")
    with quiet():
        model.save_pretrained(folder)  # type: ignore[operator]
    tokenizer = complete_tokenizer(network, cut=False, pad=False)
    write_atomically(folder / TOKENIZER, tokenizer.to_str(pretty=False).encode())
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": network.longest,
        "pad_token": tokenizer.id_to_token(network.padding),
        "padding_side": "right",
        "truncation_side": "right",
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
    }
    write_json(folder / "tokenizer_config.json", settings)
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": network.longest, "do_lower_case": False})
    width = model.config.hidden_size  # type: ignore[union-attr]
    modes: dict[str, Any] = {key: chosen == pooling for key, chosen in POOLINGS.items()}
    write_json(modules.add("Pooling") / CONFIG, {"word_embedding_dimension": width, **modes})


def as_xlm_roberta_xl(backbone: TextTransformer, network: TextNetwork) -> nn.Module:
    """Returns a backbone as a model of transformers that computes the same; positions begin at 1, after the padding."""
    transformers: Any = library("transformers", "hf", "hub")
    blocks = [cast(TextBlock, block) for block in backbone.blocks]
    width = backbone.feature_dim
    config = transformers.XLMRobertaXLConfig(
        vocab_size=backbone.embed.num_embeddings,
        hidden_size=width,
        num_hidden_layers=len(blocks),
        num_attention_heads=blocks[0].heads,
        intermediate_size=4 * width,
        max_position_embeddings=network.longest + 1,
        type_vocab_size=1,
        layer_norm_eps=backbone.norm.eps,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
    )
    model: nn.Module = transformers.XLMRobertaXLModel(config, add_pooling_layer=False).eval()
    zeros = torch.zeros(1, width)
    tensors = {
        "embeddings.word_embeddings.weight": backbone.embed.weight,
        "embeddings.position_embeddings.weight": torch.cat([zeros, backbone.positions.detach().cpu()]),
        "embeddings.token_type_embeddings.weight": zeros,
        **_prefixed("encoder.LayerNorm", backbone.norm),
    }
    for place, block in enumerate(blocks):
        layer = f"encoder.layer.{place}"
        names = (f"{layer}.attention.self.{part}" for part in ("query", "key", "value"))
        weights, biases = (each.chunk(3) for each in (block.query_key_value.weight, block.query_key_value.bias))
        for name, weight, bias in zip(names, weights, biases, strict=True):
            tensors |= {f"{name}.weight": weight, f"{name}.bias": bias}
        tensors |= _prefixed(f"{layer}.attention.self_attn_layer_norm", block.norm1)
        tensors |= _prefixed(f"{layer}.attention.output.dense", block.mix)
        tensors |= _prefixed(f"{layer}.LayerNorm", block.norm2)
        tensors |= _prefixed(f"{layer}.intermediate.dense", cast(nn.Linear, block.mlp[0]))
        tensors |= _prefixed(f"{layer}.output.dense", cast(nn.Linear, block.mlp[2]))
    model.load_state_dict({name: tensor.detach().cpu() for name, tensor in tensors.items()})
    return model


def _prefixed(name: str, module: nn.Module) -> dict[str, Tensor]:
    return {f"{name}.{key}": tensor for key, tensor in module.state_dict().items()}
