"""``module:attribute`` as an agent: imports the module and says in one line what is wrong with it."""

import importlib
import os
import sys
from typing import Any

from adapters.pydantic_ai import wire
from adapters.pydantic_ai.translate_errors import failure
from gateway.core.model import Error


class CannotLoad(Exception):
    """``error`` is for people."""

    def __init__(self, error: Error) -> None:
        super().__init__(error.message)
        self.error = error


def load(name: str) -> "wire.AbstractAgent[Any, Any]":
    """The agent that ``module:attribute`` names, looked for in the current folder too. Raises CannotLoad."""
    module_name, _, path = name.partition(":")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        value: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and (module_name == error.name or module_name.startswith(error.name + ".")):
            raise _cannot(f"{name}: no module named {error.name!r} in {here} or on the Python path") from None
        raise CannotLoad(unloadable(name, error)) from error
    except (KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:  # a module may do anything, sys.exit() too
        raise CannotLoad(unloadable(name, error)) from error
    module = value
    for part in path.split("."):
        if not hasattr(value, part):
            raise _cannot(f"{name}: {module_name} has no {path!r}{_hint(module)}")
        value = getattr(value, part)
    if not isinstance(value, wire.AbstractAgent):
        raise _cannot(f"{name}: is a {type(value).__name__}, not a pydantic_ai Agent{_hint(module)}")
    return value


def _cannot(text: str) -> CannotLoad:
    return CannotLoad(Error("agent_exit", text))


def unloadable(name: str, error: BaseException) -> Error:
    """Code of the agent raised while it was started."""
    told = failure(error)
    return Error(told.code if told.code == "auth_required" else "agent_exit", f"{name}: {told.message}", told.data)


def _hint(module: Any) -> str:
    found = [key for key, value in vars(module).items() if isinstance(value, wire.AbstractAgent)]
    return f" (agents there: {', '.join(found)})" if found else ""
