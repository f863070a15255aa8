"""Testing agents: `from everloop.testing import Script, call, running`.

The names stand in `__init__.pyi`, and are loaded at first access: pytest loads the plugin in every project
where Everloop is installed.
"""

from everloop.lazy import lazy_names

__getattr__, __dir__ = lazy_names(__name__, __file__)
