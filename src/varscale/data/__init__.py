"""Where tasks come from."""

from varscale.data.synthetic import GaussianTasks

__all__ = ["GaussianTasks"]
