"""Hosts: metric-based classifiers that take their scale from outside."""

from varscale.hosts.base import HOSTS, Host
from varscale.hosts.matching import MatchingNetwork
from varscale.hosts.prototypical import PrototypicalNetwork
from varscale.hosts.tadam import Tadam

__all__ = ["HOSTS", "Host", "MatchingNetwork", "PrototypicalNetwork", "Tadam"]
