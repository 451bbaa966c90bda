"""Hosts: metric-based classifiers that turn an episode and a value of alpha into logits.

A host embeds and compares. It does not know where alpha comes from: no scaler may enter here.
"""

from varscale.hosts.base import HOSTS, Host
from varscale.hosts.matching import MatchingNetwork
from varscale.hosts.prototypical import PrototypicalNetwork
from varscale.hosts.tadam import Tadam

__all__ = ["HOSTS", "Host", "MatchingNetwork", "PrototypicalNetwork", "Tadam"]
