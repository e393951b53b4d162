"""Plain PyTorch code that loads a saved encoder and prepares photos for it, without coulomb."""

import ast
import inspect
import textwrap
from typing import Any

from coulomb.kinds.image import band_files, decode, pixels
from coulomb.kinds.image.bands import Bands, scaled
from coulomb.kinds.image.canvas import Canvas, margin_canvas
from coulomb.models import ImageNetwork, backbones, lite0
from coulomb.models.adapter import UnitLinear
from coulomb.models.backbones import ConvNet, ResNet, ViT
from coulomb.models.lite0 import Lite0, Lite0Stages
from coulomb.models.preprocessing import Preprocessing

HEAD = """import functools, io, pathlib
import numpy as np, torch
from PIL import ExifTags, Image, ImageOps
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
    return adapter(network((pixels - tensors["normalize.mean"]) / tensors["normalize.std"]))
'''
PUBLISHED = '''

def prepare(path):
    """Pixels [{channels}, {side}, {side}] in [0, 1]: {described}."""
    with Image.open(path, formats=formats()) as image:
        photo = eight_bits(to_channels(pixels(upright(image)), {channels}))
    height, width = photo.shape[:2]
    size = {size}
    image = Image.fromarray(photo{squeezed}).resize(size, Image.Resampling.{resample})
    left, top = ({offset} for n in size)
    values = np.array(image.crop((left, top, left + {side}, top + {side})), np.float32)
    return torch.from_numpy(values.reshape({side}, {side}, {channels})).permute(2, 0, 1) / 255
'''
CANVAS = '''

def prepare(path):
    """Pixels [{channels}, {side}, {side}] in [0, 1]: a square canvas, then the short side to {side} pixels, center crop."""
    with Image.open(path, formats=formats()) as image:
        width, height = upright_size(image)
        size = width if width == height and width in {stored} else {margin}
        image.draft(None, (2 * size, 2 * size))  # large JPEG files are decoded at a reduced size
        photo = pixels(upright(image))
    kind = "float32" if photo.dtype == np.float32 else "{dtype}"
    canvas = to_canvas(photo, size, {channels}, kind)[0].astype(np.float32) / (255 if kind == "uint8" else 1)
    across, down = min(1, height / width) * size, min(1, width / height) * size
    box = ((size - across) / 2, (size - down) / 2, (size + across) / 2, (size + down) / 2)
    planes = [Image.fromarray(np.ascontiguousarray(plane)) for plane in canvas.transpose(2, 0, 1)]
    planes = [plane.resize(({side}, {side}), Image.Resampling.BILINEAR, box=box) for plane in planes]
    return torch.from_numpy(np.stack([np.array(plane) for plane in planes])).clamp(0, 1)
'''


BANDS = '''

def prepare(path):
    """Pixels [{channels}, {side}, {side}] in [0, 1] of a TIFF or .npy file: bands, scaled, a square canvas, center crop."""
    photo = as_stored(pathlib.Path(path).read_bytes())
    if photo.shape[2] != {count} or (photo.dtype == np.uint8) != ({dtype!r} == "uint8"):
        raise ValueError(f"{{path}}: {{photo.dtype}} {{photo.shape}}; the encoder was trained on {count} channels of {depth}")
    photo = {scaled}
    height, width = photo.shape[:2]
    size = width if width == height and width in {stored} else {margin}
    canvas = resize(photo, size).astype(np.float32) / ({unit})
'''


def band_reading_code() -> str:
    """Returns source code that reads all channels of a TIFF or .npy file, copied from coulomb's functions."""
    parts = (
        band_files.values_of_array,
        band_files.in_order,
        band_files.values_of_tiff,
        band_files.of_pictures,
        band_files.as_stored,
    )
    constants = f"MOST_CHANNELS = {band_files.MOST_CHANNELS}"
    return "\n\n\n".join([constants, *(source(part, checks=True) for part in parts)])


def reading_code(*further: Any) -> str:
    """Returns source code that reads an opened image as `ImageEncoder.encode` does, copied from coulomb's functions.

    Args:
        further: functions of `coulomb.tables` that are needed after ``to_channels(pixels(upright(image)), channels)``.
    """
    constants = [f"{name} = {getattr(pixels, name)}" for name in ("FORMATS", "ALPHA", "GRAY")]
    return "\n\n\n".join(["\n".join(constants), *(source(part, checks=True) for part in (*READS, *further))])


READS = (
    pixels.formats,
    pixels.orientation,
    pixels.upright_size,
    pixels.upright,
    pixels.is_transparent,
    pixels.has_gray_palette,
    pixels.pixels,
    pixels.sixteen_bits,
    pixels.checked_unit_range,
    pixels.to_channels,
    pixels.eight_bits,
)


def plain_code(encoder: ImageNetwork, canvas: Canvas | None) -> str | None:
    """Returns a program that defines ``encode(paths)``; None for encoders of other libraries, of users, or of other channels.

    Run it in the folder with ``encoder.safetensors``. Its classes are copied from `coulomb.models`, without docstrings,
    annotations and initialization. Features equal the result of `ImageEncoder.encode` up to rounding.
    """
    shown = _network(encoder)
    if isinstance(encoder.adapter, UnitLinear):  # of a run on several columns
        return None
    bands = None if canvas is None else canvas.bands
    if shown is None or (encoder.channels not in (1, 3) and bands is None):
        return None
    if canvas is None and encoder.preprocessing is None:
        return None
    definitions, network = shown
    facts: dict[str, Any] = {"side": encoder.image_size, "channels": encoder.channels}
    if canvas is not None:
        facts |= {
            "dtype": canvas.dtype,
            "stored": sorted({canvas.size, encoder.image_size}),
            "margin": margin_canvas(encoder.image_size),
        }
    if bands is not None:
        prepare = _of_bands(bands, facts)
        reading = "\n\n\n".join([band_reading_code(), *(source(part) for part in (scaled, decode.resize))])
    elif canvas is not None:
        prepare = CANVAS.format(**facts)
        reading = reading_code(decode.resize, decode.to_canvas)
    else:
        assert encoder.preprocessing is not None
        reading = reading_code()
        prepare = _published(encoder.preprocessing, facts)
    adapter = "nn.Identity()" if encoder.adapter is None else f"nn.{encoder.adapter!r}"
    load = LOAD.format(network=network, adapter=adapter, dim=encoder.feature_dim)
    return HEAD + "\n\n" + "\n\n\n".join([*definitions, reading]) + "\n" + prepare + "\n" + load


def _of_bands(bands: Bands, facts: dict[str, Any]) -> str:
    """Returns ``prepare`` for bands; from the canvas on, it is the one for photos."""
    chosen, ranges = list(bands.chosen), (list(bands.low), list(bands.high), list(bands.fill))
    index = [band - 1 for band in chosen]
    how = f"photo[..., {index}]" if bands.eight_bits else f"scaled(photo, {chosen}, {', '.join(map(str, ranges))})"
    own = {"count": bands.count, "depth": bands.depth, "scaled": how, "unit": 255 if bands.eight_bits else 1}
    return BANDS.format(**facts, **own) + CANVAS[CANVAS.index("    across, down") :].format(**facts)


def _published(chosen: Preprocessing, facts: dict[str, Any]) -> str:
    resize = chosen.resize
    kept = f"({resize} * width // min(width, height), {resize} * height // min(width, height))"
    return PUBLISHED.format(
        **facts,
        described=chosen.describe(),
        size=f"({resize}, {resize})" if chosen.squash else kept,
        squeezed="" if facts["channels"] == 3 else "[..., 0]",
        resample=chosen.resample.upper(),
        offset=f"(n - {chosen.side}) // 2" if chosen.offset_down else f"round((n - {chosen.side}) / 2)",
    )


def _network(encoder: ImageNetwork) -> tuple[list[str], str] | None:
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
        if isinstance(backbone, Lite0Stages):
            parts.append(Lite0Stages)
        constants = [f"STAGES = {lite0.STAGES}", f"ENDS = {lite0.ENDS}"]
        return [*constants, *map(source, parts)], f"{type(backbone).__name__}({shared}image_size={size})"
    return None


def source(definition: Any, *, checks: bool = False) -> str:
    """Returns the source of a class or function without docstrings, annotations and initialization.

    Args:
        definition: the class or function.
        checks: keep checks that raise an error; `InputError` becomes ValueError, from which it is derived.
    """
    tree = _Plain(checks).visit(ast.parse(textwrap.dedent(inspect.getsource(definition))))
    return ast.unparse(ast.fix_missing_locations(tree))


LEFT_OUT = ("initialize", "last_norm")  # methods
INITIALIZES = ("nn.init.", "self.initialize(")  # beginnings of statements


class _Plain(ast.NodeTransformer):
    """Removes what a loaded network does not need."""

    def __init__(self, checks: bool) -> None:
        self.checks = checks

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Renames the error of coulomb."""
        return ast.Name("ValueError", node.ctx) if node.id == "InputError" else node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
        """Removes methods of initialization, docstrings and annotations."""
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
        """Removes calls that initialize weights."""
        return None if ast.unparse(node).startswith(INITIALIZES) else self.generic_visit(node)

    def visit_For(self, node: ast.For) -> ast.AST | None:
        """Removes loops over modules, which initialize weights."""
        return None if ast.unparse(node.iter) == "self.modules()" else self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST | None:
        """Removes checks that raise an error."""
        return None if isinstance(node.body[0], ast.Raise) and not self.checks else self.generic_visit(node)
