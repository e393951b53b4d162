"""Folders of small images, and an encoder that is quick to open."""

import json
import os

import numpy as np
from PIL import Image

from coulomb.index.contents import checksums
from coulomb.index.folder import IndexFolder
from coulomb.models import build_encoder
from coulomb.models.image_encoder import ImageEncoder


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


def rewrite_info(path, **entries):
    """Changes entries of ``index.json``, with a valid checksum; of a table, only the given entries."""
    place = IndexFolder(path)
    info = json.loads(place.info.read_text())
    entries = {name: info[name] | value if isinstance(value, dict) else value for name, value in entries.items()}
    place.write_info(info | entries)


def accept_files(path):
    """Gives the files of an index valid checksums, as a program does that writes an index of its own."""
    place = IndexFolder(path)
    rewrite_info(path, files=checksums(place.generation(json.loads(place.info.read_text())["generation"])))
