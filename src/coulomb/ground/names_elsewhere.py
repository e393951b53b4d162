"""Names of options in other libraries and in authors' code, which error messages translate to the names used here."""

from collections.abc import Sequence

from coulomb.ground.errors import did_you_mean

# Name elsewhere → (option here, remark). Suggested only if the loss has this option.
RENAMED: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("tau", "temp", "T", "softmax_temperature"), ("temperature", "")),
    **dict.fromkeys(("scale", "logit_scale", "inv_temperature"), ("temperature", "temperature is 1/scale")),
    "s": ("scale", ""),
    "temperature": ("scale", "scale is 1/temperature"),
    "logit_bias": ("bias", ""),
    "supt": ("supervised_temperature", ""),
    **dict.fromkeys(("embedding_size", "embedding_dim", "feature_dim", "feat_dim", "in_features"), ("dim", "")),
    **dict.fromkeys(("num_labels", "n_classes", "num_class", "classes", "out_features"), ("num_classes", "")),
    **dict.fromkeys(("m", "triplet_margin", "arcface_margin"), ("margin", "")),
    "margin_in_degrees": ("margin", "the margin is in radians"),
    **dict.fromkeys(("reducer", "size_average", "reduce"), ("reduction", "'mean', 'sum' or 'none'")),
    **dict.fromkeys(("normalize_embeddings", "l2_normalize", "normalise", "l2norm"), ("normalize", "")),
    **dict.fromkeys(
        ("gather_distributed", "gather_across_devices", "gather_with_grad", "local_loss", "distributed"),
        ("gather", "'auto' gathers when torch.distributed runs several processes"),
    ),
    **dict.fromkeys(("distance_metric", "similarity_fct", "p", "metric"), ("distance", "'cosine' or 'euclidean'")),
    **dict.fromkeys(("miner", "type_of_triplets", "triplets_per_anchor"), ("mining", "'all', 'semihard' or 'hard'")),
    **dict.fromkeys(("smooth_loss", "soft_margin"), ("soft", "")),
    **dict.fromkeys(("smooth", "smoothing", "label_smooth"), ("label_smoothing", "")),
    **dict.fromkeys(
        ("cls_num_list", "samples_per_class", "class_freq", "class_frequency", "num_samples_per_class"),
        ("class_counts", ""),
    ),
    **dict.fromkeys(("tau_base", "base_temp"), ("base_temperature", "")),
    **dict.fromkeys(("topk", "k", "num_negatives", "num_hard_negatives"), ("top_k", "")),
    **dict.fromkeys(("lam", "lambda_", "lambd", "lambda_param", "negative_weight"), ("weight", "")),
    **dict.fromkeys(("sim_coeff", "sim_loss_weight"), ("invariance", "")),
    **dict.fromkeys(("std_coeff", "mu_param", "var_loss_weight"), ("variance", "")),
    **dict.fromkeys(("cov_coeff", "nu_param", "cov_loss_weight"), ("covariance", "")),
}

_QUEUE = (
    "pass negatives from earlier batches in the call: InfoNCELoss()(query, positive, queue.keys()) with negatives.Queue"
)
_MEMORY = "the memory of a loss is linear in the batch, omit it; for the memory of an encoder use coulomb.training.cached_step"
_READ = "it is inferred from the tensors of each call; omit it"
# Name elsewhere → what to do instead, if there is no corresponding option.
REPLACED: dict[str, str] = {
    **dict.fromkeys(("memory_bank_size", "memory_size", "queue_size", "memory_bank", "K", "bank_size"), _QUEUE),
    **dict.fromkeys(("batch_size", "device", "n_views", "feature_size"), _READ),
    **dict.fromkeys(("world_size", "rank"), "it is read from torch.distributed; omit it"),
    **dict.fromkeys(("eps", "epsilon"), "the losses are computed without it; omit it"),
    **dict.fromkeys(("mini_batch_size", "chunk_size"), _MEMORY),
    **dict.fromkeys(("ignore_index", "ignore_label"), "use the label -1 for unknown samples"),
    **dict.fromkeys(
        ("distance", "similarity"), "this loss uses cosine similarity, or dot products with normalize=False"
    ),
    **dict.fromkeys(("embedding_regularizer", "embedding_reg_weight", "collect_stats"), "this loss has no such term"),
    "negative_mode": "negatives [K, D] are passed in the call and shared by all queries",
    "model": "the loss takes embeddings, not a model: call it with the model's output",
}


def unknown_option(loss: str, name: str, options: Sequence[str]) -> str:
    """Returns the error message for an option ``name`` that ``loss`` does not have."""
    what = f"{loss} has no option {name!r}"
    here, remark = RENAMED.get(name, ("", ""))
    if here in options:
        return f"{what}; use {here!r}" + (f" ({remark})" if remark else "")
    if name in REPLACED:
        return f"{what}; {REPLACED[name]}"
    return f"{what}{did_you_mean(name, options)}; its options are {', '.join(options)}"


# Option of a run or command in other libraries → names here; the first one that the command has is suggested.
RUN_OPTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("learning_rate", "base_lr", "init_lr", "max_lr", "peak_lr"), ("lr",)),
    **dict.fromkeys(("num_epochs", "max_epochs", "n_epochs", "num_train_epochs"), ("epochs",)),
    **dict.fromkeys(("batch", "bs", "train_batch_size", "per_device_train_batch_size"), ("batch_size",)),
    **dict.fromkeys(("model", "backbone", "arch", "architecture", "network", "model_name", "m"), ("encoder",)),
    **dict.fromkeys(("loss", "algorithm", "objective"), ("method",)),
    **dict.fromkeys(("wd", "l2", "regularization"), ("weight_decay",)),
    **dict.fromkeys(("optim", "opt"), ("optimizer",)),
    **dict.fromkeys(("scheduler", "lr_scheduler", "lr_schedule", "lr_scheduler_type"), ("schedule",)),
    **dict.fromkeys(("warmup", "warmup_ratio", "n_warmup_epochs"), ("warmup_epochs",)),
    **dict.fromkeys(("grad_accum", "accum_iter", "accumulate_grad_batches"), ("accumulate",)),
    "gradient_accumulation_steps": ("accumulate",),
    **dict.fromkeys(("tau", "temp", "softmax_temperature"), ("temperature",)),
    **dict.fromkeys(("amp", "fp16", "bf16", "mixed_precision"), ("precision",)),
    **dict.fromkeys(("projection_dim", "proj_dim", "embed_dim", "out_dim", "dim"), ("embedding_dim",)),
    **dict.fromkeys(("img_size", "imgsz", "input_size", "resolution", "size", "crop_size"), ("image_size",)),
    **dict.fromkeys(("augmentations", "transforms", "transform", "augment", "augmentation"), ("views",)),
    **dict.fromkeys(("dataset", "train_data", "train_dir", "data_dir"), ("data",)),
    **dict.fromkeys(("val", "val_data", "valid", "test_data", "test_dir", "val_dir"), ("test", "on_test")),
    **dict.fromkeys(("test_size", "val_split", "test_split", "val_fraction"), ("test_fraction",)),
    **dict.fromkeys(("label", "target", "label_column", "target_column"), ("labels", "on_labels")),
    **dict.fromkeys(("groups", "group_by", "group_column"), ("group", "on_group")),
    **dict.fromkeys(("output", "output_dir", "save_dir", "outdir", "out_dir", "save", "o"), ("out",)),
    **dict.fromkeys(("num_workers", "n_jobs", "jobs", "j"), ("workers",)),
    **dict.fromkeys(("gpus", "num_gpus", "n_gpus", "nproc_per_node"), ("devices",)),
    "device": ("accelerator",),
    **dict.fromkeys(("random_seed", "random_state", "rng_seed"), ("seed",)),
    **dict.fromkeys(("checkpoint", "ckpt", "ckpt_path", "resume_from_checkpoint"), ("resume", "resume_from")),
    **dict.fromkeys(("threshold", "min_similarity", "similarity", "cutoff", "t"), ("above", "accuracy")),
    **dict.fromkeys(("limit", "num", "top_k", "topk", "count", "n_results", "n"), ("top", "number")),
    **dict.fromkeys(("clusters", "n_clusters", "num_clusters", "k"), ("number", "neighbors", "knn_k", "top")),
    **dict.fromkeys(("n_neighbors", "neighbours", "num_neighbors"), ("neighbors", "knn_k")),
    **dict.fromkeys(("min_cluster_size", "min_size"), ("least",)),
}


def run_option(name: str, options: Sequence[str]) -> str | None:
    """Returns the one of ``options`` that corresponds to ``name`` in other libraries, or None."""
    return next((here for here in RUN_OPTIONS.get(name.lower(), ()) if here in options), None)
