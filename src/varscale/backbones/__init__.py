"""Backbones: embedding networks. Importing a member registers it."""

from varscale.backbones.base import BACKBONES, Backbone
from varscale.backbones.conv4 import Conv4, Tiny
from varscale.backbones.frozen import Identity, Linear

__all__ = ["BACKBONES", "Backbone", "Conv4", "Identity", "Linear", "Tiny"]
