"""`LogitScale`: a learned scale for cosine logits, as a module of any training loop."""

import math
import warnings

import torch
import torch.distributed as dist
from jaxtyping import Float
from torch import Tensor, nn
from torch.distributions import LogNormal

from varscale.core.precision import full_precision
from varscale.functional import gaussian_kl
from varscale.scalers.stochastic import LOG_PRIOR_MEAN, LOG_PRIOR_SIGMA

PRIOR_MEAN, PRIOR_SIGMA = math.log(LOG_PRIOR_MEAN), LOG_PRIOR_SIGMA
"""Prior of log alpha: a factor of 20 either way is within one standard deviation."""

STRIDE = 5.0
"""log alpha moves this many times as far as its parameter, which Adam moves by one rate a step."""

LARGEST = 1000.0
"""A larger number is a mask, as in `cosines.masked_fill(own, -1e9)`."""

ROUNDED = 1.05
"""A cosine may be that large in 16 bits; a larger number has been scaled already."""

FORGET = 0.01
"""Weight of a batch in the running mean of the information."""

PATIENCE = 300
"""Batches after which an optimiser should have moved the scale."""


class LogitScale(nn.Module):
    r"""A scale for logits that are cosines, learned like any other weight (M35).

    Use it as a submodule of your model: its parameter belongs in your optimiser with the others.
    It begins where the spread of the first batch puts it, at any size of embedding and any number
    of classes, and needs no random numbers. Entries that are not finite, or
    masked by a large number, tell the scale nothing.

    $\log \alpha \sim \mathcal N(m, s^2)$ with $m$ learned and $s^{-2} = N F + \sigma_0^{-2}$: $F$
    is the information of one row about $\log \alpha$, $N$ the number of rows.

    Args:
        init: Initial value of $\alpha$; when not given, the first batch tells it:
            $\sqrt{\ln K}$ over the standard deviation of the cosines of a row, of $K$ classes.
        rows: Rows of the data, $N$; when not given, those seen so far are counted.

    Example:
        >>> scale = LogitScale()
        >>> cosines = torch.tensor([[0.8, 0.1, 0.2], [0.0, 0.7, 0.3]])
        >>> logits = scale(cosines)
        >>> loss = nn.functional.cross_entropy(logits, torch.tensor([0, 1])) + scale.kl()
        >>> scale
        LogitScale(alpha=3.52)
    """

    origin: Tensor
    seen: Tensor
    information: Tensor
    has_begun: Tensor
    checked = False  # whether a batch has been looked at
    batches = 0  # of training, so far

    def __init__(self, *, init: float | None = None, rows: float | None = None) -> None:
        super().__init__()
        for name, value in {"init": init, "rows": rows}.items():
            if value is not None and not 0 < value < math.inf:
                raise ValueError(f"Expected {name} > 0, got {value!r}.")
        self.rows, self.given = rows, init is not None
        self.begun = self.given  # `begun`: nobody asks the next batch
        start = PRIOR_MEAN if init is None else math.log(init)
        self.shift = nn.Parameter(torch.zeros(1))
        self.register_buffer("origin", torch.full((1,), start))
        # integers, which `model.bfloat16()` leaves alone and an average of models can average
        self.register_buffer("seen", torch.zeros(1, dtype=torch.int64))
        self.register_buffer("information", torch.zeros(1))
        self.register_buffer("has_begun", torch.full((1,), int(self.begun)))
        self.register_load_state_dict_post_hook(_ask_again)  # type: ignore[no-untyped-call]

    def forward(self, cosines: Float[Tensor, "*batch way"]) -> Float[Tensor, "*batch way"]:
        """Logits: the cosines times the scale, in float32 even under autocast.

        Args:
            cosines: Cosines of rows and classes, without a margin; see `plug.scaled`. Raises
                ValueError if those of the first batch are larger than 1, unless it is compiled.
        """
        with full_precision(cosines.device):
            if not cosines.is_floating_point() or cosines.ndim < 1:
                raise ValueError(f"Expected cosines (..., way), got {_shape(cosines)}.")
            cosines = cosines.to(torch.promote_types(cosines.dtype, torch.float32))
            if self.training:
                self._count(cosines.detach())
            logits = self.alpha.to(cosines.dtype) * cosines
            if self.training and cosines.numel():
                self._inform(cosines.detach())
                if not torch.compiler.is_compiling():
                    self._warn_if_still()
            return logits

    def kl(self) -> Float[Tensor, ""]:
        """KL from the prior divided by the number of rows: add it to a mean over rows."""
        mean, sigma = self._mean(), self._variance().sqrt()
        value = gaussian_kl(mean, sigma.to(mean.dtype), PRIOR_MEAN, PRIOR_SIGMA)
        return (value / self._rows().clamp_min(1).to(value.dtype)).squeeze()

    @property
    def alpha(self) -> Float[Tensor, " 1"]:
        """The scale: the median of its posterior."""
        return self._mean().exp()

    def posterior(self) -> LogNormal:
        """q(alpha), by Laplace's method."""
        mean = self._mean().detach()
        return LogNormal(mean, self._variance().sqrt().to(mean.dtype), validate_args=False)

    def extra_repr(self) -> str:
        """The scale, for `repr`."""
        if self.shift.is_meta or hasattr(self.shift, "full_tensor"):
            return ""  # no value here: nothing to read, or other processes have it
        if not self.has_begun:
            return "not begun"
        return f"alpha={self.alpha.item():.3g}"

    def _mean(self) -> Float[Tensor, " 1"]:
        """m, which is `STRIDE` times the parameter with a gradient that is as much smaller.

        So Adam moves it by `STRIDE` learning rates, and SGD as if it were the parameter.
        """
        shift = _whole(self.shift)
        still = shift.detach()
        return self.origin + STRIDE * still + (shift - still) / STRIDE

    def _variance(self) -> Float[Tensor, " 1"]:
        return 1 / (self._rows() * self.information.double() + PRIOR_SIGMA**-2)

    def _rows(self) -> Float[Tensor, " 1"]:
        seen = self.seen.double()
        return seen if self.rows is None else torch.full_like(seen, self.rows)

    @torch.no_grad()
    def _count(self, cosines: Tensor) -> None:
        """Count rows; let the first ones tell the initial value."""
        rows = cosines.numel() // max(cosines.shape[-1], 1) * _processes()
        asks = not self.begun and (cosines.numel() or _processes() > 1)
        start = initial_value(cosines) if asks else None  # all processes: before one can fail
        if not (self.checked or torch.compiler.is_compiling()) and cosines.numel():
            _check_range(cosines)
            self.checked = True
        # not `+=`: a compiled backward pass would add them again, but it keeps what was
        # concatenated (pytorch/pytorch#197039)
        self.seen.copy_(torch.cat([self.seen, torch.full_like(self.seen, rows)]).sum())
        if start is not None:
            self.begun = True
            start = start.log().to(self.origin.dtype)
            self.origin.copy_(torch.where(self.has_begun > 0, self.origin, start))
            self.has_begun.fill_(1)

    def _warn_if_still(self) -> None:
        """Warn once if the parameter has a gradient, but no optimiser moves it."""
        self.batches += 1
        shift = self.shift
        if self.batches != PATIENCE or hasattr(shift, "full_tensor") or not shift.is_leaf:
            return
        if shift.grad is not None and shift.grad.any() and not shift.any():
            warnings.warn(
                f"The scale has not moved in {PATIENCE} batches. Give its parameters to the "
                "optimiser: make the optimiser after the model has its LogitScale.",
                stacklevel=5,
            )

    @torch.no_grad()
    def _inform(self, cosines: Tensor) -> None:
        """Update the mean information of a row: the variance of its logits (M35)."""
        real = _is_real(cosines)
        logits = self.alpha.to(cosines.dtype) * torch.where(real, cosines, 0.0)
        p = logits.masked_fill(~real, -math.inf).softmax(-1)
        mean = (p * logits).sum(-1, keepdim=True)
        found = (p * (logits - mean).square()).sum(-1).nanmean().to(self.information.dtype)
        known = self.information
        update = torch.where(known == 0, found, known.lerp(found, FORGET))
        known.copy_(torch.where(found.isfinite(), update, known))  # no row, or none is finite


@torch.no_grad()
def initial_value(cosines: Float[Tensor, "*batch way"]) -> Float[Tensor, " 1"]:
    r"""The scale at which a batch of cosines has about half of the largest entropy (M35).

    A softmax over $K$ Gaussian logits of variance $v$ has entropy $\ln K - v / 2$, so
    $\alpha = \sqrt{\ln K / v}$, with $K$ and $v$ the mean number and variance of a row's entries,
    over all processes. The prior's 10 where rows do not vary, or none is finite.
    """
    real = _is_real(cosines)
    values, count = torch.where(real, cosines, 0.0).double(), real.double().sum(-1, keepdim=True)
    mean = values.sum(-1, keepdim=True) / count.clamp_min(1)
    variances = torch.where(real, (values - mean).square(), 0.0).sum(-1, keepdim=True) / count
    full = count > 0
    sums = [torch.where(full, variances, 0.0).sum(), count.sum(), full.double().sum()]
    total = torch.stack(sums)
    if _processes() > 1:
        dist.all_reduce(total)
    variance, way = (total[:2] / total[2]).split(1)
    alpha = (way.clamp_min(2).log() / variance).sqrt()
    sound = alpha.isfinite() & (variance > 1e-12)
    return torch.where(sound, alpha, torch.full_like(alpha, math.exp(PRIOR_MEAN))).to(cosines.dtype)


def _check_range(cosines: Tensor) -> None:
    """Raise ValueError if numbers are too large for cosines."""
    largest = torch.where(_is_real(cosines), cosines, 0.0).abs().amax()
    try:
        too_large = bool(largest > ROUNDED)
    except RuntimeError:  # no value to read: a meta or fake tensor, a trace, vmap
        return
    if too_large:
        raise ValueError(
            f"Expected cosines, from -1 to 1, got {largest.item():.3g}. Normalise the embeddings, "
            "and do not divide by a temperature: LogitScale takes its place. Mask with -inf or "
            "-1e9."
        )


def _is_real(cosines: Tensor) -> Tensor:
    """Where an entry is a cosine: finite, and not a mask."""
    return cosines.abs() < LARGEST


def _processes() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _whole(shift: Tensor) -> Tensor:
    """The parameter, gathered where FSDP has sharded it; its gradient is the processes' mean."""
    if not hasattr(shift, "full_tensor"):
        return shift
    from torch.distributed.tensor import Partial

    gradient = [Partial("avg")] * shift.device_mesh.ndim  # type: ignore[attr-defined]
    whole: Tensor = shift.full_tensor(grad_placements=gradient)
    return whole


def _ask_again(module: nn.Module, _: object) -> None:
    """After loading, let the next batch tell the initial value, unless `has_begun` was loaded."""
    assert isinstance(module, LogitScale)
    module.begun = module.given


def _shape(x: Tensor) -> str:
    return f"{x.dtype} of shape {tuple(x.shape)}"
