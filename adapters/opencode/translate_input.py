"""Which of OpenCode's tools a call is drawn as, and the input that this needs. Pure."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_NAMES = {
    "bash": ("bash", "shell", "run_shell_command", "exec_command", "terminal"),
    "read": ("read", "read_file"),
    "edit": ("edit", "multiedit", "replace"),
    "write": ("write", "write_file"),
    "grep": ("grep", "search_file_content", "grep_search"),
    "glob": ("glob",),
    "list": ("list", "ls", "list_directory"),
    "webfetch": ("webfetch", "web_fetch"),
    "websearch": ("websearch", "web_search", "google_web_search"),
    "task": ("task", "agent"),
    "todowrite": ("todowrite",),
    "skill": ("skill",),
}
_TOOLS = {name: tool for tool, names in _NAMES.items() for name in names}
_KINDS = {"execute": "bash", "read": "read", "edit": "edit", "fetch": "webfetch", "search": "grep"}
_GLOB = re.compile(r"\*\*|^\*\.|/\*")
_SHELL = re.compile(r"(?:/\S*/)?(?:ba|z|da)?sh -l?c (.+)", re.DOTALL)


class Said(NamedTuple):
    """What a call says of itself. ``changed``: the files of its diffs; ``metadata``: of its output."""

    kind: str
    name: str
    title: str
    given: Mapping[str, Any]
    has_input: bool
    changed: list[str]
    locations: Any
    metadata: Mapping[str, Any]

    @property
    def own(self) -> str:
        """Its own name, if it is one of OpenCode's tools by another name."""
        return _TOOLS.get(self.name.lower(), "") or ("" if self.name else _TOOLS.get(self.title.lower(), ""))

    @property
    def unsaid(self) -> bool:
        """Its input is still being written."""
        return self.has_input and not self.given


def drawn(said: Said) -> tuple[str, dict[str, Any]] | None:
    """The tool and its input; None: one that clients draw no special way."""
    tool = said.own or _KINDS.get(said.kind, "")
    given = said.given
    if said.unsaid and said.own:
        return said.own, {}
    if _is_task(said):
        kept = {"description": str(given["description"]), "prompt": str(given["prompt"])}
        return "task", {**kept, "subagent_type": word(given, "subagent_type", "subagentType", "agent") or "general"}
    if tool == "todowrite" and isinstance(given.get("todos"), list):
        return tool, {}
    if tool == "skill" and word(given, "name", "skill"):
        return tool, {"name": word(given, "name", "skill")}
    match said.kind or tool:
        case "execute" | "bash":
            return _bash(said)
        case "read":
            path = _path(said)
            return ("read", {"filePath": path}) if path else None
        case "edit" | "write":
            return _edit(said)
        case "search" | "grep" | "glob" | "list":
            return _search(said, tool)
        case "fetch" | "webfetch" | "websearch":
            url, query = word(given, "url"), word(given, "query", "search_query")
            if url:
                return "webfetch", {"url": url}
            return ("websearch", {"query": query}) if query else None
    return None


def _is_task(said: Said) -> bool:
    given = said.given
    told = isinstance(given.get("description"), str) and isinstance(given.get("prompt"), str)
    return told and (said.own == "task" or "subagent_type" in given)


def _bash(said: Said) -> tuple[str, dict[str, Any]] | None:
    given = said.given
    command = command_line(given.get("command")) or command_line(given.get("cmd")) or word(given, "script")
    if not command and not said.has_input:
        command = said.title  # Gemini's way
    if not command:
        return None
    found = {"command": command, "description": word(given, "description") or said.title}
    folder = word(given, "workdir", "cwd")
    return "bash", {**found, "workdir": folder} if folder else found


def _edit(said: Said) -> tuple[str, dict[str, Any]] | None:
    given = said.given
    if len(said.changed) > 1:
        return "apply_patch", {}
    path = _path(said) or next(iter(said.changed), "")
    if not path:
        return None
    old, new = (given.get(a, given.get(b)) for a, b in (("oldString", "old_string"), ("newString", "new_string")))
    if isinstance(given.get("content"), str) and old is None:
        return "write", {"filePath": path}
    found: dict[str, Any] = {"filePath": path}
    if isinstance(old, str) and isinstance(new, str):
        found |= {"oldString": old, "newString": new}
    if "replace_all" in given or "replaceAll" in given:
        found["replaceAll"] = bool(given.get("replaceAll", given.get("replace_all")))
    return "edit", found


def _search(said: Said, tool: str) -> tuple[str, dict[str, Any]] | None:
    given = said.given
    if tool == "list":
        path = _path(said)
        return ("list", {"path": path}) if path else None
    pattern = word(given, "pattern", "query", "regex", "glob_pattern")
    if not pattern:
        return None
    if not said.own and ("count" in said.metadata or (_GLOB.search(pattern) and "include" not in given)):
        tool = "glob"
    folder = word(given, "path", "dir_path", "directory")
    return tool, {"pattern": pattern, **({"path": folder} if folder else {})}


def word(given: Mapping[str, Any], *names: str) -> str:
    """The first of these fields that is a text and not empty."""
    return next((given[n] for n in names if isinstance(given.get(n), str) and given[n]), "")


def command_line(value: Any) -> str:
    """A command line: a text, or an argv; of ``bash -lc TEXT`` it is TEXT."""
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        if len(value) == 3 and value[1] in ("-c", "-lc"):
            return str(value[2])
        return " ".join(value)
    if not isinstance(value, str):
        return ""
    wrapped = _SHELL.fullmatch(value)
    inner = wrapped[1] if wrapped else ""
    if len(inner) > 1 and inner[0] == inner[-1] == "'":
        plain = inner[1:-1].replace("'\\''", "\0").replace("'\"'\"'", "\0")
        if "'" not in plain:  # one word of the shell
            return plain.replace("\0", "'")
    elif len(inner) > 1 and inner[0] == inner[-1] == '"' and not re.search(r'["\\$`]', inner[1:-1]):
        return inner[1:-1]
    elif inner and not re.search(r"[\s'\"\\$`;&|<>()*?]", inner):
        return inner
    return value


def _path(said: Said) -> str:
    found = word(said.given, "filePath", "file_path", "path", "abs_path", "absolute_path", "filepath", "notebook_path")
    if found:
        return found
    first = said.locations[0] if isinstance(said.locations, list) and said.locations else None
    return first["path"] if isinstance(first, dict) and isinstance(first.get("path"), str) else ""
