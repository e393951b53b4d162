"""The loggers of a run: they receive what metrics.jsonl has, and a resumed run continues its log."""

import csv
import json
import logging

import pytest
import yaml
from lightning.pytorch.loggers import CSVLogger, Logger

import coulomb
from coulomb.ground.errors import InputError
from coulomb.training.record.loggers import require_logger
from run_cases import stopped_at

OPTIONS = {"epochs": 3, "batch_size": 16, "encoder": "convnet", "encoder_width": 8, "image_size": 16, "knn_every": 1}


def steps(lines, name="loss"):
    """Returns the steps of the lines that have a value of this name."""
    return [int(line["step"]) for line in lines if line.get(name) not in (None, "")]


def resumed(photos, out, logger, again=None):
    """Trains, interrupts the run after its last checkpoint, resumes it; returns the steps of its metrics."""
    stopped_at(6, photos, out, logger=logger, **OPTIONS)  # the last checkpoint is of step 4
    run = coulomb.train(resume_from=out, logger=again, evaluate=False, progress=False)
    assert steps(run.metrics) == list(range(1, 10))
    return run


def test_by_default_a_run_writes_files_for_tensorboard(photos, tmp_path):
    run = coulomb.train(photos, out=tmp_path / "run", **OPTIONS | {"epochs": 1}, evaluate=False, progress=False)
    assert run.config.logger == "tensorboard" and len(list((run.path / "tensorboard").iterdir())) == 1
    assert not run.folder.loggers.exists()


def test_none_writes_no_log(photos, tmp_path):
    options = OPTIONS | {"epochs": 1, "logger": "none"}
    run = coulomb.train(photos, out=tmp_path / "run", **options, evaluate=False, progress=False)
    assert not (run.path / "tensorboard").exists() and steps(run.metrics) == [1, 2, 3]


def test_tensorboard_has_each_step_of_a_resumed_run_once(photos, tmp_path):
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    run = resumed(photos, tmp_path / "run", "tensorboard")
    files = sorted((run.path / "tensorboard").iterdir())
    events = [event for file in files for event in EventFileLoader(str(file)).Load()]
    found = [event.step for event in events if any(value.tag == "loss" for value in event.summary.value)]
    assert len(files) == 2 and found == list(range(1, 10))


def rows(folder):
    with (folder / "csv" / "metrics.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_csv_has_each_step_of_a_resumed_run_once(photos, tmp_path):
    run = resumed(photos, tmp_path / "run", "csv")
    lines = [line for line in run.metrics if "class_gradient_norm" not in line]
    found = rows(run.path)
    assert [int(row["step"]) for row in found] == [line["step"] for line in lines]
    for row, line in zip(found, lines, strict=True):
        for name in ("loss", "knn", "lr", "alignment"):
            assert row[name] == ("" if line.get(name) is None else str(line[name]))
    assert not (run.path / "tensorboard").exists()
    assert yaml.safe_load((run.path / "csv" / "hparams.yaml").read_text())["batch_size"] == 16


def test_another_logger_of_a_resumed_run_receives_the_earlier_lines(photos, tmp_path):
    run = resumed(photos, tmp_path / "run", "none", again="csv")
    assert steps(rows(run.path)) == list(range(1, 10))


def test_csv_of_a_run_on_columns(tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(f"the {n} of the {n % 7} words" for n in range(60)))
    options = {"encoder": "transformer-small", "epochs": 1, "batch_size": 16, "knn_every": 1, "logger": "csv"}
    run = coulomb.train(tmp_path / "texts.txt", out=tmp_path / "run", **options, evaluate=False, progress=False)
    assert steps(rows(run.path)) == steps(run.metrics) == [1, 2, 3]
    assert steps(rows(run.path), "uniformity") == [0, 3]


class Memory(Logger):
    """A logger of one's own, which fails after some lines."""

    def __init__(self, most=1000):
        super().__init__()
        self.lines, self.hyperparams, self.most = [], [], most

    name, version, experiment = "memory", 0, None

    def log_metrics(self, metrics, step=None):
        if len(self.lines) == self.most:
            raise OSError("the line is dead")
        self.lines.append({"step": step} | metrics)

    def log_hyperparams(self, params, *args, **kwargs):
        self.hyperparams.append(params)


def test_loggers_of_ones_own(photos, tmp_path):
    first, second = Memory(), CSVLogger(tmp_path / "logs")
    options = OPTIONS | {"logger": [first, second]}
    stopped_at(6, photos, tmp_path / "run", **options)
    assert steps(first.lines) == list(range(1, 7)) and [each["epochs"] for each in first.hyperparams] == [3]
    with pytest.raises(InputError, match=r"custom:Memory,CSVLogger.*pass it again.*--logger none"):
        coulomb.train(resume_from=tmp_path / "run", evaluate=False, progress=False)
    coulomb.train(resume_from=tmp_path / "run", logger=[first, second], evaluate=False, progress=False)
    assert steps(first.lines) == list(range(1, 10)) and len(first.hyperparams) == 1
    with (tmp_path / "logs" / "lightning_logs" / "version_0" / "metrics.csv").open(newline="") as file:
        assert steps(csv.DictReader(file)) == list(range(1, 10))


def test_a_logger_that_fails_does_not_end_the_run(photos, tmp_path, caplog):
    logger = Memory(most=3)
    options = OPTIONS | {"epochs": 1, "logger": logger}
    with caplog.at_level(logging.WARNING):
        run = coulomb.train(photos, out=tmp_path / "run", **options, evaluate=False, progress=False)
    assert steps(run.metrics) == [1, 2, 3] and len(logger.lines) == 3
    assert [
        record.getMessage() for record in caplog.records if "Memory failed (the line is dead)" in record.getMessage()
    ]


@pytest.mark.parametrize("logger", ["tensorbord", 3, object()])
def test_other_loggers_are_refused(photos, tmp_path, logger):
    with pytest.raises(InputError, match=r"logger=.*"):
        coulomb.train(photos, out=tmp_path / "run", logger=logger)
    assert not (tmp_path / "run").exists()


def test_several_seeds_cannot_share_a_logger(photos, tmp_path):
    with pytest.raises(InputError, match=r"logger: several runs.*logger='wandb'"):
        coulomb.train_seeds(2, photos, out=tmp_path / "runs", logger=Memory())


@pytest.mark.parametrize("name", ["wandb", "mlflow"])
def test_a_missing_package_is_one_sentence(photos, tmp_path, monkeypatch, name):
    monkeypatch.setattr("importlib.util.find_spec", lambda *names: None)
    with pytest.raises(
        InputError, match=rf"logger='{name}': needs the package {name}; .*pip install 'coulomb\[{name}\]'"
    ):
        require_logger(name)
    require_logger("csv")


def wandb_records(path):
    """Yields the records of a .wandb file: blocks of 32 KiB as in LevelDB's log, with parts of checksum, length and kind."""
    content, place, record = path.read_bytes(), 7, b""
    while place + 7 <= len(content):
        if 2**15 - place % 2**15 < 7:
            place += 2**15 - place % 2**15
            continue
        length, kind = int.from_bytes(content[place + 4 : place + 6], "little"), content[place + 6]
        record += content[place + 7 : place + 7 + length]
        place += 7 + length
        if kind in (1, 4):  # whole, or the last part
            yield record
            record = b""


def wandb_lines(folder):
    """Returns ids and lines of the offline runs in a folder."""
    from wandb.proto.wandb_internal_pb2 import Record

    ids, lines = [], []
    for path in sorted((folder / "wandb").glob("offline-run-*")):
        ids.append(path.name.rpartition("-")[2])
        (file,) = path.glob("*.wandb")
        for content in wandb_records(file):
            items = Record.FromString(content).history.item
            line = {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}
            if line:
                lines.append(line | {"step": line["trainer/global_step"]})
    return ids, lines


@pytest.mark.slow
def test_wandb_offline(photos, tmp_path, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.chdir(tmp_path)
    run = resumed(photos, tmp_path / "run", "wandb")
    ids, lines = wandb_lines(tmp_path)
    assert len(ids) == 2 and {*ids} == {json.loads(run.folder.loggers.read_text())["wandb"]}
    assert steps(lines) == list(range(1, 10)) and steps(lines, "knn") == [0, 3, 6, 9]
    monkeypatch.setenv("WANDB_DIR", str(tmp_path / "other"))
    (tmp_path / "other").mkdir()
    options = OPTIONS | {"epochs": 1, "logger": "wandb"}
    coulomb.train(photos, out=tmp_path / "second", **options, evaluate=False, progress=False)
    assert steps(wandb_lines(tmp_path / "other")[1]) == [1, 2, 3]  # not in the log of the first run


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # of mlflow's own dependencies
def test_mlflow_in_the_run_folder(photos, tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.chdir(tmp_path)
    run = resumed(photos, tmp_path / "run", "mlflow")
    client = mlflow.MlflowClient(f"sqlite:///{run.path / 'mlflow.db'}")
    (experiment,) = client.search_experiments(filter_string="name = 'coulomb'")
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.run_id == json.loads(run.folder.loggers.read_text())["mlflow"]
    history = client.get_metric_history(found.info.run_id, "loss")
    assert sorted(metric.step for metric in history) == list(range(1, 10))
    assert found.info.status == "FINISHED" and found.data.params["batch_size"] == "16"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]  # nothing outside of the run folder
