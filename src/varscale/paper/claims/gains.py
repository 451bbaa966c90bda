"""C1 to C12: who is more accurate than whom, on the same test tasks."""

from varscale.paper.claims.base import Everything, Judgement, claim
from varscale.paper.evidence import Estimate, Evidence, above, difference, within

MARGIN = 1.0
"""Points within which two accuracies count as equal."""


def _gains(evidence: Evidence, *pairs: tuple[str, str]) -> list[Estimate | None]:
    return [evidence.gain(config, over) for config, over in pairs]


def _all_above(evidence: Evidence, *pairs: tuple[str, str]) -> Judgement:
    gains = _gains(evidence, *pairs)
    return above(0, *gains), list(gains)


def _all_within(evidence: Evidence, *pairs: tuple[str, str]) -> Judgement:
    gains = _gains(evidence, *pairs)
    return within(MARGIN, *gains), list(gains)


def _controls(e: Everything, shot: int) -> list[Estimate | None]:
    """SVS over what does without it: a grid search, no noise, no prior, a fixed schedule."""
    others = ("grid", "together", "decay", "svs_sigma0", "svs_nokl")
    svs = f"svs_cosine_5w{shot}s"
    return _gains(e.small, *((svs, f"{other}_cosine_5w{shot}s") for other in others))


@claim("C1", "SVS lifts PN with the cosine in 1-shot", "unscaled cosine can hardly learn at all")
def _(e: Everything) -> Judgement:
    pairs = [(f"{s}_cosine_5w1s", "pn_cosine_5w1s") for s in ("svs", "svs_learned")]
    answer, gains = _all_above(e.small, *pairs)
    return answer, [*gains, *_controls(e, shot=1)]


@claim("C2", "SVS lifts Euclidean PN in 1-shot", "a better tuned baseline leaves less")
def _(e: Everything) -> Judgement:
    return _all_above(e.small, ("svs_euclidean_5w1s", "pn_euclidean_5w1s"))


@claim("C3", "in 5-shot SVS gains much with the cosine, little with Euclid")
def _(e: Everything) -> Judgement:
    cosine, euclid = _gains(
        e.small,
        ("svs_cosine_5w5s", "pn_cosine_5w5s"),
        ("svs_euclidean_5w5s", "pn_euclidean_5w5s"),
    )
    more = difference("cosine's gain - Euclid's", cosine, euclid)
    return above(0, cosine, euclid, more), [cosine, euclid, more, *_controls(e, shot=5)]


@claim("C4", "the gains persist with 20-way training")
def _(e: Everything) -> Judgement:
    return _all_above(
        e.small,
        *(
            (f"svs_{metric}_20w{shot}s", f"pn_{metric}_20w{shot}s")
            for metric in ("euclidean", "cosine")
            for shot in (1, 5)
        ),
    )


@claim(
    "C5",
    "Euclid and cosine are equal after scaling",
    "judged: within 1 point; with SVS and kappa 1/2 it is an identity",
)
def _(e: Everything) -> Judgement:
    return _all_within(
        e.small,
        *(
            (f"{s}_cosine_5w{shot}s", f"{s}_euclidean_5w{shot}s")
            for s in ("svs", "dsvs")
            for shot in (1, 5)
        ),
    )


@claim("C6", "learned and fixed sigma are equal", "judged: within 1 point")
def _(e: Everything) -> Judgement:
    return _all_within(
        e.small,
        *((f"svs_learned_cosine_5w{shot}s", f"svs_cosine_5w{shot}s") for shot in (1, 5)),
    )


@claim("C7", "D-SVS beats SVS, more so in 1-shot")
def _(e: Everything) -> Judgement:
    one, five = _gains(e.small, *((f"dsvs_cosine_5w{n}s", f"svs_cosine_5w{n}s") for n in (1, 5)))
    more = difference("1-shot gain - 5-shot gain", one, five)
    return above(0, one, five, more), [one, five, more]


@claim(
    "C8",
    "D-AVS at least equals D-SVS",
    "judged: not worse by 1 point; transductive, supports alone are shown beside it",
)
def _(e: Everything) -> Judgement:
    gains = _gains(e.small, *((f"davs_cosine_5w{n}s", f"dsvs_cosine_5w{n}s") for n in (1, 5)))
    alone = _gains(
        e.small, *((f"davs_support_cosine_5w{n}s", f"dsvs_cosine_5w{n}s") for n in (1, 5))
    )
    return above(-MARGIN, *gains), [*gains, *alone]


@claim("C9", "D-AVS beats SVS by about a point", "judged: more than 0; transductive")
def _(e: Everything) -> Judgement:
    return _all_above(e.small, *((f"davs_cosine_5w{n}s", f"svs_cosine_5w{n}s") for n in (1, 5)))


@claim(
    "C10",
    "auxiliary loss and prior both help D-AVS; the auxiliary loss matters more",
    "the published prior is not known",
)
def _(e: Everything) -> Judgement:
    aux, prior = _gains(
        e.small,
        ("davs_noprior_cosine_5w1s", "davs_bare_cosine_5w1s"),
        ("davs_noaux_cosine_5w1s", "davs_bare_cosine_5w1s"),
    )
    more = e.small.gain("davs_noprior_cosine_5w1s", "davs_noaux_cosine_5w1s")
    felt = _gains(  # a prior that is felt
        e.small,
        ("davs_noaux_tight_cosine_5w1s", "davs_bare_cosine_5w1s"),
        ("davs_tight_cosine_5w1s", "davs_noprior_cosine_5w1s"),
    )
    return above(0, aux, prior, more), [aux, prior, more, *felt]


@claim("C11", "D-SVS helps with ResNet-12", "quarter width, 32x32")
def _(e: Everything) -> Judgement:
    return _all_above(
        e.small,
        ("dsvs_resnet12_5w5s", "pn_resnet12_5w5s"),
        ("dsvs_cosine_resnet12_5w5s", "pn_cosine_resnet12_5w5s"),
    )


@claim("C12", "D-SVS improves TADAM", "quarter width, 32x32; the paper did not run TADAM itself")
def _(e: Everything) -> Judgement:
    return _all_above(e.small, ("tadam_dsvs_5w5s", "tadam_5w5s"))
