"""Public names for authors of agents: `from everloop import Agent, prompt, tool, tools`.

They stand in `__init__.pyi`, and are imported on first use: all modules of Everloop are below this
package, and the core, the gateway and the commands do not need the modules of agents.
"""

from everloop.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
