"""Files of a published encoder of texts, in a folder or on the hub: layouts of transformers and sentence-transformers."""

from dataclasses import asdict, dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from coulomb.ground.errors import InputError
from coulomb.ground.reading import parse_json, read_bytes
from coulomb.models.library_preprocessing import first_line
from coulomb.models.published import import_library
from coulomb.models.tokenizing import LARGEST_FILE, parse_tokenizer

POOLINGS = {  # entries of 1_Pooling/config.json
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_lasttoken": "last",
}
ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid")  # of torch.nn, after a dense layer
SUPPORTED = "Transformer, StaticEmbedding, Pooling, Dense and Normalize"
LONGEST = 512  # tokens, where a model takes more and its files say nothing
VOCABULARIES = ("vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model", "tokenizer.model")
NO_LIMIT = 10**6  # tokenizer_config.json has 10**30 for tokenizers without a limit


@dataclass(frozen=True)
class Dense:
    """A linear layer after pooling, and its ``activation``, a class of `torch.nn`; ``unit``: its input has unit length."""

    width_in: int
    width_out: int
    bias: bool
    activation: str
    unit: bool = False

    def saved(self) -> dict[str, Any]:
        """Returns the entries of ``encoder.json``; ``unit`` is among them where it is True."""
        return {name: value for name, value in asdict(self).items() if name != "unit" or value}


@dataclass
class Layout:
    """What follows the tokens of a published encoder of texts.

    Attributes:
        static: True for averaged token vectors, False for a transformer.
        pooling: how token features become one: mean, cls, last, max, or pooler for what the model itself returns.
        dense: layers after it.
        normalize: True if features have unit length.
        part: folder with the files of the transformer.
        dense_parts: folders with the weights of the ``dense`` layers.
        longest: tokens of a text, if a file says so.
        lower: True if texts are made lower case before the tokenizer.
    """

    static: bool = False
    pooling: str = "mean"
    dense: list[Dense] = field(default_factory=list)
    normalize: bool = False
    part: str = ""
    dense_parts: list[str] = field(default_factory=list)
    longest: int | None = None
    lower: bool = False

    def saved(self) -> dict[str, Any]:
        """Returns the entries of ``encoder.json``."""
        return {
            "pooling": self.pooling,
            "dense": [each.saved() for each in self.dense],
            "normalize": self.normalize,
        }


class Repository:
    """Files of a folder, or of a repository of the hub, from which single files are downloaded.

    Args:
        name: of the folder or repository.
        text: description of the encoder, for errors.
    """

    def __init__(self, name: str, text: str):
        self.name, self.text = name, text

    def file(self, relative: str) -> Path | None:
        """Returns the path of a file; None if there is none."""
        if (folder := Path(self.name)).is_dir():
            return folder / relative if (folder / relative).is_file() else None
        import_library("hf")
        from huggingface_hub import hf_hub_download, try_to_load_from_cache
        from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

        try:
            known = try_to_load_from_cache(self.name, relative)
            if known is not None and not isinstance(known, str):  # the hub said so earlier
                return None
            return Path(hf_hub_download(self.name, relative))
        except LocalEntryNotFoundError as error:
            if isinstance(try_to_load_from_cache(self.name, "config.json"), str):
                return None  # without a connection, what was downloaded is all that there is
            raise self.error(f"{relative} could not be downloaded ({first_line(error)})") from None
        except EntryNotFoundError:
            return None
        except (OSError, ValueError) as error:  # no such repository, no access, or no valid name
            raise self.error(
                f"no such repository, or no access to it ({first_line(error)}); give a name of the hub or a local folder"
            ) from None

    def json(self, relative: str) -> Any:
        """Returns the content of a JSON file; None if there is none."""
        path = self.file(relative)
        if path is None:
            return None
        try:
            return parse_json(read_bytes(path, most=LARGEST_FILE, remedy="save the model again"))
        except ValueError as error:
            raise self.error(f"{relative} is damaged ({error}); save the model again") from None

    def entries(self, relative: str) -> dict[str, Any]:
        """Returns the object in a JSON file; an empty one if there is no such file."""
        content = self.json(relative)
        if content is not None and not isinstance(content, dict):
            raise self.error(f"{relative} is damaged: it holds no object; save the model again")
        return content or {}

    def error(self, problem: str) -> InputError:
        """Returns an error about this encoder."""
        return InputError(f"encoder={self.text!r}: {problem}")


def read_layout(repository: Repository) -> Layout:
    """Returns the layout of an encoder: of ``modules.json`` if there is one, else the mean over tokens.

    Raises:
        InputError: a module or an option of it is not supported, or a file is damaged.
    """
    modules = repository.json("modules.json")
    layout = Layout()
    if modules is None:
        return layout
    if not isinstance(modules, list) or not all(
        isinstance(each, dict) and isinstance(each.get("type"), str) and isinstance(each.get("path"), str)
        for each in modules
    ):
        raise repository.error("modules.json is damaged: it must be a list of modules with type and path")
    for part in (PurePosixPath(each["path"]) for each in modules):
        if part.is_absolute() or ".." in part.parts:
            raise repository.error(f"modules.json names {str(part)!r}, which is outside of the folder")
    names = [each["type"].rpartition(".")[2] for each in modules]
    if not names or names[0] not in ("Transformer", "StaticEmbedding"):
        first = names[0] if names else "nothing"
        raise repository.error(f"modules.json begins with {first}; supported are {SUPPORTED}")
    layout.static = names[0] == "StaticEmbedding"
    layout.part = modules[0]["path"]
    for name, module in zip(names[1:], modules[1:], strict=True):
        if layout.normalize and name != "Dense":
            raise repository.error(f"modules.json has {name} after Normalize, which is not supported")
        if name == "Pooling" and not layout.static and not layout.dense:
            layout.pooling = _pooling(repository, module["path"])
        elif name == "Dense":
            layout.dense.append(_dense(repository, module["path"], unit=layout.normalize))
            layout.dense_parts.append(module["path"])
            layout.normalize = False
        elif name == "Normalize":
            layout.normalize = True
        else:
            raise repository.error(f"modules.json has {name} at this place; supported are {SUPPORTED}, in this order")
    if not layout.static:
        if "Pooling" not in names:
            raise repository.error("modules.json has no Pooling: its features are one per token")
        options = repository.entries(inside(layout.part, "sentence_bert_config.json"))
        longest = options.get("max_seq_length")
        layout.longest = longest if isinstance(longest, int) and longest > 0 else None
        layout.lower = options.get("do_lower_case") is True
    prompt = repository.entries("config_sentence_transformers.json").get("default_prompt_name")
    if prompt is not None:
        raise repository.error(
            f"its default prompt {prompt!r} goes before every text, which is not supported; put it there yourself, and "
            "remove default_prompt_name from config_sentence_transformers.json"
        )
    return layout


def inside(part: str, file: str) -> str:
    """Returns the path of a file of a module."""
    return f"{part}/{file}" if part else file


def _pooling(repository: Repository, part: str) -> str:
    entries = repository.entries(inside(part, "config.json"))
    if isinstance(entries.get("pooling_mode"), str):  # newer files
        chosen = {"lasttoken": "last"}.get(entries["pooling_mode"], entries["pooling_mode"])
        modes = [chosen if chosen in POOLINGS.values() else entries["pooling_mode"]]
    else:
        modes = [POOLINGS.get(key, key) for key, value in entries.items() if key.startswith("pooling_mode_") and value]
    if len(modes) != 1 or modes[0] not in POOLINGS.values():
        raise repository.error(
            f"its pooling is {' and '.join(modes) or 'unknown'}; supported is one of {', '.join(POOLINGS.values())}"
        )
    return modes[0]


def _dense(repository: Repository, part: str, *, unit: bool) -> Dense:
    entries = repository.entries(inside(part, "config.json"))
    activation = str(entries.get("activation_function", "torch.nn.modules.linear.Identity")).rpartition(".")[2]
    sizes = [entries.get(name) for name in ("in_features", "out_features")]
    if not all(isinstance(size, int) and 1 <= size <= 2**16 for size in sizes):
        raise repository.error(f"{inside(part, 'config.json')} has no sizes of the dense layer")
    if activation not in ACTIVATIONS:
        raise repository.error(
            f"its dense layer has the activation {activation}; supported are {', '.join(ACTIVATIONS)}"
        )
    first, last = (int(size) for size in sizes)  # type: ignore[arg-type]
    return Dense(first, last, entries.get("bias") is not False, activation, unit)


def read_published_tokenizer(repository: Repository, layout: Layout) -> tuple[Any, int | None, int | None]:
    """Returns the tokenizer, the id of its padding and its limit in tokens, each of them None if no file says so.

    It is ``tokenizer.json``, or what transformers makes of the other files of a tokenizer.
    """
    config = repository.entries(inside(layout.part, "tokenizer_config.json"))
    path = repository.file(inside(layout.part, "tokenizer.json"))
    if path is not None:
        content = read_bytes(path, most=LARGEST_FILE, remedy="save the tokenizer again").decode(errors="replace")
    else:
        content, path = _converted(repository, layout), Path(repository.name)
    tokenizer = parse_tokenizer(content, path, special_tokens=not layout.static)
    if layout.lower:
        from tokenizers import normalizers

        before = [] if tokenizer.normalizer is None else [tokenizer.normalizer]
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *before])
    padding = config.get("pad_token")
    padding = padding.get("content") if isinstance(padding, dict) else padding
    limit = config.get("model_max_length")
    if layout.static:  # sentence-transformers cuts these where the tokenizer does
        cuts = parse_json(content.encode()).get("truncation")
        limit = cuts.get("max_length") if isinstance(cuts, dict) else None
    return (
        tokenizer,
        tokenizer.token_to_id(padding) if isinstance(padding, str) else None,
        int(limit) if isinstance(limit, int | float) and 1 <= limit < NO_LIMIT else None,
    )


def _converted(repository: Repository, layout: Layout) -> str:
    """Returns the content that ``tokenizer.json`` would have."""
    if all(repository.file(inside(layout.part, name)) is None for name in VOCABULARIES):
        raise repository.error(
            "has no tokenizer.json; save its tokenizer there with save_pretrained"
        )  # else it is invented
    transformers = import_library("hf")
    part = {"subfolder": layout.part} if layout.part else {}
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(repository.name, trust_remote_code=False, **part)
        content: str = tokenizer.backend_tokenizer.to_str()
    except Exception as error:  # OSError, ValueError, ImportError, AttributeError, and what damaged files raise
        raise repository.error(
            f"has no tokenizer.json, and its tokenizer cannot be converted ({first_line(error)}); save it with "
            "save_pretrained of a fast tokenizer"
        ) from None
    return content
