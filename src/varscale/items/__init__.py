"""What a user has, embedded: files of embeddings, or images and a model that embeds them."""

from varscale.items.embedded import Items, read_embedded

__all__ = ["Items", "read_embedded"]
