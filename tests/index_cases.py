"""Folders of small images, and an encoder that is quick to open."""

import os

import numpy as np
from PIL import Image

from coulomb.evaluation.image_encoder import ImageEncoder
from coulomb.models import build_encoder


def picture(seed, width=24, height=20):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8))


def folder(root, count=10, classes=2):
    """``count`` PNG files of noise, ``a/00.png``, ``b/01.png``, …"""
    for number in range(count):
        path = root / "ab"[number % classes] / f"{number:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(number).save(path)
    return root


def tiny(seed=0, size=16):
    return ImageEncoder(build_encoder("convnet", channels=3, image_size=size, width=8, seed=seed), "tiny")


def age(path, seconds=5):
    """Makes a file older, so that a change of its content changes its time as well."""
    status = path.stat()
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns - int(seconds * 1e9)))
