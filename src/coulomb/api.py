"""The Python interface, with the same names as the command line."""

import copy
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from coulomb.evaluation.assess import assess, transfer
from coulomb.evaluation.assess_encoder import assess_encoder
from coulomb.evaluation.assess_scored import assess_scored, assess_scored_run
from coulomb.evaluation.assess_zero_shot import assess_zero_shot
from coulomb.evaluation.doctor import Watcher
from coulomb.evaluation.examine import examine
from coulomb.export import pretrained
from coulomb.ground.errors import InputError, counted
from coulomb.ground.files import write_json
from coulomb.ground.team import Team, torchrun
from coulomb.index import Index
from coulomb.index.mine import mine
from coulomb.kinds.image.views import ViewMaker
from coulomb.models.image_encoder import ImageEncoder
from coulomb.models.load import TOWERS, require_weights, run_path
from coulomb.models.pretrained import Pretrained
from coulomb.models.text_encoder import TextEncoder
from coulomb.models.user_code import is_user_code
from coulomb.report import build_report
from coulomb.training.plan.columns import ColumnsPlan
from coulomb.training.plan.config import Config
from coulomb.training.plan.given import Given, data_name, require_named
from coulomb.training.plan.resolve import reopen_run
from coulomb.training.record.folder import RunFolder, command_for, free_folder, read_evaluation
from coulomb.training.record.journal import read_metrics
from coulomb.training.record.seeds import SEEDS, has_seeds, save_seeds, saved_seeds, seed_folder, summarize
from coulomb.training.run import PairRun, Run, load
from coulomb.training.stopping import stoppable

if TYPE_CHECKING:
    from lightning.pytorch import Callback
    from lightning.pytorch.loggers import Logger

log = logging.getLogger("coulomb")
Pretrained.exports = pretrained

__all__ = [
    "ImageEncoder",
    "Index",
    "Run",
    "TextEncoder",
    "diagnose",
    "evaluate",
    "load",
    "mine",
    "train",
    "train_seeds",
]


def train(
    data: Any = None,
    *,
    test: Any = None,
    method: str | type[nn.Module] | None = None,
    encoder: Any = None,
    views: str | ViewMaker | None = None,
    logger: "str | Logger | Sequence[Logger] | None" = None,
    callbacks: "Callback | Sequence[Callback] | None" = None,
    resume_from: str | Path | None = None,
    evaluate: bool = True,
    progress: bool = True,
    **options: Any,
) -> Run | PairRun:
    """Trains an encoder, evaluates it against its baselines and writes a report.

    Args:
        data: a folder, a list, a Parquet file, a hub name, ``"digits"`` (built in); or an array, a torch ``Dataset``.
        test: held-out images, likewise; default: a stratified split, which is saved.
        method: a name (default ``"simclr"``, and ``"clip"`` for several columns), a file and class (``"mine.py:MyMethod"``),
            or your own class; see `coulomb.methods.Method`.
        encoder: a name (``"resnet18"``), a file and class (``"mine.py:Net"``), or any ``nn.Module``; for columns a name, or of
            texts a model, for all of them or by column: ``{"image": "lite0", "caption": (model, tokenizer)}``, see
            `coulomb.models.text_objects`.
        views: a preset's name, or your own views (``OwnViews(function, size, channels)``).
        logger: where the lines of ``metrics.jsonl`` are sent as well: ``"tensorboard"`` (default; files in the run folder),
            ``"wandb"``, ``"mlflow"``, ``"csv"``, ``"none"``, or loggers of ``lightning.pytorch.loggers``. A resumed run
            continues its log, or begins that of another logger.
        callbacks: callbacks of Lightning, for which each pass over the data is an epoch and each live evaluation a
            validation; the numbers of ``metrics.jsonl``, such as ``knn``, are in ``trainer.callback_metrics``. One that sets
            ``trainer.should_stop``, such as ``EarlyStopping("knn", mode="max")``, ends the run, which is then evaluated. They
            must not change weights, gradients, data or files of the run: resuming would not be exact.
        resume_from: a run folder to continue instead. ``callbacks`` are passed again. ``data``, ``encoder``, ``views`` and
            ``method`` are only needed again if they were objects or your own files (``"mine.py:MyMethod"``), because code
            outside coulomb is executed only if this call names it. The same holds for a memory bank outside the folder
            (``method_options={"bank_path": …}``). With ``devices`` and ``num_nodes`` it continues on other numbers of
            processes and machines.
        evaluate: evaluate and write the report at the end.
        progress: show progress bars.
        **options: any field of ``coulomb.training.plan.config.Config``: ``out``, ``epochs``, ``batch_size``, …;
            ``method_options`` has the options of the method: ``{"queue_size": 4096}``.

    Raises:
        InputError: an argument is wrong; the message says which, and what to do.
        NonFiniteError: the loss became NaN or infinite; the batch is saved.
        Stopped: Ctrl-C or SIGTERM (a KeyboardInterrupt); the message says at which step, and how to resume.
        LostProcessError: another process of a run with several processes ended.
    """
    from coulomb.training.launch import first_process, resume, start  # Lightning, which takes seconds to import
    from coulomb.training.own_callbacks import as_callbacks

    options |= {"data": data, "test": test, "method": method, "encoder": encoder, "views": views, "logger": logger}
    if resume_from is None:
        require_data(data)
    given = Given.of(options, as_callbacks(callbacks))
    if resume_from is None:
        folder, plan = start(given, watch=Watcher, progress=progress)
    else:
        folder, plan = resume(resume_from, given, watch=Watcher, progress=progress)
    evaluate = evaluate and not (resume_from is not None and _evaluated(folder))
    if evaluate and (team := Team.of_group()).rank:
        with stoppable(lambda signals: "stopped during the evaluation"):
            assess(folder, plan, team=team, progress=False)
    elif evaluate and first_process():
        command = command_for("evaluate", folder.path)
        message = f"stopped during the evaluation; the training is complete, evaluate it with: {command}"
        with stoppable(lambda signals: message):
            assess(folder, plan, team=team if team.world > 1 else None, progress=progress)
            examine(folder, plan, progress=progress)
            build_report(folder.path)
    if isinstance(plan, ColumnsPlan):
        return PairRun(folder.path, plan.modules)
    return Run(folder.path, plan.module)


def _evaluated(folder: RunFolder) -> bool:
    """Returns True, and says so, if nothing was trained since the last complete evaluation of a run."""
    if not all(path.exists() for path in (folder.evaluation, folder.doctor, folder.report)):
        return False
    updates = max((int(line["step"]) for line in read_metrics(folder.metrics) if "loss" in line), default=0)
    if (read_evaluation(folder).get("protocol") or {}).get("updates") != updates:
        return False
    log.info(
        "the run was trained and evaluated already, %s; evaluate it again with: %s",
        counted(updates, "update"),
        command_for("evaluate", folder.path),
    )
    return True


def train_seeds(
    seeds: int = 3,
    data: Any = None,
    *,
    out: str | Path | None = None,
    seed: int = 0,
    encoder: Any = None,
    callbacks: "Callback | Sequence[Callback] | None" = None,
    resume_from: str | Path | None = None,
    progress: bool = True,
    **options: Any,
) -> tuple[dict[str, Any], Path]:
    """Trains with several seeds, in ``out/seed0``, ``out/seed1``, …; computes mean and deviation of all evaluation results.

    Args:
        seeds: number of runs. seed: the first seed; the others follow.
        data, encoder, callbacks, **options: as for `train`. A module and callbacks are copied for each run, so that all start
            with the same weights and counts. ``logger`` must be a name, since each run has its own log.
        out: folder to create for all of them; default ``runs/NAME-METHOD-seeds``.
        resume_from: such a folder, to continue after a stop. Finished runs are kept; objects must be passed again.
        progress: show progress bars.

    Returns:
        The content of ``out/summary.json``, see `coulomb.training.record.seeds.summarize`, and ``out``.

    Raises:
        InputError: ``out`` exists, fewer than two seeds, or several processes are requested.

    >>> summary, folder = coulomb.train_seeds(2, "digits", epochs=1, out="two-seeds", progress=False)
    >>> summary["seeds"]
    [0, 1]
    """
    if not isinstance(options.get("logger"), str | None):
        raise InputError("logger: several runs cannot share one logger; give a name, such as logger='wandb'")
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
        objects = {key for key in ("data", "test") if not isinstance(named.get(key), str | None)}
        kept = {key: value for key, value in named.items() if key not in objects and _plain(value)}
        save_seeds(folder, range(seed, seed + seeds), kept)
    else:
        folder = Path(resume_from)
        RunFolder(folder).refuse_links()
        saved = saved_seeds(folder)[1]
        require_named(folder / SEEDS, saved, options | {"encoder": encoder}, folder)
        options = saved | options
        data, encoder = options.pop("data", data), encoder or options.pop("encoder", None)
        options.pop("encoder", None)
    for each in saved_seeds(folder)[0]:
        run = seed_folder(folder, each)
        module, own = copy.deepcopy(encoder), copy.deepcopy(callbacks)
        if run.report.exists():
            continue
        if run.environment.exists():
            resumable = ("test", "views", "method", "method_options", "logger")
            repeated = {key: value for key, value in options.items() if key in resumable}
            train(data, encoder=module, callbacks=own, resume_from=run.path, progress=progress, **repeated)
        else:
            train(data, encoder=module, callbacks=own, out=str(run.path), seed=each, progress=progress, **options)
    return summarize(folder), folder


def require_data(data: Any) -> None:
    """Raises `InputError` if no data are given."""
    if data is None:
        raise InputError(
            "data: missing; give a folder of images, a CSV or Parquet file, an array, or 'digits' for the built-in example"
        )


def _plain(value: Any) -> bool:
    """Returns True if JSON has ``value``; other objects must be passed again to continue."""
    if isinstance(value, Mapping):
        value = [*value, *value.values()]
    if isinstance(value, list | tuple):
        return all(map(_plain, value))
    return value is None or isinstance(value, str | int | float)


def evaluate(
    run: str | Path,
    *,
    data: Any = None,
    test: Any = None,
    encoder: Any = None,
    views: ViewMaker | None = None,
    method: str | type[nn.Module] | None = None,
    on: Any = None,
    on_test: Any = None,
    on_labels: str | None = None,
    on_group: str | None = None,
    prompts: str | Sequence[str] | None = None,
    pairs: Any = None,
    columns: str | Sequence[str] | None = None,
    tower: str | None = None,
    image_size: int | None = None,
    out: str | Path | None = None,
    full: bool = False,
    progress: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """Evaluates a run, writes ``evaluation.json`` and a new report, and returns the results.

    ``evaluate("lite0", on="photos/")`` measures published weights as they are and writes nothing; see
    `coulomb.evaluation.assess_encoder.assess_encoder`. ``evaluate("runs/texts", pairs="sts.csv")`` measures a run on texts or
    on pairs, or published weights, by scored pairs; see `coulomb.evaluation.assess_scored.assess_scored`. Processes of
    torchrun share the work; all but the first return an empty dict.

    Args:
        run: the run folder, or a folder of several seeds; then each is evaluated, and their summary is returned. Or an encoder
            by name, see `load`.
        data, test, encoder, views, method: only needed if the run was trained with objects instead of names, or with your own
            code: ``method="mine.py:MyMethod"``.
        on, on_test: other labeled data on which to evaluate the frozen encoder instead, and their held-out images (default:
            a fifth is held out); results go to ``transfer/NAME.json``. on_labels: column of a table with their labels;
            on_group: see ``group`` of `train`. A run on images and texts is also measured by the names of the classes
            alone, see `coulomb.evaluation.assess_zero_shot.assess_zero_shot`.
        prompts: with ``on``, templates of texts for these names, in which ``{}`` is the name; default "a photo of a {}".
        pairs: pairs of texts, or of vectors, with a score of their similarity, to evaluate the frozen encoder on instead;
            results of a run go to ``transfer/NAME.json``. columns: of ``pairs``, "FIRST,SECOND,SCORE"; default: read from
            the table. tower: the column of the run whose encoder is measured; default: the first of texts.
        image_size: for an encoder by name; default: what `train` chooses for these images and weights.
        out: JSON file to write the results of an encoder by name to; it must not exist.
        full: also fine-tune the whole encoder with 1%, 10% and all labels; this may take longer than the training.
        progress: show progress bars.
        **options: ``knn_k``, ``knn_sigma``, ``many_above``, ``few_below``, if they differ from the run's.

    Raises:
        InputError: the folder is not a run, its data changed, or an argument is wrong.
    """
    allowed = ("knn_k", "knn_sigma", "many_above", "few_below")
    if unknown := sorted(set(options) - set(allowed)):
        raise InputError(
            f"{unknown[0]}={options[unknown[0]]!r}: evaluate has no such option; it has {', '.join(allowed)}"
        )
    objects = {"data": data, "test": test, "encoder": encoder, "views": views, "method": method}
    path, started = run_path(run), torchrun()
    pair = path is not None and (path / TOWERS).is_file()
    if prompts is not None and (on is None or not pair):
        raise InputError(
            "prompts: are for labeled images, by a run on images and texts; give both (coulomb evaluate RUN --on photos/)"
        )
    other = on is not None or pairs is not None
    if started is not None and started.world > 1 and (path is None or has_seeds(path) or other):
        raise InputError(
            f"{str(run)!r}: several processes evaluate one run on its own data only; start this evaluation without torchrun"
        )
    if pairs is not None:
        taken = objects | {
            "on": on,
            "on_test": on_test,
            "on_labels": on_labels,
            "on_group": on_group,
            "prompts": prompts,
        }
        taken |= {"image_size": image_size, "full": full or None, **options}
        _refuse(taken, "is not for scored pairs; leave it out")
        return _evaluate_pairs(run, path, pairs, out, columns=columns, tower=tower, progress=progress)
    _refuse({"columns": columns, "tower": tower}, "is for scored pairs; give them as pairs (--pairs), or leave it out")
    if path is None:
        own = objects | {"full": full or None}
        chosen = {"labels": on_labels, "group": on_group, "options": options, "progress": progress}
        return _evaluate_encoder(str(run), on, on_test, own=own, image_size=image_size, out=out, **chosen)
    if image_size is not None or out is not None:
        raise InputError("image_size and out are for encoders by name; a run has its own image size and folder")
    folder = RunFolder(path)
    if has_seeds(path):
        if on is not None:
            raise InputError(f"on={on!r}: {str(run)!r} contains several runs; give one of them")
        folder.refuse_links()
        for seed in saved_seeds(folder.path)[0]:
            evaluate(seed_folder(folder.path, seed).path, **objects, full=full, progress=progress, **options)
        return summarize(folder.path)
    folder.require()
    given = existing(**objects)
    shared: dict[str, Any] = {"full": full, "options": options, "progress": progress}
    if on is not None and pair:
        if extra := [name for name, value in {**objects, "full": full or None}.items() if value is not None]:
            raise InputError(f"{extra[0]}: is for runs on images alone, and {str(run)!r} is on columns; leave it out")
        shared = {"prompts": prompts, "labels": on_labels, "group": on_group, "options": options, "progress": progress}
        result = assess_zero_shot(folder, on, on_test, **shared)
    elif on is not None:
        result = transfer(folder, on, on_test, given, labels=on_labels, group=on_group, **shared)
    elif (on_test, on_labels, on_group) != (None, None, None):
        raise InputError("on_test, on_labels and on_group are for other data: give it as on")
    else:
        team = Team.meet(Config.process_timeout)
        shared["progress"] = progress and team.rank == 0
        plan = reopen_run(folder, given, progress=shared["progress"])
        result = assess(folder, plan, **shared, team=team if team.world > 1 else None)
        if team.rank:
            return result
        examine(folder, plan, progress=progress)
    build_report(folder.path)
    return result


def _evaluate_encoder(
    name: str,
    on: Any,
    on_test: Any,
    *,
    own: dict[str, Any],
    image_size: int | None,
    out: str | Path | None,
    **chosen: Any,
) -> dict[str, Any]:
    """`evaluate` for an encoder by name; ``own`` are arguments that belong to a run."""
    require_weights(name)
    if extra := [option for option, value in own.items() if value is not None]:
        raise InputError(f"{extra[0]}={own[extra[0]]!r}: belongs to a run, and {name!r} is an encoder; leave it out")
    if on is None:
        raise InputError(f"{name!r}: an encoder is evaluated on labeled images; give them as on (--on photos/)")
    if out is not None and Path(out).exists():
        raise InputError(f"out={str(out)!r}: already exists; choose another file")
    result = assess_encoder(name, on, on_test, image_size=image_size, **chosen)
    if out is not None:
        write_json(Path(out), result)
    return result


def _evaluate_pairs(
    run: str | Path, path: Path | None, pairs: Any, out: str | Path | None, **chosen: Any
) -> dict[str, Any]:
    """`evaluate` by scored pairs; ``path``: of a run, None for published weights."""
    if path is not None and has_seeds(path):
        raise InputError(f"pairs={data_name(pairs)!r}: {str(run)!r} contains several runs; give one of them")
    if path is not None and (path / TOWERS).is_file():
        folder = RunFolder(path)
        folder.require()
        if out is not None:
            raise InputError("out: is for encoders by name; the results of a run go into its folder; leave it out")
        result = assess_scored_run(folder, pairs, **chosen)
        build_report(folder.path)
        return result
    if out is not None and Path(out).exists():
        raise InputError(f"out={str(out)!r}: already exists; choose another file")
    result = assess_scored(str(run), pairs, **chosen)
    if out is not None:
        write_json(Path(out), result)
    return result


def _refuse(options: Mapping[str, Any], why: str) -> None:
    """Raises `InputError` if one of the options is given."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name}: {why}")


def diagnose(
    run: str | Path,
    *,
    data: Any = None,
    test: Any = None,
    encoder: Any = None,
    views: ViewMaker | None = None,
    method: str | type[nn.Module] | None = None,
    quick: bool = False,
    progress: bool = True,
) -> dict[str, Any]:
    """Diagnoses a run, writes ``doctor.json``, and returns its content; see `coulomb.evaluation.doctor.diagnose`.

    Args:
        run: the run folder; it may still be training, or have stopped.
        data, test, encoder, views, method: only needed if the run was trained with objects instead of names, or with your own
            code: ``method="mine.py:MyMethod"``.
        quick: use the metrics in the folder only; neither images nor checkpoint are opened.
        progress: show progress bars.

    Raises:
        InputError: the folder is not a run, its data changed, or an argument is wrong.
    """
    given = existing(data=data, test=test, encoder=encoder, views=views, method=method)
    return examine(RunFolder(run), None, given, quick=quick, progress=progress)


def existing(**objects: Any) -> Given:
    """Returns the objects and the user's own code with which an existing run was trained, given again.

    Raises:
        InputError: ``method`` is the name of a built-in method, which the run already has.
    """
    method = objects["method"]
    if isinstance(method, str) and not is_user_code(method):
        raise InputError(
            f"method={method!r}: only your own method is passed again, as my_file.py:MyMethod; leave it out"
        )
    return Given.of(objects)
