"""Edit the file of an agent: add imports, tools and plugins."""

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard


class UnexpectedSourceError(Exception):
    """The layout of the file is unexpected; the message names the part."""


@dataclass(frozen=True)
class AgentSource:
    """The text of a Python file that defines an agent."""

    text: str

    @property
    def tree(self) -> ast.Module:
        try:
            return ast.parse(self.text)
        except SyntaxError as error:
            raise UnexpectedSourceError(f"line {error.lineno} is no Python: {error.msg}") from error

    @property
    def names(self) -> frozenset[str]:
        """Names that the file defines or imports at its top level."""
        defined: set[str] = set()
        for node in self.tree.body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    defined.add(node.name)
                case ast.Import() | ast.ImportFrom():
                    defined.update(alias.asname or alias.name for alias in node.names)
                case ast.Assign():
                    defined.update(target.id for target in node.targets if isinstance(target, ast.Name))
                case _:
                    pass
        return frozenset(defined)

    @property
    def ids(self) -> frozenset[str]:
        """Ids of the top-level definitions, such as agents, as far as they are literals."""
        calls = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call))
        given = (each.value for call in calls for each in call.keywords if each.arg == "id")
        return frozenset(str(each.value) for each in given if isinstance(each, ast.Constant))

    def importing(self, *required: str) -> "AgentSource":
        """Import the missing names from Everloop."""
        missing = [name for name in required if name not in self.names]
        if not missing:
            return self
        body = self.tree.body
        for node in body:
            if _imports_plainly(node):
                names = sorted({*missing, *(alias.name for alias in node.names)}, key=_as_isort)
                return self._with(node, f"from everloop import {', '.join(names)}")
        line = f"from everloop import {', '.join(sorted(missing, key=_as_isort))}"
        imports = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
        after = imports[-1] if imports else next(iter(body), None)
        if after and (imports or _is_docstring(after)):
            return self._with(after, f"{ast.get_source_segment(self.text, after)}\n{line}")
        return replace(self, text=f"{line}\n\n{self.text}")

    def with_plugin(self, code: str) -> "AgentSource":
        """Add a plugin to the first agent of the file.

        Raises:
            UnexpectedSourceError: its plugins are not a literal list.
        """
        agent = self._agent
        plugins = next((keyword.value for keyword in agent.keywords if keyword.arg == "plugins"), None)
        if plugins is None:
            arguments = sorted([*agent.args, *agent.keywords], key=self._end_of)
            return self._with_element(agent, arguments, f"plugins=[{code}]")
        if not isinstance(plugins, ast.List):
            raise UnexpectedSourceError(f"line {plugins.lineno} has no list of plugins in brackets")
        return self._with_element(plugins, plugins.elts, code)

    def with_tool(self, name: str) -> "AgentSource":
        """Add a function of the file to the tools of its first agent.

        Raises:
            UnexpectedSourceError: its plugins are not a literal list.
        """
        for node in ast.walk(self._agent):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "tools":
                return self._with_element(node, node.args, name)
        return self.importing("tools").with_plugin(f"tools({name})")

    def before_agent(self, code: str) -> "AgentSource":
        """Insert code before the first agent."""
        statement = self._statement
        return self._inserted(self._offset(statement.lineno, 0), f"{code.strip()}\n\n\n")

    @property
    def _statement(self) -> ast.stmt:
        """The first top-level statement that defines an agent other than a sub-agent."""
        tree = self.tree
        given = {
            argument.id
            for node in ast.walk(tree)
            if isinstance(node, ast.Call) and _is_call_of(node, "sub_agent", "handoff")
            for argument in node.args
            if isinstance(argument, ast.Name)
        }
        for statement in tree.body:
            value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
            if _is_call_of(value, "Agent") and not given.intersection(_targets(statement)):
                return statement
        raise UnexpectedSourceError("there is no agent such as `agent = Agent(…)` at the top of the file")

    @property
    def _agent(self) -> ast.Call:
        statement = self._statement
        call = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
        assert isinstance(call, ast.Call)  # noqa: S101 -- checked by `_statement`
        return call

    def _with_element(
        self, container: ast.expr, elements: Sequence[ast.expr | ast.keyword], code: str
    ) -> "AgentSource":
        """Append code to a list or to the arguments of a call, in the present layout."""
        if not elements:
            return self._inserted(self._end_of(container) - 1, code)
        last, first = elements[-1], elements[0]
        is_in_lines = first.lineno not in {container.lineno, container.end_lineno}
        gap = f",\n{' ' * first.col_offset}" if is_in_lines else ", "
        return self._inserted(self._end_of(last), f"{gap}{code}")

    def _with(self, node: ast.stmt, code: str) -> "AgentSource":
        data = self.text.encode()
        begin = self._offset(node.lineno, node.col_offset)
        return replace(self, text=(data[:begin] + code.encode() + data[self._end_of(node) :]).decode())

    def _inserted(self, offset: int, code: str) -> "AgentSource":
        data = self.text.encode()
        return replace(self, text=(data[:offset] + code.encode() + data[offset:]).decode())

    def _end_of(self, node: ast.expr | ast.keyword | ast.stmt) -> int:
        return self._offset(node.end_lineno or node.lineno, node.end_col_offset or 0)

    def _offset(self, line: int, column: int) -> int:
        """Return the byte offset of a position of the syntax tree, whose columns count bytes."""
        return sum(map(len, self.text.encode().splitlines(keepends=True)[: line - 1])) + column


def _is_call_of(node: ast.expr | None, *names: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names


def _targets(statement: ast.stmt) -> list[str]:
    """Return the names that a statement assigns to."""
    targets = statement.targets if isinstance(statement, ast.Assign) else []
    targets = [statement.target] if isinstance(statement, ast.AnnAssign) else targets
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _imports_plainly(node: ast.stmt) -> TypeGuard[ast.ImportFrom]:
    """Return whether a node is an import from Everloop without aliases."""
    if not isinstance(node, ast.ImportFrom) or node.module != "everloop" or node.level:
        return False
    return not any(alias.asname or alias.name == "*" for alias in node.names)


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _as_isort(name: str) -> tuple[bool, str]:
    return not name[:1].isupper(), name
