"""Names of options in other libraries and in authors' code, which error messages translate to the names used here."""

from collections.abc import Sequence

from coulomb.errors import did_you_mean

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
_MEMORY = "memory of a loss is linear in the batch, omit it; for that of an encoder use coulomb.training.cached_step"
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
