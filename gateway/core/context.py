"""What a prompt tells the agent beside its messages: the commands that a person ran since the one before."""

from collections.abc import Sequence

from gateway.core.content import Content, Text, text_of
from gateway.core.model import Pending, ToolCall
from gateway.core.session import Node

NOTE = "The following tool was executed by the user"
"""What a person's command is called in the history. Source: OpenCode's ``/session/:id/shell``."""

OUTPUT = 16 * 1024  # characters of a command's output that the agent is told: the last ones


def context(node: Node, messages: Sequence[Pending]) -> Content:
    """One text a command, in order. With a slash command nothing is told: agents know it by the prompt's first text."""
    if messages and text_of(messages[0].content).startswith("/"):
        return ()
    calls = [node.tool(call_id) for call_id in node.state.unheard]
    return tuple(Text(_told(call)) for call in calls if call is not None)


def _told(call: ToolCall) -> str:
    output = "".join(block["content"]["text"] for block in call.content or ()).rstrip()
    if len(output) > OUTPUT:
        output = f"[the first {len(output) - OUTPUT} characters are left out]\n{output[-OUTPUT:]}"
    told = (call.meta or {}).get("terminal_exit") or {}
    end = call.status if call.status != "completed" else f"exit code {told.get('exit_code')}"
    if told.get("signal") and call.status == "completed":
        end = f"ended by {told['signal']}"
    lines = [f"{NOTE}:", f"$ {call.input['command']}", output, f"[{end}]"]
    return "\n".join(line for line in lines if line) + "\n"
