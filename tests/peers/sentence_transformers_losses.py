"""Runs sentence-transformers' own tests of its losses against the losses of coulomb, and counts which pass:

    git clone https://github.com/huggingface/sentence-transformers PEER     # at the tag of the installed version
    python tests/peers/sentence_transformers_losses.py PEER [--model FOLDER]

Nothing is downloaded: models of the hub are replaced by random ones of the same kind, or the tiny BERT by a local folder. The
tests are copied to a temporary folder, in which ``from sentence_transformers.sentence_transformer.losses import …`` gives the
losses of coulomb, and run once more with the losses of sentence-transformers, to tell what fails there as well.
"""

import argparse
import os
import string
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

FILES = (
    "test_cmnrl.py", "test_gradcache.py", "test_cached_gist_embed.py", "test_matryoshka.py", "test_cached_mnsrl.py",
    "test_merged_forward.py", "test_adaptive_layer.py",
)  # fmt: skip
REPLACED = (
    "MultipleNegativesRankingLoss",
    "CachedMultipleNegativesRankingLoss",
    "CachedGISTEmbedLoss",
    "MatryoshkaLoss",
)
TINY = ("sentence-transformers-testing/stsb-bert-tiny-safetensors", "distilbert/distilbert-base-uncased")
STATIC = "sentence-transformers/static-retrieval-mrl-en-v1"
WEIGHTED = 30522  # rows of the weights that a fixture gives to a StaticEmbedding

PLUGIN = '''
"""Loaded before the tests are: models of the hub are local folders, and losses are those of coulomb."""
import json, os
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses

given = json.loads(os.environ["COULOMB_PEER"])
init = SentenceTransformer.__init__

def local(self, model_name_or_path=None, *arguments, **options):
    init(self, given["models"].get(model_name_or_path, model_name_or_path), *arguments, **options)

SentenceTransformer.__init__ = local
if given["ours"]:
    from coulomb.integrations import sentence_transformers as ours
    for name in given["replaced"]:
        if hasattr(ours, name):
            setattr(losses, name, getattr(ours, name))
'''


def main() -> None:
    """Prints a row per file: tests that pass with the losses of coulomb, and of sentence-transformers; then each failure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path, help="a checkout of sentence-transformers")
    parser.add_argument("--model", type=Path, help="a local model instead of the tiny random BERT")
    parser.add_argument("--files", nargs="*", default=FILES)
    given = parser.parse_args()
    source = given.checkout / "tests" / "sentence_transformer" / "losses"
    if not source.is_dir():
        sys.exit(f"{given.checkout}: no checkout of sentence-transformers, which has tests/sentence_transformer/losses")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        models = prepare(root, given.checkout, given.model)
        results = {ours: run(root, models, ours, given.files) for ours in (True, False)}
    print(f"{'file':32} {'ours':>9} {'theirs':>9}")
    totals = []
    for name in given.files:
        row = []
        for ours in (True, False):
            outcomes = [outcome for (file, _), outcome in results[ours].items() if file == name]
            row += [sum(not outcome for outcome in outcomes), len(outcomes)]
        totals.append(row)
        print(f"{name:32} {row[0]:>4}/{row[1]:<4} {row[2]:>4}/{row[3]:<4}")
    passed, count, theirs, their_count = map(sum, zip(*totals, strict=True))
    print(f"{'all':32} {passed:>4}/{count:<4} {theirs:>4}/{their_count:<4}")
    for (file, name), outcome in results[True].items():
        if outcome:
            also = " (theirs too)" if results[False].get((file, name)) else ""
            print(f"{file}::{name}{also}\n    {outcome}")


def prepare(root: Path, checkout: Path, model: Path | None) -> dict[str, str]:
    """Copies the tests and makes the models; returns the folder of each name of the hub."""
    import tokenizers
    import torch
    import transformers
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, StaticEmbedding, Transformer

    letters = string.ascii_lowercase + string.digits + string.punctuation
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{one}" for one in letters)]
    (root / "vocab.txt").write_text("\n".join(vocabulary))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512
    )
    transformers.BertModel(config).save_pretrained(root / "tiny")
    pieces = tokenizers.BertWordPieceTokenizer(str(root / "vocab.txt"))
    pieces.save(str(root / "tokenizer.json"))
    names = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    transformers.PreTrainedTokenizerFast(
        tokenizer_file=str(root / "tokenizer.json"), model_max_length=128, **names
    ).save_pretrained(root / "tiny")
    transformer = Transformer(str(root / "tiny"))
    SentenceTransformer(modules=[transformer, Pooling(128)]).save_pretrained(str(root / "bert"))
    SentenceTransformer(
        modules=[StaticEmbedding(tokenizers.Tokenizer.from_file(str(root / "tokenizer.json")), embedding_dim=1024)]
    ).save_pretrained(str(root / "static"))

    (root / "replacing.py").write_text(PLUGIN)
    (root / "pytest.ini").write_text("[pytest]\n")
    for path in (checkout / "tests").rglob("*.py"):
        inside = path.relative_to(checkout)
        if path.parent.name in ("losses", "sentence_transformer", "tests") and "encoder" not in str(inside):
            text = path.read_text(encoding="utf-8")
            text = text.replace(
                'Tokenizer.from_pretrained("google-bert/bert-base-uncased")',
                f'Tokenizer.from_file("{root}/tokenizer.json")',
            )
            (root / inside).parent.mkdir(parents=True, exist_ok=True)
            (root / inside).write_text(text, encoding="utf-8")
    tiny = str(root / "bert" if model is None else model.resolve())
    return {**dict.fromkeys(TINY, tiny), STATIC: str(root / "static")}


def run(root: Path, models: dict[str, str], ours: bool, files: list[str]) -> dict[tuple[str, str], str]:
    """(file, test) → "" if it passed, or the first line of its error; skipped tests are left out."""
    import json

    report = root / f"report-{ours}.xml"
    project = Path(__file__).resolve().parents[2]
    paths = [root, project / "src", *(path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(str(path) for path in paths if Path(path).resolve() != project),
        "COULOMB_PEER": json.dumps({"models": models, "ours": ours, "replaced": REPLACED}),
        "HF_HUB_OFFLINE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    where = [f"tests/sentence_transformer/losses/{name}" for name in files]
    options = ["-q", "-p", "replacing", "-p", "no:cacheprovider", "--tb=line", f"--junitxml={report}"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *where], cwd=root, env=environment, capture_output=True, text=True
    )
    if not report.exists():
        sys.exit(done.stdout + done.stderr)
    outcomes = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        if case.find("skipped") is None:
            bad = [each.get("message", "") for kind in ("failure", "error") for each in case.findall(kind)]
            file = next(part for part in case.get("classname", "").split(".") if part.startswith("test_"))
            outcomes[f"{file}.py", case.get("name", "")] = (bad[0].splitlines() or ["failed"])[0] if bad else ""
    return outcomes


if __name__ == "__main__":
    main()
