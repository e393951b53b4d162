"""Wrong command lines, for a folder that `prepare` has filled; each must end with one error line and exit code 2."""

import json
import shlex

import numpy as np
from PIL import Image

FILES = {
    "syntax.py": "def broken(:\n",
    "fails.py": "import torch\n1 / 0\n",
    "imports.py": "import no_such_package_anywhere\n",
    "exits.py": "def Net():\n    return 3\n",
    "own.py": (
        "import torch\n"
        "class Wide(torch.nn.Module):\n"
        "    def __init__(self, width):\n        super().__init__()\n"
        "class Empty(torch.nn.Module):\n"
        "    def forward(self, x):\n        return x.flatten(1)\n"
        "class Tuple(torch.nn.Linear):\n"
        "    def __init__(self):\n        super().__init__(2, 2)\n"
        "    def forward(self, x):\n        return x, x\n"
        "class NoEncoder(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "    def forward(self, views, labels, train_row):\n        return views['image'].sum()\n"
        "class Sized(torch.nn.Module):\n"
        "    def __init__(self, tower, size):\n        super().__init__()\n"
        "    def forward(self, views, labels, train_row):\n        return views['image'].sum()\n"
        "class NoParameters(torch.nn.Module):\n"
        "    def __init__(self, tower):\n        super().__init__()\n"
        "    def forward(self, views, labels, train_row):\n        return views['image'].sum()\n"
        "class Forward(torch.nn.Module):\n"
        "    def __init__(self, tower):\n        super().__init__()\n"
        "    def forward(self, views):\n        return views[0].sum()\n"
        "number = 3\n"
        "def unlike(what, that, other):\n    return what.sum()\n"
        "def raises(z0, z1):\n    raise RuntimeError('no')\n"
        "def pair(z0, z1):\n    return (z0 - z1).square().mean()\n"
    ),
    "notes.txt": "no images\n",
    "empty.csv": "",
    "header.csv": "path,label\n",
    "columns.csv": "a,b\n1,2\n",
    "ragged.csv": "path,label\na.png,1,2\n",
    "outside.csv": "path\n../../etc/passwd\n",
    "missing.csv": "path\nnothing.png\n",
    "binary.csv": b"\xff\xfe\x00path\n",
    "broken.parquet": b"PAR1 and no more",
    "broken.npy": b"\x93NUMPY and no more",
    "broken.npz": b"PK and no more",
    "list.yaml": "- 1\n- 2\n",
    "broken.yaml": "a: [1\n",
    "unknown.yaml": "temprature: 1\n",
    "types.yaml": "epochs: many\n",
    "pickle.yaml": "data: !!python/object:os.system x\n",
    "archive.tar": b"no archive",
}


def prepare(folder):
    """Fills ``folder`` with the data and files that the command lines name."""
    for name, content in FILES.items():
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    rng = np.random.default_rng(0)
    for name, count in (("photos", 12), ("two", 2), ("one", 1), ("empty", 0)):
        (folder / name).mkdir()
        for number in range(count):
            picture = rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(picture).save(folder / name / f"{number:02}.png")
    for label in ("cat", "dog"):
        (folder / "classes" / label).mkdir(parents=True)
        for number in range(6):
            picture = rng.integers(0, 256, (20, 20, 3), dtype=np.uint8)
            Image.fromarray(picture).save(folder / "classes" / label / f"{number}.png")
    (folder / "corrupt").mkdir()
    for number in range(4):
        (folder / "corrupt" / f"{number}.png").write_bytes(b"no picture")
    np.save(folder / "floats.npy", np.full((8, 16, 16), 200.0))
    np.save(folder / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.savez(folder / "labels.npz", images=np.zeros((8, 16, 16), np.uint8), labels=np.arange(3))
    (folder / "seeds").mkdir()
    (folder / "seeds" / "seeds.json").write_text(json.dumps({"seeds": [0, 1], "options": {"data": "photos"}}))
    (folder / "filled").mkdir()
    (folder / "filled" / "mine.txt").write_text("kept")
    (folder / "empty-run").mkdir()
    (folder / "broken-run").mkdir()
    (folder / "broken-run" / "config.yaml").write_text("data: [\n")


QUICK = "--out new --epochs 1 --batch-size 4 --encoder convnet --encoder-width 8 --image-size 16 --workers 0 --quiet"

# After `train photos` and QUICK; a later option replaces an earlier one.
TRAIN = """
--epochs 999999999999999999999999
--epochs -1
--epochs 1.5
--epochs many
--epochs ''
--batch-size 1
--batch-size 0
--batch-size -4
--batch-size 5000
--batch-size 99999999999999999999
--accumulate 0
--accumulate 1e3
--temperature 0
--temperature -1
--temperature nan
--temperature inf
--temperature hot
--lr nan
--lr -1
--lr inf
--momentum -0.5
--weight-decay -1
--warmup-epochs 5
--warmup-epochs -1
--warmup-epochs nan
--schedule linear
--lr-drops 2
--lr-drops -0.1
--lr-drops nan
--optimizer adam
--precision 16
--accelerator gpu
--accelerator tpu
--accelerator cuda:0
--devices 0
--devices -1
--devices two
--devices 1000000
--num-nodes 0
--nodes 0
--workers -1
--workers many
--cache-gb -1
--cache-gb nan
--cache-gb 'a lot'
--max-corrupt -1
--max-corrupt nan
--seed 1.5
--seed 99999999999999999999999999
--knn-every -1
--knn-k 0
--knn-sigma 0
--knn-sigma nan
--pulse -1
--many-above -1
--many-above 5 --few-below 50
--few-below -3
--checkpoint-every 0
--embedding-dim 0
--embedding-dim 100000000000000000000
--head-layers 0
--head-hidden-dim 0
--image-size 3
--image-size 0
--image-size -16
--image-size 99999999999999999999
--image-size big
--image-size 200000
--channels 0
--channels 5
--channels 99
--n-views 0
--n-views 1
--test-fraction 0
--test-fraction 1
--test-fraction -0.5
--test-fraction nan
--test nowhere
--test empty
--test notes.txt
--test corrupt
--labels column
--root /
--root nowhere
--long-tail x
--long-tail exponential
--long-tail exponential:0
--long-tail exponential:-5
--long-tail exponential:nan
--long-tail exponential:100
--sampler balanced
--sampler class_balanced
--method magic
--method ''
--method simclr.py
--method missing.py:Mine
--method syntax.py:Mine
--method fails.py:Mine
--method imports.py:Mine
--method own.py:Nothing
--method own.py:number
--method own.py:
--method own.py:NoEncoder
--method own.py:Sized
--method own.py:NoParameters
--method own.py:Forward
--method custom:Mine
--method supcon
--method softmax
--method moco --option queue_size
--method moco --option queue_size=
--method moco --option queue_size=-1
--method moco --option queue_size=many
--method moco --option queue_size=1.5
--method moco --option queue_size=!!python/object:x
--method moco --option 'queue_size=: :'
--method moco --option 'queue_size=[1'
--method moco --option 'queue_size={a: 1}'
--method moco --option 'queue_size=999999999999999999999'
--method moco --option queue_sise=3
--method moco --option =3
--method moco --option momentum=2
--method moco --option momentum=.nan
--method moco --option temperature=1
--method simclr --option a=1
--method byol --option momentum=x
--method instdisc --option noise_samples=0
--method instdisc --option bank_path=/nowhere/bank
--preset large
--encoder resnet7
--encoder ''
--encoder missing.py:Net
--encoder syntax.py:Net
--encoder fails.py:Net
--encoder imports.py:Net
--encoder exits.py:Net
--encoder own.py:Wide
--encoder own.py:Empty
--encoder own.py:Tuple
--encoder own.py:number
--encoder own.py:Nothing
--encoder timm:
--encoder hf:
--encoder-width 0
--encoder-width 99999999999999999999
--encoder vit --encoder-width 7
--encoder vit --image-size 17
--views psychedelic
--views ''
--view flip
--view flip=2
--view flip=-1
--view flip=x
--view flip=[1
--view flip=.nan
--view 'flip={}'
--view flip=
--view hues=0
--view =1
--view crop_area=1
--view crop_area=[1,2,3]
--view crop_area=[0.9,0.1]
--view crop_area=[a,b]
--view padding=1
--view padding=wrap
--view elastic_grid=4.5
--view '!!python/name:os.system=1'
--view flip=!!python/name:os.system
--config nowhere.yaml
--config list.yaml
--config broken.yaml
--config unknown.yaml
--config types.yaml
--config pickle.yaml
--config photos
--resume nowhere
--seeds 0
--seeds 1
--seeds -2
--seeds many
--seeds 2 --no-evaluate
--seeds 2 --devices 2
--out filled
--out notes.txt
--out notes.txt/new
--out /proc/new
--out ''
--tempratur 1
--epochs
extra words
"""

# Whole command lines. RUN is a finished run without evaluation.
OTHERS = """
train
train --epochs 1
train --seeds 2
train nowhere
train nowhere/at/all
train ''
train empty
train one
train two --out new --epochs 1
train corrupt --out new --epochs 1
train notes.txt
train archive.tar
train empty.csv
train header.csv
train columns.csv
train ragged.csv
train outside.csv
train missing.csv
train binary.csv
train broken.parquet
train broken.npy
train broken.npz
train floats.npy
train objects.npy
train labels.npz
train 'photos/*.parquet'
train hub:
train classes --labels kind
train --resume
train --resume nowhere
train --resume empty-run
train --resume broken-run
train --resume notes.txt
train --resume RUN --epochs 3
train --resume RUN --seeds 3
train --resume seeds --epochs 1
train --resume seeds --no-evaluate
train --resume seeds --seeds 3
mine
mine nowhere --encoder static --columns a,b --out new.parquet
mine columns.csv --encoder static --columns a,b --out new.parquet
mine columns.csv --encoder static --columns a:text --out new.parquet
mine columns.csv --encoder static --columns a:text,b:text,c --out new.parquet
mine columns.csv --encoder static --columns a:text,b:text --out new.csv
mine columns.csv --encoder nowhere --columns a:text,b:text --out new.parquet
mine columns.csv --encoder RUN --columns a:text,b:text --out new.parquet
mine columns.csv --encoder static --columns a:text,b:text --same c --out new.parquet
mine columns.csv --encoder static --columns a:text,b:text --margin -1 --out new.parquet
mine columns.csv --encoder static --columns a:text,b:text --number 0 --out new.parquet
evaluate
evaluate nowhere
evaluate empty-run
evaluate broken-run
evaluate notes.txt
evaluate RUN --knn-k 0
evaluate RUN --knn-k -1
evaluate RUN --knn-k 1.5
evaluate RUN --knn-k 999999999999999999999
evaluate RUN --many-above -1
evaluate RUN --many-above 5 --few-below 50
evaluate RUN --on nowhere
evaluate RUN --on photos
evaluate RUN --on empty
evaluate RUN --on-test photos
evaluate RUN --on-labels kind
evaluate RUN --on classes --on-labels kind
evaluate RUN --on classes --on-test nowhere
evaluate RUN --encoder missing.py:Net
evaluate RUN --encoder syntax.py:Net
evaluate RUN --encoder own.py:Wide
evaluate RUN --pairs columns.csv
evaluate static --pairs columns.csv
evaluate static --pairs columns.csv --columns a,b,c
evaluate static --pairs nowhere.csv
evaluate static --columns a,b,c
evaluate RUN --fulll
evaluate RUN extra
verify
verify own.py
verify nowhere.py:Loss
verify syntax.py:Loss
verify fails.py:Loss
verify own.py:Missing
verify own.py:number
verify no_such_package_anywhere:Loss
verify own.py:unlike
verify own.py:raises
verify own.py:Wide
verify own.py:pair --call z0,z1
verify own.py:pair --call "(z0[M], z1)"
verify own.py:pair --laws gradiant
verify own.py:pair --option temperature
verify own.py:pair --option heat=3
verify own.py:pair --formula own.py:missing
verify own.py:pair --inputs missing.py:f
verify own.py:pair --detached z7 --laws order
verify own.py:pair --dim 0
verify own.py:pair --out nowhere/page.html
doctor
doctor nowhere
doctor empty-run
doctor broken-run
doctor notes.txt
doctor broken-run --quick
doctor RUN --encoder missing.py:Net
doctor RUN --encoder syntax.py:Net
doctor RUN --slow
embed
embed RUN
embed RUN photos
embed nowhere photos --out x.parquet
embed empty-run photos --out x.parquet
embed RUN nowhere --out x.parquet
embed RUN empty --out x.parquet
embed RUN corrupt --out x.parquet
embed RUN photos --out filled/mine.txt
embed RUN photos --out nowhere/x.parquet
embed RUN photos --out filled
embed RUN photos --out x.parquet --workers -1
embed RUN photos --out x.parquet --encoder syntax.py:Net
embed RUN photos --out ''
report
report nowhere
report empty-run
report notes.txt
report RUN nowhere
report RUN --out nowhere/x.html
report RUN --out filled
report RUN --format pdf
check
check nowhere
check empty
check archive.tar
check corrupt
check photos --batch-size 1
check photos --batch-size many
check photos --batch-size 99999999999999999999
check photos --method magic
check photos --method syntax.py:Mine
check photos --preset large
check photos --jsn
views nowhere
views empty
views corrupt --out x.png
views photos --out nowhere/x.png
views photos --out x.nothing
views photos --out filled
views photos --views psychedelic
views photos --view flip
views photos --view flip=[1
views photos --view flip=2
views photos --view hues=1
views photos --image-size 0
views photos --image-size 100000
views photos --image-size 99999999999999999999999
views photos --n 0
views photos --n 10000000
views photos --n 99999999999999999999
views photos --seed x
views photos --seed 99999999999999999999999
lab magic
lab temperature --quick --epochs 1
lab temperature --epochs 0
lab temperature --seeds 0
lab temperature --budget 0
lab temperature --budget -1
lab temperature --budget nan
lab temperature --budget much
lab temperature --only nothing
lab temperature --set
lab temperature --set epochs
lab temperature --set epochs=[1
lab temperature --set epohcs=1 --out lab
lab temperature --data nowhere --out lab
lab temperature --data photos --out lab
lab temperature --out notes.txt
lab temperature --seed 1.5
lab longtail --long-tail x --out lab
lab doctor --quick
lab doctor --only nothing --out lab
lab explore --epochs 1
lab explore --out notes.txt/x.html
bench
bench nothing
bench losses --case nothing
bench losses --repeats 0
bench losses --repeats many
bench losses --out notes.txt --case nothing
bench views --fast
bench pulse extra
compare
dance
--verison
"""

LINES = [f"train photos {QUICK} {line}" for line in TRAIN.strip().splitlines()] + OTHERS.strip().splitlines()


def arguments(line, run):
    """The arguments of one of ``LINES``; ``run`` stands for RUN."""
    return [str(run) if word == "RUN" else word for word in shlex.split(line)]
