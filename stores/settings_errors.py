"""How a process says which of its settings are wrong."""

from pydantic import ValidationError

from everloop.stores.setting_names import PREFIX

OURS = "Value error, "
"""How pydantic begins the message of an error that a validator of ours raised."""


def explain(error: ValidationError) -> str:
    """Return one line that names each wrong variable and what is expected of it, without the values.

    `error` was raised by a `BaseSettings` whose fields have the prefix EVERLOOP_, or an alias in capitals.
    """
    problems = error.errors(include_url=False, include_input=False, include_context=False)
    return "; ".join(_line(str(problem["loc"][0]), problem["msg"]) for problem in problems)


def _line(field: str, problem: str) -> str:
    if problem.startswith(OURS):
        return problem.removeprefix(OURS)  # our own validators name the variable
    variable = field if field.isupper() else PREFIX + field.upper()
    return f"{variable}: {problem}"
