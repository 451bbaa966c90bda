"""Every check is seen to fail: members that break the contract, each in one way."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import LogNormal, Normal, Uniform

from varscale.backbones import Backbone, Linear
from varscale.functional import class_means, unit
from varscale.hosts import Host, PrototypicalNetwork
from varscale.scalers import SVS, Scaler
from varscale.testing import check_backbone, check_host, check_scaler
from varscale.testing.examples import make_example
from varscale.testing.joined import check_predictions

pytestmark = pytest.mark.usefixtures("as_user")  # the checks' own messages, as outside tests


class Mine(Scaler):
    """A scale of mine."""

    local = False

    def __init__(self, *, init: float = 10.0, sigma: float = 0.2) -> None:
        super().__init__(size=1, lr=0.1, kl_weight=0.1)
        self.loc, self.sigma = nn.Parameter(torch.tensor([init])), sigma

    def forward(self, task):
        loc = self.loc.expand(*task.shape[:-1], 1)
        return Normal(loc, torch.full_like(loc, self.sigma))


class OurHost(Host):
    """Compare queries with class means."""

    def references(self, support, labels, *, n_way):
        return unit(class_means(support, labels, n_way))

    def logits(self, query, references, labels, alpha, *, n_way):
        return self.compare(unit(query), references, alpha)


class OurBackbone(Backbone):
    """Two linear layers."""

    def __init__(self, dim: int, *, width: int = 5) -> None:
        super().__init__()
        self.in_shape, self.out_dim = (dim,), width
        self.layers = nn.Sequential(nn.Linear(dim, 7), nn.Tanh(), nn.Linear(7, width))

    def forward(self, items):
        return self.layers(items)


def test_good_members_pass_by_class_and_instance():
    check_scaler(Mine)
    check_scaler(Mine, init=3.0, host=OurHost)
    check_scaler(Mine(init=3.0))
    check_scaler(SVS(init=3.0, family="log-normal", effective_tasks=10.0))
    check_host(OurHost, kappa=1.0)
    check_host(OurHost, scaler="d-svs")
    check_host(PrototypicalNetwork(Linear(4)))
    check_backbone(OurBackbone, width=3)
    check_backbone(OurBackbone(4))
    sequence = nn.Sequential(nn.Flatten(), nn.Linear(6, 4))
    sequence.in_shape, sequence.out_dim = (2, 3), 4
    check_backbone(sequence)


def test_a_check_leaves_the_random_numbers_alone():
    before = torch.get_rng_state()
    check_backbone(OurBackbone)
    assert torch.equal(torch.get_rng_state(), before)


def test_options_need_something_to_build():
    with pytest.raises(ValueError, match="Options need a name or a class"):
        check_scaler(Mine(), init=3.0)
    with pytest.raises(ValueError, match="Unknown scaler 'sv'; .*Did you mean 'svs'"):
        check_scaler("sv")


def variant(base, **members):
    """A subclass that says what it is and does one thing differently."""
    return type("Broken", (base,), {"__doc__": "Broken in one way.", **members})


def forward(function):
    return variant(Mine, forward=lambda self, task: function(self, task))


def spread(self, task, value=0.2):
    loc = self.loc.expand(*task.shape[:-1], 1)
    return Normal(loc, torch.full_like(loc, value), validate_args=False)


class Counting(Mine):
    """A scale that depends on how often it was asked in training."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def forward(self, task):
        self.asked += self.training
        return Normal(super().forward(task).loc + self.asked, 0.2)


class Unused(Mine):
    """A scale with a parameter that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.other = nn.Parameter(torch.ones(1))


class Fractional(Mine):
    """A scale with an option that no file can hold."""

    def __init__(self, *, kind: type = nn.ReLU) -> None:
        super().__init__()


class InHalf(Mine):
    """A scale that computes in half precision."""

    def forward(self, task):
        q = super().forward(task)
        return Normal(q.loc.bfloat16(), q.scale.bfloat16())


SCALERS = {
    "inherits from Scaler": nn.Linear,
    "got none for forward": type("Abstract", (Scaler,), {"__doc__": "Abstract."}),
    "first line is a sentence": variant(Mine, __doc__="mine"),
    "a config file can hold": Fractional,
    "Normal or LogNormal": forward(lambda self, task: Uniform(self.loc, self.loc + 1)),
    r"batch shape \(\*task, size\)": forward(lambda self, task: Normal(self.loc, 0.2)),
    "standard deviation >= 0": forward(lambda self, task: spread(self, task, -1.0)),
    "finite mean": forward(lambda self, task: spread(self, task, math.nan)),
    "Set local = False": variant(Mine, local=True),
    "Set local = True": forward(
        lambda self, task: Normal(self.loc + task.mean(-1, keepdim=True), 0.2)
    ),
    r"shape \(2, 3\), got shape \(2, 3, 1\)": variant(Mine, kl=lambda self, q: q.scale),
    "a number >= 0 for each task": variant(Mine, kl=lambda self, q: -q.loc[..., 0]),
    "median of q at noise 0": variant(Mine, sample=lambda self, q, noise: q.loc + noise + 1),
    "repr to begin with": variant(Mine, __repr__=lambda self: "mine"),
    "to take tasks of torch.float16": forward(
        lambda self, task: Normal(self.loc + 0 * (1e6 * task.detach()[..., :1]), 0.2)
        if task.dtype != torch.float16
        else Normal(spread(self, task).loc * math.nan, 0.2, validate_args=False)
    ),
    "Create tensors where the input is": forward(
        lambda self, task: Normal(torch.zeros(*task.shape[:-1], 1) + self.loc, 0.2)
    ),
    "do not read values": forward(
        lambda self, task: Normal(spread(self, task).loc, float(self.loc.detach().abs()))
    ),
    "got no gradient": Unused,
    "Expected a gradient of scaler.loc that is not 0": forward(
        lambda self, task: Normal(spread(self, task).loc * 0 + 3.0, 0.2)
    ),
    "finite gradient": forward(
        lambda self, task: Normal(spread(self, task).loc + (self.loc - 10.0).abs().sqrt(), 0.2)
    ),
    "in one optimiser": variant(
        Mine, log_parameters=lambda self: [nn.Parameter(torch.zeros(1)), nn.Parameter(self.loc)]
    ),
    "after saving and loading": Counting,
    "in float32 under bfloat16 autocast": InHalf,
}  # fmt: skip


@pytest.mark.parametrize("message", SCALERS)
def test_a_broken_scaler_is_told(message):
    with pytest.raises(AssertionError, match=message):
        check_scaler(SCALERS[message])


def test_predictions_that_do_not_add_up_are_told():
    def make():
        model = make_example(OurHost, Mine)
        model.forward = lambda *_, **__: torch.zeros(2, 5, 3)
        return model

    with pytest.raises(AssertionError, match=r"add up to 1 from OurHost with Mine.*a sum of 3\."):
        check_predictions(make)


HOSTS = {
    "inherits from Host": nn.Identity,
    "got none for logits": type("Abstract", (Host,), {"__doc__": "A", "references": None}),
    "embed to return supports and queries": variant(
        OurHost, embed=lambda self, episode: Host.embed(self, episode)[::-1]
    ),
    "references to return": variant(
        OurHost, references=lambda self, support, labels, *, n_way: support.mean(1)
    ),
    "finite logits of shape": variant(
        OurHost,
        logits=lambda self, query, references, labels, alpha, *, n_way: (
            unit(query) @ references.mT * (alpha if isinstance(alpha, float) else alpha.mean())
        ),
    ),
    "depend on alpha": variant(
        OurHost,
        logits=lambda self, query, references, labels, alpha, *, n_way: (
            OurHost.logits(self, query, references, labels, alpha, n_way=n_way) * 0
        ),
    ),
    "same probability under another label": variant(
        OurHost,
        references=lambda self, support, labels, *, n_way: unit(support[:, :n_way]),
    ),
    "depend on no other query": variant(
        OurHost,
        logits=lambda self, query, references, labels, alpha, *, n_way: self.compare(
            unit(query - query.mean(1, keepdim=True) * 0.9), references, alpha
        ),
    ),
    "without reading a value|do not read values": variant(
        OurHost,
        references=lambda self, support, labels, *, n_way: unit(
            class_means(support, labels, int(labels.max()) + 1)
        ),
    ),
}


@pytest.mark.parametrize("message", HOSTS)
def test_a_broken_host_is_told(message):
    with pytest.raises(AssertionError, match=message):
        check_host(HOSTS[message])


def backbone(function, **attributes):
    class Broken(OurBackbone):
        """Broken in one way."""

        def __init__(self, dim: int) -> None:
            super().__init__(dim)
            for name, value in attributes.items():
                setattr(self, name, value)

        def forward(self, items):
            return function(self.layers(items))

    return Broken


BACKBONES = {
    "inherits from Module": dict,
    "in_shape to be the shape of one item": backbone(lambda z: z, in_shape=6),
    "out_dim to be the embedding size": backbone(lambda z: z, out_dim=None),
    r"embeddings of shape \(3, 9\), got \(3, 5\)": backbone(lambda z: z, out_dim=9),
    "finite embeddings": backbone(lambda z: z / 0),
    "alone as among others": backbone(lambda z: z - z.mean(0)),
    "no gradient": backbone(lambda z: z.detach()),
    "work on any device": backbone(lambda z: z + torch.ones(5)),
}


@pytest.mark.parametrize("message", BACKBONES)
def test_a_broken_backbone_is_told(message):
    with pytest.raises(AssertionError, match=message):
        check_backbone(BACKBONES[message])


def test_a_log_normal_is_a_posterior_too():
    class Positive(Mine):
        """A positive scale."""

        def forward(self, task):
            loc = self.loc.expand(*task.shape[:-1], 1)
            return LogNormal(loc, torch.full_like(loc, 0.1))

    check_scaler(Positive, init=1.0)
