"""Plain PyTorch code that loads a saved encoder and prepares photos for it, without coulomb."""

import ast
import inspect
import textwrap
from typing import Any

from coulomb.evaluation.encode import Canvas
from coulomb.models import Encoder, backbones, lite0
from coulomb.models.backbones import ConvNet, ResNet, ViT
from coulomb.models.lite0 import Lite0
from coulomb.models.preprocessing import Preprocessing
from coulomb.runs.prepare import margin_canvas

HEAD = """import numpy as np, torch
from PIL import Image, ImageOps
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional
"""
LOAD = '''
tensors = load_file("encoder.safetensors")
part = lambda name: {{key.removeprefix(name): value for key, value in tensors.items() if key.startswith(name)}}
network = {network}
network.load_state_dict(part("backbone."))
adapter = {adapter}
adapter.load_state_dict(part("adapter."))
network.eval(), adapter.eval()


@torch.no_grad()
def encode(paths):
    """Features [N, {dim}] of image files."""
    pixels = torch.stack([prepare(path) for path in paths])
    return adapter(network((pixels - tensors["normalise.mean"]) / tensors["normalise.std"]))
'''
PUBLISHED = '''

def prepare(path):
    """Pixels [{channels}, {side}, {side}] in [0, 1]: {described}."""
    image = ImageOps.exif_transpose(Image.open(path)).convert("{mode}")
    width, height = image.size
    size = {size}
    image = image.resize(size, Image.Resampling.{resample})
    left, top = ({offset} for n in size)
    values = np.array(image.crop((left, top, left + {side}, top + {side})), np.float32)
    return torch.from_numpy(values.reshape({side}, {side}, {channels})).permute(2, 0, 1) / 255
'''
CANVAS = '''

def prepare(path):
    """Pixels [{channels}, {side}, {side}] in [0, 1]: a square canvas, then the short side to {side} pixels, centre crop."""
    image = ImageOps.exif_transpose(Image.open(path)).convert("{mode}")
    width, height = image.size
    if width != height or width not in {stored}:
        image = image.resize(({margin}, {margin}), Image.Resampling.BILINEAR)
    across, down = min(1, height / width) * image.width, min(1, width / height) * image.width
    box = ((image.width - across) / 2, (image.width - down) / 2, (image.width + across) / 2, (image.width + down) / 2)
    planes = [band.convert("F").resize(({side}, {side}), Image.Resampling.BILINEAR, box=box) for band in image.split()]
    return torch.from_numpy(np.stack([np.array(plane) for plane in planes])).clamp(0, 255) / 255
'''


def plain_code(encoder: Encoder, canvas: Canvas | None) -> str | None:
    """Returns a program that defines ``encode(paths)``; None for encoders of other libraries, of users, or of other channels.

    It is to be run in the folder with ``encoder.safetensors``. Its classes are those of `coulomb.models`, without docstrings,
    annotations and initialisation. Features equal those of `ImageEncoder.encode` up to rounding.
    """
    shown = _network(encoder)
    if shown is None or encoder.channels not in (1, 3) or (canvas is None and encoder.preprocessing is None):
        return None
    definitions, network = shown
    facts = {"side": encoder.image_size, "channels": encoder.channels, "mode": "RGB" if encoder.channels == 3 else "L"}
    if canvas is not None:
        prepare = CANVAS.format(
            **facts, stored=sorted({canvas.size, encoder.image_size}), margin=margin_canvas(encoder.image_size)
        )
    else:
        assert encoder.preprocessing is not None
        prepare = _published(encoder.preprocessing, facts)
    adapter = "nn.Identity()" if encoder.adapter is None else f"nn.{encoder.adapter!r}"
    load = LOAD.format(network=network, adapter=adapter, dim=encoder.feature_dim)
    return HEAD + "\n\n" + "\n\n\n".join(definitions) + "\n" + prepare + "\n" + load


def _published(chosen: Preprocessing, facts: dict[str, Any]) -> str:
    resize = chosen.resize
    kept = f"({resize} * width // min(width, height), {resize} * height // min(width, height))"
    return PUBLISHED.format(
        **facts,
        described=chosen.describe(),
        size=f"({resize}, {resize})" if chosen.squash else kept,
        resample=chosen.resample.upper(),
        offset=f"(n - {chosen.side}) // 2" if chosen.offset_down else f"round((n - {chosen.side}) / 2)",
    )


def _network(encoder: Encoder) -> tuple[list[str], str] | None:
    """Returns the definitions that a built-in network needs, and the expression that makes it."""
    backbone, config = encoder.backbone, encoder.config
    size = config.get("built_for") or config["image_size"]
    shared = f"channels={encoder.channels}, "
    options = "".join(f", {name}={value!r}" for name, value in config.get("options", {}).items())
    if isinstance(backbone, ConvNet):
        made = f"ConvNet({shared}image_size={size}{options})"
        parts = [backbones.convolution, backbones.use_group_norm, ConvNet]
        return [f"LARGEST_MAP = {backbones.LARGEST_MAP}", *map(source, parts)], made
    if isinstance(backbone, ResNet):
        first = next(iter(backbone.stages[0].children()))
        parts = [backbones.convolution, backbones.use_group_norm, backbones.shortcut, type(first), ResNet]
        norm = config.get("options", {}).get("norm", "batch")
        depths = tuple(len(stage) for stage in backbone.stages)  # type: ignore[arg-type]
        made = (
            f"ResNet({type(first).__name__}, {depths}, {shared}width={backbone.stem[0].out_channels}, "
            f"small_stem={len(backbone.stem) == 3}, zero_init_residual=False, norm={norm!r})"
        )
        return [source(part) for part in parts], made
    if isinstance(backbone, ViT):
        chosen = {"patch": backbone.patch} | {
            name: value for name, value in config["options"].items() if name != "patch"
        }
        listed = "".join(f", {name}={value!r}" for name, value in chosen.items())
        return [source(backbones.Block), source(ViT)], f"ViT({shared}image_size={size}{listed})"
    if isinstance(backbone, Lite0):
        parts = [lite0.SameConv2d, lite0.convolution, lite0.norm, lite0.InvertedResidual, Lite0]
        return [f"STAGES = {lite0.STAGES}", *map(source, parts)], f"Lite0({shared}image_size={size})"
    return None


def source(definition: Any) -> str:
    """Returns the source of a class or function without docstrings, annotations, errors and initialisation."""
    tree = _Plain().visit(ast.parse(textwrap.dedent(inspect.getsource(definition))))
    return ast.unparse(ast.fix_missing_locations(tree))


LEFT_OUT = ("initialise", "last_norm")  # methods
INITIALISES = ("nn.init.", "self.initialise(")  # beginnings of statements


class _Plain(ast.NodeTransformer):
    """Removes what a loaded network does not need."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        """Removes methods of initialisation, docstrings and annotations."""
        if node.name in LEFT_OUT:
            return None
        node.returns = None
        return self._body(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        """Removes the docstring."""
        return self._body(node)

    def _body(self, node: Any) -> ast.AST:
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:]
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        """Removes an annotation."""
        node.annotation = None
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        """Removes an annotation."""
        assert node.value is not None
        return ast.Assign(targets=[node.target], value=node.value, lineno=node.lineno)

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        """Removes calls that initialise weights."""
        return None if ast.unparse(node).startswith(INITIALISES) else self.generic_visit(node)

    def visit_For(self, node: ast.For) -> ast.AST | None:
        """Removes loops over modules, which initialise weights."""
        return None if ast.unparse(node.iter) == "self.modules()" else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        """Removes checks that raise an error."""
        return None if isinstance(node.body[0], ast.Raise) else self.generic_visit(node)
