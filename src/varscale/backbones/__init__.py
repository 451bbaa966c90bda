"""Backbones: networks that embed items as vectors. Importing a member registers it.

A backbone knows its items and its embedding size, and nothing of scalers, hosts or metrics.
"""

from varscale.backbones.base import BACKBONES, Backbone
from varscale.backbones.conv4 import Conv4, Tiny
from varscale.backbones.precomputed import Identity, Linear
from varscale.backbones.resnet12 import ResNet12

__all__ = ["BACKBONES", "Backbone", "Conv4", "Identity", "Linear", "ResNet12", "Tiny"]
