"""A proof, in decimal arithmetic of as many digits as it takes, that Gaussian noise is (epsilon, delta)-DP.

With r = sensitivity / sigma it is so if and only if `Q(e/r - r/2) - exp(e) Q(e/r + r/2) <= delta`, Q the upper tail of
the normal distribution and e = epsilon (Balle and Wang 2018, Theorem 8). At small e or delta the two terms agree in
more digits than a float has. For x > 0

    1/2 - Q(x) = phi(x) (x + x^3 / 3 + x^5 / (3 5) + x^7 / (3 5 7) + ...),

a sum of positive terms, so that a computation with P digits is off by a known multiple of 10^-P. That error is added to
the result: what is called private is private.
"""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_HALF_EVEN, Context, Decimal, getcontext, localcontext

#: Beyond it the terms are of numbers too large for this; they do not cancel there, either.
LARGEST_PROVED = 100.0
#: Digits beyond those of delta: 14 of the comparison, and 12 that rounding may take, which is more than terms (below
#: 10^5) times the operations on each (4), the condition of phi (x^2 < 10^5) and exp(epsilon) can add up to.
_DIGITS, _LOST = 26, 12
#: Arguments of Q beyond this are not computed: the answer is then no.
_LARGEST_ARGUMENT = 300


def is_private(sigma: float, sensitivity: float, epsilon: float, delta: float) -> bool:
    """Whether noise of standard deviation sigma is proved to be (epsilon, delta)-DP.

    Args:
        sigma, sensitivity: finite, > 0, in the same units.
        epsilon: > 0, at most `LARGEST_PROVED`.
        delta: inside (0, 1).

    Returns:
        False if it is not, or is so by less than the error of the computation (10^-14 of delta).
    """
    # exp(epsilon) multiplies an error, which takes as many digits more
    digits = _DIGITS + _LOST + math.ceil(-math.log10(delta)) + math.ceil(epsilon / math.log(10))
    with localcontext(Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN)) as context:
        e = Decimal(epsilon)
        context.rounding = ROUND_CEILING  # delta grows with r
        r = Decimal(sensitivity) / Decimal(sigma)
        context.rounding = ROUND_HALF_EVEN
        low, high = e / r - r / 2, e / r + r / 2
        if high > _LARGEST_ARGUMENT:
            return False
        needed = _upper_tail(low) - e.exp() * _upper_tail(high)
        error = Decimal(10) ** (_LOST + math.ceil(epsilon / math.log(10)) - digits)
        return needed + error <= Decimal(delta)


def _upper_tail(x: Decimal) -> Decimal:
    """Q(x), off by less than 10^(12 - digits), |x| at most 300."""
    if x < 0:
        return 1 - _upper_tail(-x)
    square = x * x
    total, term, odd = x, x, 1
    smallest = Decimal(10) ** (-getcontext().prec - 2)
    while True:
        odd += 2
        term = term * square / odd
        total += term
        # from here on a term is less than half of the one before
        if 2 * square < odd and term < total * smallest:
            break
    return Decimal("0.5") - total * (-square / 2).exp() / (2 * _pi()).sqrt()


def _pi() -> Decimal:
    """Pi to the digits of the context: 16 atan(1/5) - 4 atan(1/239)."""
    return 16 * _small_arctangent(5) - 4 * _small_arctangent(239)


def _small_arctangent(inverse: int) -> Decimal:
    """atan(1 / inverse)."""
    power = total = 1 / Decimal(inverse)
    smallest, odd = Decimal(10) ** (-getcontext().prec - 2), 1
    while abs(power) > smallest:
        power, odd = power / -(inverse * inverse), odd + 2
        total += power / odd
    return total
