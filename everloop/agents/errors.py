"""Errors of agent definitions.

AgentError
├── AgentDefinitionError    an agent, or where to find it, is not defined right
│   └── ToolDefinitionError a tool cannot be offered to a model
│       └── QuestionDefinitionError   a tool asks people what they cannot answer
└── UnknownAgentError       nobody defined an agent of that id
"""


class AgentError(Exception):
    """Something is wrong with the agents of this process."""


class AgentDefinitionError(AgentError):
    """An agent is not defined right; the message names it and says what to change."""


class ToolDefinitionError(AgentDefinitionError):
    """A tool cannot be offered to a model; the message names it and says what to change."""


class QuestionDefinitionError(ToolDefinitionError):
    """A tool asks people what they cannot answer; the message says what to change."""


class UnknownAgentError(AgentError):
    """No agent of that id is loaded; the message lists those that are."""
