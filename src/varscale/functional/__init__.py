r"""Every formula, numbered (M1, M2, ...) as in `docs/method.md`: tensors in, tensors out.

Nothing here uses a module, a file or scikit-learn.

Every function takes any number of leading task axes, written `*task`, and works on all tasks at
once by matrix products; no tensor of shape (query, way, dim) is ever made.

The scale `alpha` always has a last axis of size 1 (a scalar scale) or `dim` (one scale per
dimension), after task axes that broadcast: `(1,)` and `(dim,)` are shared by all tasks, `(task, 1)`
and `(task, dim)` belong to one task each. A plain number is a shared scalar.

Embeddings in half precision are converted to float32, which a softmax over distances needs.
"""

from varscale.functional.advice import choose_covering, extrapolate_error
from varscale.functional.bound import (
    auxiliary_weight,
    gaussian_kl,
    log_predictive,
    log_softmax,
    query_nll,
)
from varscale.functional.film import Condition, film
from varscale.functional.pooling import class_logsumexp, class_means
from varscale.functional.probe import fit_probe
from varscale.functional.prototypes import (
    attention_logits,
    normalize,
    prototypes,
    task_prototype,
    unit,
)
from varscale.functional.shots import own_similarity, shot_bias, shot_factor, shot_scores, temper
from varscale.functional.similarity import (
    center,
    cosine_logits,
    dot_logits,
    euclidean_logits,
    norm_logits,
    squared_euclidean,
)
from varscale.functional.task import (
    average_softmax,
    class_spread,
    class_variances,
    leave_one_out,
    likeliest_factor,
    query_factor,
    query_logits,
    scale_factor,
    task_origin,
)
from varscale.functional.transduction import transduce
from varscale.functional.whitening import Whitening, effective_dimensions, within_covariance

__all__ = [
    "Condition",
    "Whitening",
    "attention_logits",
    "auxiliary_weight",
    "average_softmax",
    "center",
    "choose_covering",
    "class_logsumexp",
    "class_means",
    "class_spread",
    "class_variances",
    "cosine_logits",
    "dot_logits",
    "effective_dimensions",
    "euclidean_logits",
    "extrapolate_error",
    "film",
    "fit_probe",
    "gaussian_kl",
    "leave_one_out",
    "likeliest_factor",
    "log_predictive",
    "log_softmax",
    "norm_logits",
    "normalize",
    "own_similarity",
    "prototypes",
    "query_factor",
    "query_logits",
    "query_nll",
    "scale_factor",
    "shot_bias",
    "shot_factor",
    "shot_scores",
    "squared_euclidean",
    "task_origin",
    "task_prototype",
    "temper",
    "transduce",
    "unit",
    "within_covariance",
]
