"""Folders of tiny models for images and texts, CLIP and SigLIP, with random weights."""

import pytest
import torch

from tiny_texts import COMMON, WORDS, words


def saved_pair(folder, kind):
    """Saves a tiny CLIP or SigLIP; returns the model, its tokenizer and its image processor."""
    transformers = pytest.importorskip("transformers")
    text = {
        "vocab_size": len(WORDS), "max_position_embeddings": 9, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3,
        "projection_size": 32, **COMMON,
    }  # fmt: skip
    vision = {"image_size": 16, "patch_size": 8, **COMMON}
    torch.manual_seed(0)
    if kind == "clip":
        vision = {**vision, "hidden_size": 40}
        config = transformers.CLIPConfig(text_config=text, vision_config=vision, projection_dim=24)
        model = transformers.CLIPModel(config)
        processor = transformers.CLIPImageProcessorPil(
            size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}
        )
        template = "<s> $A </s>"
    else:
        model = transformers.SiglipModel(transformers.SiglipConfig(text_config=text, vision_config=vision))
        torch.nn.init.constant_(model.logit_bias, -7)
        processor = transformers.SiglipImageProcessorPil(size={"height": 16, "width": 16})
        template = "$A </s>"
    torch.nn.init.constant_(model.logit_scale, 3.0)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    words(template).save(str(folder / "tokenizer.json"))
    return model.eval(), words(template), processor
