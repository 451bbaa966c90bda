"""`FewShotClassifier`: what base classes teach, its fitting, its file.

Nothing here knows runs or the command line.
"""

from varscale.classifier.estimator import FewShotClassifier
from varscale.classifier.prior import Prior

__all__ = ["FewShotClassifier", "Prior"]
