"""Backbones: embedding networks. Importing a member registers it."""

from varscale.backbones.base import BACKBONES, Backbone
from varscale.backbones.conv4 import Conv4, Tiny
from varscale.backbones.frozen import Identity, Linear
from varscale.backbones.resnet12 import ResNet12

__all__ = ["BACKBONES", "Backbone", "Conv4", "Identity", "Linear", "ResNet12", "Tiny"]
