"""A SentenceTransformer with a tiny random BERT, made without a hub. Imports sentence-transformers when called."""

import os

import pytest

from tiny_texts import TEXTS, bert, words

REASON = "needs sentence-transformers 6.2 or newer: pip install 'coulomb[integrations]'"
COLUMNS = (
    [*TEXTS, "sofa", "red leaf", "its flower"],
    ["flower red", "a cat", "sofa and cat", "leaf and flower", "its sofa", "leaf", "a flower and a leaf"],
    ["sofa", "red", "a leaf", "cat and cat", "flower", "a red sofa", "its cat"],
    ["and its", "a red cat", "its red leaf", "flower", "leaf", "cat sofa", "red"],
)


def peer():
    """The library, or a skip that says what is missing."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    library = pytest.importorskip("sentence_transformers", minversion="6.2", reason=REASON)
    pytest.importorskip("accelerate", reason="the trainer needs accelerate: pip install 'coulomb[integrations]'")
    return library


def tiny_model(folder, dropout=0.0, pooling="mean", **options):
    """A SentenceTransformer in training mode, of 32 dimensions."""
    library = peer()
    import transformers
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    if not (folder / "config.json").exists():
        bert(folder, hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, **options)
        special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "<s>", "sep_token": "</s>"}
        transformers.PreTrainedTokenizerFast(tokenizer_object=words(), model_max_length=16, **special).save_pretrained(
            folder
        )
    transformer = Transformer(str(folder))
    model = library.SentenceTransformer(
        modules=[transformer, Pooling(transformer.get_embedding_dimension(), pooling)], device="cpu"
    )
    model.model_card_data.generate_widget_examples = False
    return model.train()


def features(model, columns):
    """The tokens of each column."""
    return [model.preprocess(list(texts)) for texts in columns]


def gradients(model):
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
