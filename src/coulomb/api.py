"""The Python interface, with the same names as the command line."""

import copy
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from coulomb.data import Source, visible
from coulomb.data.sources import open_images
from coulomb.data.views import ViewMaker
from coulomb.errors import InputError
from coulomb.evaluation.assess import assess, transfer
from coulomb.evaluation.classify import Classification
from coulomb.evaluation.encode import Canvas, embed_to_parquet, source_features
from coulomb.evaluation.examine import examine
from coulomb.methods import Method
from coulomb.methods.options import OWN, load_own_method
from coulomb.models import Encoder, load_encoder
from coulomb.models.classifier import Classifier, load_classifier
from coulomb.models.encoder import check_input
from coulomb.models.user_code import is_user_code, load_user_code, require_call
from coulomb.reading import read_object
from coulomb.report import build_report
from coulomb.runs.config import Config, load_config
from coulomb.runs.folder import RunFolder, command_for, free_folder, read_data, read_evaluation
from coulomb.runs.journal import read_metrics
from coulomb.runs.objects import Objects, find_bank, require_named
from coulomb.runs.seeds import PLAN, is_plan, plan, planned, seed_folder, summarise
from coulomb.training.launch import first_process, reopen, resume, start
from coulomb.training.stopping import stoppable


class Run:
    """A finished (or interrupted) run on disk.

    Args:
        path: the run folder.
        module: the user's own encoder, if the run was trained with one; its weights are replaced by those of the run.
    """

    def __init__(self, path: str | Path, module: nn.Module | None = None):
        self.folder = RunFolder(path)
        self._module = module

    @property
    def path(self) -> Path:
        """The run folder."""
        return self.folder.path

    @cached_property
    def encoder(self) -> Encoder:
        """The trained encoder in eval mode: images [B, C, S, S] in [0, 1] → features [B, F].

        It refuses images of another size and values clearly outside [0, 1]; use `encode` for other images.
        """
        encoder = load_encoder(self.path, module=self._module).eval()
        encoder.register_forward_pre_hook(check_input)
        return encoder

    @cached_property
    def classifier(self) -> Classifier:
        """Features [B, F] → logits [B, C], if the run trained a classifier: supcon (second stage), softmax, paco, …"""
        return load_classifier(self.path, self.encoder.feature_dim)[0]

    @property
    def class_names(self) -> list[str] | None:
        """Names of the classes of the run's classifier; None if they have no names."""
        return load_classifier(self.path, self.encoder.feature_dim)[1]

    def encode(self, images: Any, *, batch_size: int = 256, workers: int = 0) -> Tensor:
        """Returns the features [N, F] of any images, prepared as in the run's evaluation; float32, on the CPU.

        Each image is resized (short side to ``encoder.image_size``, centre crop), converted to the encoder's channels and
        scaled to [0, 1], independently of the other images. An image that already has the encoder's size is not resized.
        `embed` writes the same features to a file.

        Args:
            images: a path, a Pillow image, an array ([H, W] or [H, W, C]) or a tensor ([C, H, W]); a list of these; a
                batch as one array or tensor; or a data set as for training. Arrays and tensors hold uint8, uint16, or
                floats in [0, 1].
            batch_size: images per forward pass; does not change the result.
            workers: processes that decode images.

        Raises:
            InputError: an image cannot be read, or floats are outside [0, 1].

        Example:
            >>> run = coulomb.load("runs/photos")
            >>> run.encode(["a.jpg", "b.png"]).shape
            torch.Size([2, 512])
        """
        source = open_images(images)
        features, _, failures = self._features(source, batch_size, workers)
        _require_all(source, failures)
        return features

    @torch.no_grad()
    def classify(
        self, images: Any, *, skip_unreadable: bool = False, batch_size: int = 256, workers: int = 0
    ) -> Classification:
        """Classifies any images with the run's classifier; returns names and probabilities of the classes.

        Args:
            images, batch_size, workers: as for `encode`.
            skip_unreadable: list images that cannot be read under ``failed`` instead of raising an error.

        Raises:
            InputError: the run has no classifier, or an image cannot be read.

        Example:
            >>> run.classify("a.jpg").top(2)
            [[('cat', 0.93), ('dog', 0.05)]]
        """
        classifier, names = self.classifier, self.class_names
        source = open_images(images)
        features, indices, failures = self._features(source, batch_size, workers)
        if not skip_unreadable:
            _require_all(source, failures)
        probabilities = classifier(features.to(classifier.weight.device)).softmax(1).cpu()
        names = names or [str(label) for label in range(probabilities.shape[1])]
        failed = [{"id": source.item_id(index), "reason": reason} for index, reason in failures.items()]
        return Classification([source.item_id(int(index)) for index in indices], names, probabilities, failed)

    def _features(self, source: Source, batch_size: int, workers: int) -> tuple[Tensor, np.ndarray, dict[int, str]]:
        canvas = self._canvas or Canvas.of(source, self.encoder)
        return source_features(self.encoder, source, canvas, batch_size=batch_size, workers=workers)

    @property
    def _canvas(self) -> Canvas | None:
        """How the run stored its images; None for folders of earlier versions, which did not save this."""
        written = read_data(self.folder).get("canvas")
        return None if written is None else Canvas(**written)

    @property
    def config(self) -> Config:
        """Every option of the run."""
        return load_config(self.folder.config)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The lines of ``metrics.jsonl``."""
        return read_metrics(self.folder.metrics)

    @property
    def evaluation(self) -> dict[str, Any]:
        """The content of ``evaluation.json``."""
        return read_evaluation(self.folder)

    @property
    def doctor(self) -> dict[str, Any]:
        """The content of ``doctor.json``: the problems of the run, if any."""
        return read_object(self.folder.doctor, remedy="write it again with: coulomb doctor RUN")

    @property
    def report(self) -> Path:
        """Path of the HTML report."""
        return self.folder.report

    def embed(self, data: Any, out: str | Path, **options: Any) -> dict[str, Any]:
        """Writes features of any images to a Parquet file; see ``embed_to_parquet``."""
        return embed_to_parquet(self.encoder, data, out, **{"canvas": self._canvas} | options)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r})"


def _require_all(source: Source, failures: dict[int, str]) -> None:
    if failures:
        index, reason = next(iter(failures.items()))
        more = f" (and {len(failures) - 1} more of {len(source)} images)" if len(failures) > 1 else ""
        raise InputError(f"{visible(source.item_id(index))}: {reason}{more}; leave out unreadable images")


def train(
    data: Any = None,
    *,
    test: Any = None,
    method: str | type[nn.Module] = "simclr",
    encoder: str | nn.Module | None = None,
    views: str | ViewMaker | None = None,
    resume_from: str | Path | None = None,
    evaluate: bool = True,
    progress: bool = True,
    **options: Any,
) -> Run:
    """Trains an encoder, evaluates it against its baselines and writes a report.

    Args:
        data: a folder, a list, a Parquet file, a hub name, ``"digits"`` (built in); or an array, a torch ``Dataset``.
        test: held-out images, likewise; default: a stratified split, which is saved.
        method: a name (``"simclr"``, …), a file and class (``"mine.py:MyMethod"``), or your own class; see
            `coulomb.methods.Method`.
        encoder: a name (``"resnet18"``), a file and class (``"mine.py:Net"``), or any ``nn.Module``.
        views: a preset's name, or your own views (``OwnViews(function, size, channels)``).
        resume_from: a run folder to continue instead. ``data``, ``encoder``, ``views`` and ``method`` are only needed again
            if they were objects or your own files (``"mine.py:MyMethod"``), because code outside coulomb is executed only if
            this call names it. The same holds for a memory bank outside the folder (``method_options={"bank_path": …}``).
        evaluate: evaluate and write the report at the end.
        progress: show progress bars.
        **options: any field of ``coulomb.runs.config.Config``: ``out``, ``epochs``, ``batch_size``, …;
            ``method_options`` has those of the method: ``{"queue_size": 4096}``.

    Raises:
        InputError: an argument is wrong; the message says which, and what to do.
        NonFiniteError: the loss became NaN or infinite; the batch is saved.
        Stopped: Ctrl-C or SIGTERM (a KeyboardInterrupt); the message says at which step, and how to resume.
        LostProcessError: another process of a run with several processes ended.
    """
    if resume_from is None:
        require_data(data)
    objects = Objects(
        data=None if isinstance(data, str | Path) else data,
        test=None if isinstance(test, str | Path) else test,
        encoder=load_module(encoder),
        views=None if views is None or isinstance(views, str) else views,
        method=load_own_method(method),
        bank_path=find_bank(options),
    )
    if resume_from is not None:
        folder, prepared = resume(resume_from, objects, progress=progress)
    else:
        named: dict[str, Any] = {"method": method if isinstance(method, str) else OWN + method.__name__}
        named |= {"data": data if objects.data is None else f"<{type(data).__name__}>"}
        if test is not None:
            named["test"] = test if objects.test is None else f"<{type(test).__name__}>"
        if isinstance(encoder, str) and objects.encoder is None:
            named["encoder"] = encoder
        if isinstance(views, str):
            named["views"] = views
        text = {name: str(value) if isinstance(value, Path) else value for name, value in (named | options).items()}
        folder, prepared = start(text, objects, progress=progress)
    if evaluate and first_process():
        command = command_for("evaluate", folder.path)
        message = f"stopped during the evaluation; the training is complete, evaluate it with: {command}"
        with stoppable(lambda signals: message):
            assess(folder, prepared, objects, progress=progress)
            examine(folder, prepared, objects, progress=progress)
            build_report(folder.path)
    return Run(folder.path, objects.encoder)


def train_seeds(
    seeds: int = 3,
    data: Any = None,
    *,
    out: str | Path | None = None,
    seed: int = 0,
    encoder: str | nn.Module | None = None,
    resume_from: str | Path | None = None,
    progress: bool = True,
    **options: Any,
) -> tuple[dict[str, Any], Path]:
    """Trains with several seeds, in ``out/seed0``, ``out/seed1``, …; computes mean and deviation of all evaluation results.

    Args:
        seeds: number of runs. seed: the first seed; the others follow.
        data, encoder, **options: as for `train`. A module is copied for each run, so that all start with its weights.
        out: folder to create for all of them; default ``runs/NAME-METHOD-seeds``.
        resume_from: such a folder, to continue after a stop. Finished runs are kept; objects must be passed again.
        progress: show progress bars.

    Returns:
        The content of ``out/summary.json``, see `coulomb.runs.seeds.summarise`, and ``out``.

    Raises:
        InputError: ``out`` exists, fewer than two seeds, or several processes are requested.
    """
    if resume_from is None:
        if seeds < 2:
            raise InputError(f"seeds={seeds}: a deviation needs at least 2")
        require_data(data)
        name = Path(data).stem if isinstance(data, str | Path) else type(data).__name__
        method = options.get("method", "simclr")
        label = Path(method.partition(":")[0]).stem if isinstance(method, str) else method.__name__
        folder = free_folder(name, f"{label}-seeds") if out is None else Path(out)
        given = {"data": data, "encoder": encoder} | options
        named = {key: str(value) if isinstance(value, Path) else value for key, value in given.items()}
        plan(folder, range(seed, seed + seeds), {key: value for key, value in named.items() if _plain(value)})
    else:
        folder = Path(resume_from)
        RunFolder(folder).refuse_links()
        saved = planned(folder)[1]
        require_named(folder / PLAN, saved, options | {"encoder": encoder}, folder)
        options = saved | options
        data, encoder = options.pop("data", data), encoder or options.pop("encoder", None)
        options.pop("encoder", None)
    for each in planned(folder)[0]:
        run = seed_folder(folder, each)
        module = copy.deepcopy(encoder)
        if run.report.exists():
            continue
        if run.environment.exists():
            resumable = ("test", "views", "method", "method_options")
            repeated = {key: value for key, value in options.items() if key in resumable}
            train(data, encoder=module, resume_from=run.path, progress=progress, **repeated)
        else:
            train(data, encoder=module, out=str(run.path), seed=each, progress=progress, **options)
    return summarise(folder), folder


def require_data(data: Any) -> None:
    """Raises `InputError` if no data are given."""
    if data is None:
        raise InputError(
            "data: missing; give a folder of images, a CSV or Parquet file, an array, or 'digits' for the built-in example"
        )


def _plain(value: Any) -> bool:
    return value is None or isinstance(value, str | int | float | dict | list | tuple)


def evaluate(
    run: str | Path,
    *,
    data: Any = None,
    test: Any = None,
    encoder: str | nn.Module | None = None,
    views: ViewMaker | None = None,
    method: str | type[nn.Module] | None = None,
    on: Any = None,
    on_test: Any = None,
    on_labels: str | None = None,
    full: bool = False,
    progress: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """Evaluates a run, writes ``evaluation.json`` and a new report, and returns the results.

    Args:
        run: the run folder, or a folder of several seeds; then each is evaluated, and their summary is returned.
        data, test, encoder, views, method: only needed if the run was trained with objects instead of names, or with your own
            code: ``method="mine.py:MyMethod"``.
        on, on_test: other labelled data on which to evaluate the frozen encoder instead, and their held-out images (default:
            a fifth is held out); results go to ``transfer/NAME.json``. on_labels: column of a table with their labels.
        full: also fine-tune the whole encoder with 1%, 10% and all labels; this may take longer than the training.
        progress: show progress bars.
        **options: ``knn_k``, ``knn_sigma``, ``many_above``, ``few_below``, if they differ from those of the run.

    Raises:
        InputError: the folder is not a run, its data changed, or an argument is wrong.
    """
    folder = RunFolder(run)
    if is_plan(run):
        if on is not None:
            raise InputError(f"on={on!r}: {str(run)!r} contains several runs; give one of them")
        RunFolder(run).refuse_links()
        given: dict[str, Any] = {"data": data, "test": test, "encoder": encoder, "views": views, "full": full}
        given["method"] = method
        for seed in planned(folder.path)[0]:
            evaluate(seed_folder(folder.path, seed).path, **given, progress=progress, **options)
        return summarise(folder.path)
    folder.require()
    allowed = ("knn_k", "knn_sigma", "many_above", "few_below")
    if unknown := sorted(set(options) - set(allowed)):
        raise InputError(
            f"{unknown[0]}={options[unknown[0]]!r}: evaluate has no such option; it has {', '.join(allowed)}"
        )
    objects = Objects(data=data, test=test, encoder=load_module(encoder), views=views, method=own_method(method))
    shared: dict[str, Any] = {"full": full, "options": options, "progress": progress}
    if on is not None:
        result = transfer(folder, on, on_test, objects, labels=on_labels, **shared)
    elif on_test is not None or on_labels is not None:
        raise InputError("on_test and on_labels are for other data: give it as on")
    else:
        objects.find_method(load_config(folder.config))  # raises before the evaluation starts
        prepared = reopen(folder, objects, progress=progress)[1]
        result = assess(folder, prepared, objects, **shared)
        examine(folder, prepared, objects, progress=progress)
    build_report(folder.path)
    return result


def diagnose(
    run: str | Path,
    *,
    data: Any = None,
    test: Any = None,
    encoder: str | nn.Module | None = None,
    views: ViewMaker | None = None,
    method: str | type[nn.Module] | None = None,
    quick: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Diagnoses a run, writes ``doctor.json``, and returns its content; see `coulomb.doctor.diagnose`.

    Args:
        run: the run folder; it may still be training, or have stopped.
        data, test, encoder, views, method: only needed if the run was trained with objects instead of names, or with your own
            code: ``method="mine.py:MyMethod"``.
        quick: use the metrics in the folder only; neither images nor checkpoint are opened.
        progress: show progress bars.

    Raises:
        InputError: the folder is not a run, its data changed, or an argument is wrong.
    """
    objects = Objects(data=data, test=test, encoder=load_module(encoder), views=views, method=own_method(method))
    return examine(RunFolder(run), None, objects, quick=quick, progress=progress)


def load(run: str | Path, module: nn.Module | None = None) -> Run:
    """Opens a run folder: ``coulomb.load("runs/x").encoder(images)``.

    Raises:
        InputError: the folder contains no encoder.
    """
    path = Path(run)
    if not (path / "encoder.json").is_file():
        raise InputError(f"{str(run)!r}: no trained encoder in it (encoder.json); train one, or --resume the run first")
    return Run(path, module)


def own_method(method: str | type[nn.Module] | None) -> type[Method] | None:
    """Returns the user's own class for an existing run: ``file.py:Class``, or the class itself.

    Raises:
        InputError: ``method`` is the name of a built-in method, which the run already has.
    """
    if isinstance(method, str) and not is_user_code(method):
        raise InputError(
            f"method={method!r}: only your own method is passed again, as my_file.py:MyMethod; leave it out"
        )
    return load_own_method(method)


def load_module(encoder: str | nn.Module | None) -> nn.Module | None:
    """Returns the user's own encoder, given as a module or as ``file.py:Class``; None for built-in encoders."""
    if encoder is None or isinstance(encoder, nn.Module):
        return encoder
    if not is_user_code(encoder):
        return None
    made = load_user_code("encoder", encoder)
    require_call("encoder", encoder, made)
    built = made()
    if not isinstance(built, nn.Module):
        name = encoder.rpartition(":")[2]
        raise InputError(f"encoder={encoder!r}: {name}() returned a {type(built).__name__}, not a torch.nn.Module")
    return built
