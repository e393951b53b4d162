"""Folders of tiny published encoders of texts, with random weights."""

import json
from pathlib import Path

import pytest
import torch

WORDS = {word: place for place, word in enumerate("[PAD] [UNK] <s> </s> a red flower and its leaf cat sofa".split())}
TEXTS = ["a red flower", "cat", "a cat and its sofa and a red leaf", "a red flower and its leaf"]
COMMON = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def words(template="<s> $A </s>"):
    """A tokenizer of words."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(WORDS, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing(
        template, special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    return tokenizer


def batch(tokenizer, texts=TEXTS, longest=9, fixed=False):
    """Token ids and attention mask by the tokenizer itself, padded to ``longest`` if ``fixed``."""
    tokenizer.enable_truncation(longest)
    tokenizer.enable_padding(length=longest if fixed else None)
    encodings = tokenizer.encode_batch(list(texts))
    return torch.tensor([each.ids for each in encodings]), torch.tensor([each.attention_mask for each in encodings])


def bert(folder, kind="bert", **options):
    """Saves a tiny BERT, or another model type, and returns it."""
    transformers = pytest.importorskip("transformers")
    config = transformers.AutoConfig.for_model(
        kind, **{"vocab_size": len(WORDS), "max_position_embeddings": 16, **COMMON, **options}
    )
    torch.manual_seed(0)
    model = transformers.AutoModel.from_config(config).eval()
    model.save_pretrained(folder)
    words().save(str(Path(folder) / "tokenizer.json"))
    return model


def sentence_layout(folder, modules=("Transformer", "Pooling"), pooling=None, **more):
    """Adds the files of sentence-transformers."""
    folder = Path(folder)
    listed = [
        {
            "idx": place,
            "name": str(place),
            "path": f"{place}_{name}" if place else "",
            "type": f"sentence_transformers.{name}",
        }
        for place, name in enumerate(modules)
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    for each in listed[1:]:
        (folder / each["path"]).mkdir(exist_ok=True)
        if each["type"].endswith("Pooling"):
            entries = {"word_embedding_dimension": 32, **(pooling or {"pooling_mode_mean_tokens": True})}
            (folder / each["path"] / "config.json").write_text(json.dumps(entries))
    for name, content in more.items():
        (folder / f"{name}.json").write_text(json.dumps(content))


class Mean(torch.nn.Module):
    """A module of a user: token vectors, averaged here or by coulomb."""

    def __init__(self, width=8, pooled=False, positions=1000):
        super().__init__()
        self.vectors, self.pooled = torch.nn.Embedding(len(WORDS), width), pooled
        self.positions = torch.nn.Embedding(positions, width)

    def forward(self, input_ids, attention_mask):
        at = torch.arange(input_ids.shape[1])
        states = self.vectors(input_ids) + self.positions(at)
        if not self.pooled:
            return states
        mask = attention_mask[..., None]
        return (states * mask).sum(1) / mask.sum(1)
