"""Items of a user as embeddings: from a file of them, or from images and a model.

Nothing here knows runs or the classifier.
"""

from varscale.items.embedded import Items, read_embedded

__all__ = ["Items", "read_embedded"]
