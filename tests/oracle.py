"""Slow twins of `varscale.functional`: plain loops over plain numbers, one task at a time.

They are written from docs/method.md, not from the code they check.
"""

import math
import statistics


def prototypes(support, labels, n_way):
    dim = len(support[0])
    result = []
    for k in range(n_way):
        members = [x for x, y in zip(support, labels, strict=True) if y == k]
        result.append([sum(x[m] for x in members) / len(members) for m in range(dim)])
    return result


def normalize(x):
    norm = math.sqrt(sum(v * v for v in x))
    return [v / norm if norm else 0.0 for v in x]


def scale_of(alpha, m):
    return alpha[m] if len(alpha) > 1 else alpha[0]


def squared_euclidean(query, reference, alpha):
    return [
        [sum(scale_of(alpha, m) * (q[m] - c[m]) ** 2 for m in range(len(q))) for c in reference]
        for q in query
    ]


def euclidean_logits(query, reference, alpha, kappa=0.5):
    return [[-kappa * d for d in row] for row in squared_euclidean(query, reference, alpha)]


def dot_logits(query, reference, alpha):
    return [
        [sum(scale_of(alpha, m) * q[m] * c[m] for m in range(len(q))) for c in reference]
        for q in query
    ]


def cosine_logits(query, reference, alpha):
    return dot_logits([normalize(q) for q in query], [normalize(c) for c in reference], alpha)


def norm_logits(query, reference, alpha):
    return [
        [
            -math.sqrt(sum((scale_of(alpha, m) * (q[m] - c[m])) ** 2 for m in range(len(q))))
            for c in reference
        ]
        for q in query
    ]


def softmax(row):
    top = max(row)
    weights = [math.exp(v - top) for v in row]
    return [w / sum(weights) for w in weights]


def attention(similarity, labels, n_way):
    """Probability of each class: the attention its supports receive."""
    result = []
    for row in similarity:
        weights = softmax(row)
        result.append(
            [sum(w for w, y in zip(weights, labels, strict=True) if y == k) for k in range(n_way)]
        )
    return result


def query_nll(logits, labels):
    return -sum(math.log(softmax(row)[y]) for row, y in zip(logits, labels, strict=True))


def gaussian_kl(loc, scale, prior_mean, prior_sigma, points=200_001, width=14.0):
    """By the trapezoid rule over the definition, E_q[log q - log p]."""
    low, step = loc - width * scale, 2 * width * scale / (points - 1)
    total = 0.0
    for i in range(points):
        x = low + i * step
        log_q = -((x - loc) ** 2) / (2 * scale**2) - math.log(scale)
        log_p = -((x - prior_mean) ** 2) / (2 * prior_sigma**2) - math.log(prior_sigma)
        weight = 0.5 if i in (0, points - 1) else 1.0
        total += weight * math.exp(log_q) / math.sqrt(2 * math.pi) * (log_q - log_p)
    return total * step


# Closed forms of the gradient of the query-summed likelihood by the scale.


def hierarchical_kl(loc, scale):
    """KL of a vector of log-normals from the normal of log alpha that is nearest to them (M26)."""
    centre = sum(loc) / len(loc)
    spread = math.sqrt(
        sum((m - centre) ** 2 + s**2 for m, s in zip(loc, scale, strict=True)) / len(loc)
    )
    return sum(
        math.log(spread / s) + (s**2 + (m - centre) ** 2) / (2 * spread**2) - 0.5
        for m, s in zip(loc, scale, strict=True)
    )


def generated(task, hidden, head):
    """Outputs of a network with one hidden layer, each layer a pair of weights and biases."""
    inner = [
        max(0.0, sum(w * x for w, x in zip(row, task, strict=True)) + b)
        for row, b in zip(*hidden, strict=True)
    ]
    return [
        sum(w * x for w, x in zip(row, inner, strict=True)) + b
        for row, b in zip(*head, strict=True)
    ]


def scalar_gradient(logits, labels, u):
    """g = sum_j [ sum_k p_jk u_jk - u_{j, y_j} ], with u_jk the derivative of the logit."""
    total = 0.0
    for row, y, u_row in zip(logits, labels, u, strict=True):
        p = softmax(row)
        total += sum(pk * uk for pk, uk in zip(p, u_row, strict=True)) - u_row[y]
    return total


def vector_gradient(logits, labels, query, reference, term):
    """The same for every dimension; `term(q_m, c_m)` is the derivative of the logit by alpha_m."""
    return [
        scalar_gradient(logits, labels, [[term(q[m], c[m]) for c in reference] for q in query])
        for m in range(len(reference[0]))
    ]


def film(x, gamma, beta):
    """M21, number by number; a flat list."""
    per_task = len(x) // len(gamma)
    return [
        (1 + float(gamma[i // per_task][c])) * float(value) + float(beta[i // per_task][c])
        for i, item in enumerate(x)
        for c, channel in enumerate(item)
        for value in channel.flatten()
    ]


def choose_covering(similarity, covered, weight, n):
    covered, chosen, items = list(covered), [], range(len(covered))
    for _ in range(n):
        gains = [
            sum(weight[j] * max(0.0, similarity[i][j] - covered[j]) for j in items)
            if i not in chosen
            else -math.inf
            for i in items
        ]
        best = max(items, key=gains.__getitem__)
        chosen.append(best)
        covered = [max(covered[j], similarity[best][j]) for j in items]
    return chosen


def extrapolate_error(error, shots, answers, target, width):
    normal = statistics.NormalDist()
    way, number = len(target), 0.6 * answers
    chance = normal.inv_cdf(1 / way)

    def reach(counts):
        return sum(math.sqrt(n / (n + 1.2)) for n in counts) / len(counts)

    seen, noise = [], []
    for e, counts in zip(error, shots, strict=True):
        e = min(max(e, 0.5 / (number + 1)), 1 - 1 / way)
        quantile = normal.inv_cdf(1 - e)
        seen.append((quantile - chance) / reach(counts))
        noise.append(e * (1 - e) / number / (normal.pdf(quantile) * reach(counts)) ** 2)
    noise = sum(noise) / len(noise)
    usual = 3.2 + 0.1 * math.log(way - 1)
    seen = sum(seen) / len(seen)
    variety = max(0.6**2, (seen - usual) ** 2 - noise)
    weight = variety / (variety + noise)
    middle = usual + weight * (seen - usual)
    half = width * math.sqrt(weight * noise + 0.15**2)
    return [
        normal.cdf(-chance - reach(target) * max(v, 0))
        for v in (middle, middle + half, middle - half)
    ]
