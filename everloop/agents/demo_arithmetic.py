"""Exact arithmetic on expressions that a model writes."""

import ast
import operator
import re
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction

MAX_EXPRESSION = 500
"""Characters; too few to nest as deep as the interpreter can go."""

MAX_BITS = 10_000
MAX_DECIMAL_EXPONENT = 3_000

_DECIMAL = re.compile(r"[\d_.]+(?:[eE](?P<exponent>[+-]?[\d_]+))?")


def calculate(expression: str) -> str:
    """Work out an arithmetic expression exactly and return the result as text.

    Knows numbers, parentheses and + - * / // % **. A whole number is shown as one; any other as a
    fraction with its decimal form. Numbers may have up to 10,000 bits (about 3,000 digits).

    Raises:
        ValueError: not such an expression, a division by zero, or a number that is too large.
    """
    return _shown(evaluate(expression))


def evaluate(expression: str) -> Fraction:
    """Return the exact value of an expression; see `calculate`."""
    if len(expression) > MAX_EXPRESSION:
        raise ValueError(
            f"the expression has {len(expression)} characters; at most {MAX_EXPRESSION} are read"
        )
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return _value(tree.body, expression.strip())
    except ZeroDivisionError:
        raise ValueError(f"{expression!r} divides by zero") from None
    except SyntaxError as error:
        raise ValueError(f"{expression!r} is no arithmetic expression: {error}") from None


def _value(node: ast.expr, source: str) -> Fraction:
    match node:
        case ast.Constant():
            return _bounded(_literal(node, source))
        case ast.UnaryOp(op=ast.UAdd() | ast.USub()):
            operand = _value(node.operand, source)
            return -operand if isinstance(node.op, ast.USub) else operand
        case ast.BinOp() if type(node.op) in _OPERATORS:
            left, right = _value(node.left, source), _value(node.right, source)
            return _bounded(Fraction(_OPERATORS[type(node.op)](left, right)))
        case _:
            raise ValueError(
                f"{ast.get_source_segment(source, node)!r} is not understood; "
                "write numbers, parentheses and + - * / // % **"
            )


def _literal(node: ast.Constant, source: str) -> Fraction:
    """Read a number from the source, because a float would already have rounded it."""
    if type(node.value) is int:
        return Fraction(node.value)
    text = ast.get_source_segment(source, node) or ""
    written = _DECIMAL.fullmatch(text)
    if type(node.value) is not float or not written:
        raise ValueError(f"{text!r} is not a real number")
    if abs(int(written["exponent"] or 0)) > MAX_DECIMAL_EXPONENT:
        raise ValueError(f"{text} has an exponent beyond {MAX_DECIMAL_EXPONENT:,}")
    return Fraction(text)


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    if exponent.denominator != 1:
        raise ValueError(f"the exponent {exponent} is not a whole number; only whole powers are exact")
    # Refused before it is computed: the result of a huge power would fill the memory first.
    growth = max(base.numerator.bit_length(), base.denominator.bit_length()) - 1
    if growth * abs(exponent.numerator) > MAX_BITS:
        raise ValueError(f"the result of the power has more than {MAX_BITS:,} bits")
    return Fraction(base**exponent.numerator)


_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction | int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: _power,
}


def _bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise ValueError(f"a number in the calculation has more than {MAX_BITS:,} bits")
    return value


def _shown(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    decimal = Decimal(value.numerator) / Decimal(value.denominator)
    sign = "=" if Fraction(decimal) == value else "≈"
    return f"{value} {sign} {decimal}"
