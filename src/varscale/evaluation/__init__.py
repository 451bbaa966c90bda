"""How good predictions are: evaluation, metrics, paired comparison, conformal counts.

Nothing here knows how a model is trained. (The room is not called `evaluate`, because
`varscale.evaluate` is a function.)
"""

from varscale.evaluation.evaluation import Evaluation, compare, evaluate

__all__ = ["Evaluation", "compare", "evaluate"]
