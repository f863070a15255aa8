"""The demo agent's arithmetic is exact and bounded."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from everloop.examples.demo_tools import MAX_BITS, calculate, evaluate


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        (" 2**64 - 1\n", "18446744073709551615"),
        ("0.1 + 0.2", "3/10 = 0.3"),
        ("1 / 3", "1/3 ≈ 0.3333333333333333333333333333"),
        ("0.1234567890123456789 * 10**19", "1234567890123456789"),
        ("-7 // 2", "-4"),
        ("2 ** -2", "1/4 = 0.25"),
        ("(-3) ** 3", "-27"),
        ("1 ** 10**9", "1"),
    ],
)
def test_results_are_exact(expression: str, result: str) -> None:
    """No value is rounded; only the decimal form that is shown beside a fraction may be."""
    assert calculate(expression) == result


@pytest.mark.parametrize(
    ("expression", "reason"),
    [
        ("", "is no arithmetic expression"),
        ("1\x00", "is no arithmetic expression"),
        ("abs(1)", "is not understood"),
        ("__import__('os').getcwd()", "is not understood"),
        ("1 if 1 else 2", "is not understood"),
        ("True", "is not a real number"),
        ("1 / 0", "divides by zero"),
        ("2 ** 0.5", "the exponent 1/2 is not a whole number"),
        ("9 ** 9 ** 9 ** 9", "more than 10,000 bits"),
        ("(2 ** 9999) * (2 ** 9999)", "more than 10,000 bits"),
        ("1e999999999", "an exponent beyond 3,000"),
        ("1" * 501, "the expression has 501 characters"),
    ],
)
def test_what_it_cannot_do_is_refused_with_the_reason(expression: str, reason: str) -> None:
    """Anything but arithmetic, or a number that would fill the memory, is refused with the reason."""
    with pytest.raises(ValueError, match=re.escape(reason)):
        calculate(expression)


@given(st.text(alphabet="0123456789.()+-*/% e_", max_size=60))
def test_any_expression_ends_in_a_bounded_number_or_a_value_error(expression: str) -> None:
    """No input raises anything else, and no result is larger than the bound."""
    try:
        value = evaluate(expression)
    except ValueError:
        return
    assert max(value.numerator.bit_length(), value.denominator.bit_length()) <= MAX_BITS
