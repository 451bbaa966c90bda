"""Foundations of all rooms: registry, random numbers, files, processes, labels, episodes.

Nothing here knows anything about few-shot learning beyond `Episode`.
"""

from typing import TYPE_CHECKING

from varscale.core.lazy import lazy_exports

if TYPE_CHECKING:
    from varscale.core.episode import Episode
    from varscale.core.registry import Registry

__all__ = ["Episode", "Registry"]
__getattr__ = lazy_exports(__name__, {"Episode": "episode", "Registry": "registry"})
