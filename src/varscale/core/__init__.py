"""Foundations of all rooms: registry, random numbers, files, processes, labels, episodes.

Nothing here knows anything about few-shot learning beyond `Episode`.
"""

from varscale.core.episode import Episode
from varscale.core.registry import Registry

__all__ = ["Episode", "Registry"]
