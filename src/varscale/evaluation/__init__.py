"""How good predictions are: evaluation, metrics, paired comparison, conformal counts.

Nothing here knows how a model is trained. (The function `varscale.evaluate` keeps this room from
being called `evaluate`.)
"""

from varscale.evaluation.evaluation import Evaluation, evaluate

__all__ = ["Evaluation", "evaluate"]
