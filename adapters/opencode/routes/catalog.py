"""What there is to choose from, in OpenCode's words: providers (agents), models, OpenCode agents (modes), commands.

An agent says what it has when a session of it is open: it is read from the sessions in memory (``prepare`` brings the
newest there). Before that, and for agents without such options, there is one model ``default`` and one OpenCode agent
``build``, which change nothing.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from adapters.opencode.errors import Invalid, cut
from adapters.opencode.wire import DEFAULT_MODE, DEFAULT_MODEL
from gateway.controller import SessionController
from gateway.core import events as ev
from gateway.core.errors import NotFound
from gateway.log import Entry
from gateway.views import SessionView

NEWEST = 20  # sessions that are looked at for what their agents said
REMEMBERED = 10_000  # names of an agent that are known to have been told


async def prepare(controller: SessionController) -> None:
    """After a restart, or when all was quiet for long: what agents have said before is in the newest sessions."""
    told = {view.info.agent for view in controller.recent() if view.transcript.config or view.transcript.modes}
    if told >= set(controller.agents):
        return
    for info in await controller.sessions(roots=True, limit=NEWEST):
        if info.id not in controller.roots and info.agent not in told:
            view = await controller.view(info.id)
            if view.transcript.config or view.transcript.modes:
                told.add(info.agent)


class News:
    """Whether an agent has said that it has something which clients cannot know of yet: they read the catalog when
    they start, mostly before any agent runs, and again when they are told to.
    """

    def __init__(self, controller: SessionController) -> None:
        self._controller = controller
        self._told: dict[str, set[tuple[str, str]]] = {}

    def __call__(self, entry: Entry) -> bool:
        if not isinstance(
            entry.record.event, ev.ModesUpdated | ev.ConfigUpdated | ev.CommandsUpdated | ev.AgentStateChanged
        ):
            return False
        root = next(iter(self._controller.family(entry.record.session_id)), None)
        if root is None or root.agent_state != "ready":  # it says all at once when it is ready
            return False
        found = {("model", name) for name in models_of(root)} | {("mode", mode["id"]) for mode in modes_of(root)}
        found |= {("command", name) for name in _commands_of(root)}
        told = self._told.setdefault(root.info.agent, set())
        if found <= told or len(told) > REMEMBERED:
            return False
        told |= found
        return True


def modes_of(view: SessionView) -> list[Mapping[str, Any]]:
    """The session's modes: ``id``, ``name``, ``description``; the current one first."""
    found = view.transcript.modes
    if isinstance(found, Mapping):
        found = found.get("availableModes")
    if not found:
        option = _option(view, "mode")
        found = [{"id": value, "name": name} for value, name in _values(option)]
    listed = found if isinstance(found, list) else []
    modes = [mode for mode in listed if isinstance(mode, Mapping) and isinstance(mode.get("id"), str)]
    current = view.info.mode or view.transcript.mode
    return sorted(modes, key=lambda mode: mode["id"] != current)


def models_of(view: SessionView) -> dict[str, str]:
    """The session's models: id → name; the current one first. Empty if the agent has not said any."""
    option = _option(view, "model")
    values = _values(option)
    current = view.info.model or option.get("currentValue")
    return dict(sorted(values, key=lambda pair: pair[0] != current))


def all_modes(controller: SessionController) -> dict[str, Mapping[str, Any]]:
    found: dict[str, Mapping[str, Any]] = {}
    for view in controller.recent():
        for mode in modes_of(view):
            found.setdefault(mode["id"], mode)
    return found


def models_known(controller: SessionController, agent: str) -> dict[str, str]:
    """Models of an agent, by what its sessions in memory have said."""
    found: dict[str, str] = {}
    for view in controller.recent():
        if view.info.agent == agent:
            found.update({k: v for k, v in models_of(view).items() if k not in found})
    return found


def modes_known(controller: SessionController, agent: str) -> list[str]:
    """Modes of an agent, by what its sessions in memory have said."""
    views = [view for view in controller.recent() if view.info.agent == agent]
    return list(dict.fromkeys(str(mode["id"]) for view in views for mode in modes_of(view)))


def agents(controller: SessionController) -> list[dict[str, Any]]:
    """OpenCode agents: at least one."""
    modes = all_modes(controller) or {DEFAULT_MODE: {"description": "The agent as it is"}}
    return [
        {
            "name": name,
            "description": str(mode.get("description") or mode.get("name") or name),
            "mode": "primary",
            "native": True,
            "permission": [],
            "options": {},
        }
        for name, mode in modes.items()
    ]


def providers(controller: SessionController) -> list[dict[str, Any]]:
    """The configured agents with their models."""
    sizes: dict[str, int] = {}
    for view in controller.recent():
        if view.transcript.usage is not None and view.transcript.usage.size:
            sizes.setdefault(view.info.agent, view.transcript.usage.size)
    return [
        {
            "id": name,
            "name": name,
            "source": "config",
            "env": [],
            "options": {},
            "models": {
                model: _model(name, model, shown, sizes.get(name, 0))
                for model, shown in (models_known(controller, name) or {DEFAULT_MODEL: "Default"}).items()
            },
        }
        for name in _default_first(controller)
    ]


def defaults(controller: SessionController) -> dict[str, str]:
    return {one["id"]: next(iter(one["models"])) for one in providers(controller)}


def commands(controller: SessionController) -> list[dict[str, Any]]:
    """The slash commands of the agents in memory."""
    found: dict[str, dict[str, Any]] = {}
    for view in controller.recent():
        for name, entry in _commands_of(view).items():
            text = str(entry.get("description") or "")
            found.setdefault(
                name, {"name": name, "description": text, "source": "command", "template": "", "hints": []}
            )
    return list(found.values())


def _commands_of(view: SessionView) -> dict[str, Mapping[str, Any]]:
    told = view.transcript.commands
    listed = [entry for entry in told if isinstance(entry, Mapping)] if isinstance(told, list) else []
    return {entry["name"]: entry for entry in listed if isinstance(entry.get("name"), str)}


def _default_first(controller: SessionController) -> list[str]:
    return sorted(controller.agents, key=lambda name: name != controller.default_agent)


def _option(view: SessionView, category: str) -> Mapping[str, Any]:
    """The config option of a category, in ACP's shape."""
    options = view.transcript.config
    for option in options if isinstance(options, list) else ():
        if isinstance(option, Mapping) and category in (option.get("category"), option.get("id")):
            return option
    return {}


def _values(option: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The values of a select option, groups opened: value, name."""
    found: list[tuple[str, str]] = []
    entries = option.get("options")
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, Mapping):
            continue
        if isinstance(entry.get("value"), str):
            found.append((entry["value"], str(entry.get("name") or entry["value"])))
        else:
            found += _values(entry)
    return found


def _model(provider: str, model: str, name: str, context: int) -> dict[str, Any]:
    media = {"text": True, "audio": True, "image": True, "video": False, "pdf": True}
    return {
        "id": model,
        "providerID": provider,
        "api": {"id": model, "url": "", "npm": ""},
        "name": name,
        "family": "",
        "capabilities": {
            "temperature": False,
            "reasoning": True,
            "attachment": True,
            "toolcall": True,
            "input": media,
            "output": {**media, "audio": False, "image": False, "pdf": False},
            "interleaved": False,
        },
        "cost": {"input": 0, "output": 0, "cache": {"read": 0, "write": 0}},
        "limit": {"context": context, "output": 0},
        "status": "active",
        "options": {},
        "headers": {},
        "release_date": "",
        "variants": {},
    }


# --- choosing --------------------------------------------------------------------------------------------------------


def agent_named(controller: SessionController, name: str) -> str:
    """A configured agent, asked for as a provider. Raises NotFound."""
    if name not in controller.agents:
        known = ", ".join(controller.agents)
        raise NotFound(f'Unknown provider "{cut(name)}", expected one of: {known}\n  at ["model"]["providerID"]')
    return name


def model_named(known: Mapping[str, str], name: str, field: str) -> str:
    """A model's name as the core has it; empty for the default. Raises Invalid if the known ones lack it."""
    if name == DEFAULT_MODEL:
        return ""
    if known and name not in known:
        names = ", ".join(known)
        raise Invalid(f'Unknown model "{cut(name)}", expected one of: {names}\n  at ["model"]["{field}"]', "Payload")
    return name


def no_mode(name: str, known: Sequence[str]) -> Invalid:
    names = ", ".join(known) or DEFAULT_MODE
    return Invalid(f'Unknown agent "{cut(name)}", expected one of: {names}\n  at ["agent"]', "Payload")
