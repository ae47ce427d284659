"""A scripted model that speaks Anthropic's streaming messages. The script: ``scripted_server``."""

import json
import re
from collections.abc import Iterator

from tests.scripted_server import Asked, Call, Json, Scripted, Words, text_of

_ASIDE = re.compile(r"<system-reminder>.*?</system-reminder>", re.DOTALL)


class Anthropic(Scripted):
    def whole(self, path: str, body: Json) -> Json | None:
        if "count_tokens" in path:
            return {"input_tokens": 100}
        if "/messages" not in path:
            return {}
        if body.get("stream"):
            return None
        said = [{"type": "text", "text": "Scripted title"}]
        return self._message(body) | {"content": said, "stop_reason": "end_turn"}

    def read(self, body: Json) -> Asked:
        users: list[str] = []
        result = None
        newest = ""  # what came since the model last spoke: messages, asides, results
        for message in body["messages"]:
            if message["role"] == "assistant":
                newest, result = "", None
            if message["role"] != "user":  # "system" may stand anywhere
                continue
            blocks = message["content"]
            for block in blocks if isinstance(blocks, list) else ():
                if block["type"] == "tool_result":
                    result = text_of(block["content"])
            if text := _ASIDE.sub("", text_of(blocks)).strip():
                users.append(text)
                newest = text
        names = [tool["name"] for tool in body.get("tools") or ()]
        if newest:  # it may have come while a tool ran
            return Asked(users, None, names, body["model"])
        return Asked([*users, ""] if result is None else users, result, names, body["model"])

    def answer(self, body: Json, steps: list[Words | Call]) -> Iterator[tuple[str, Json]]:
        def event(kind: str, **fields: Json) -> tuple[str, Json]:
            return kind, {"type": kind, **fields}

        yield event("message_start", message=self._message(body))
        stop = "end_turn"
        for index, step in enumerate(steps):
            if isinstance(step, Words):
                yield event("content_block_start", index=index, content_block={"type": "text", "text": ""})
                for text in step.chunks():
                    yield event("content_block_delta", index=index, delta={"type": "text_delta", "text": text})
            else:
                stop = "tool_use"
                call = {"type": "tool_use", "id": f"toolu_scripted{self.number()}", "name": step.tool, "input": {}}
                yield event("content_block_start", index=index, content_block=call)
                arguments = {"command": step.argument, "description": "a scripted command"}
                if step.tool != "Bash":
                    arguments = {"prompt": step.argument, "description": "scripted work"}
                    arguments |= {"subagent_type": "general-purpose"}
                delta = {"type": "input_json_delta", "partial_json": json.dumps(arguments)}
                yield event("content_block_delta", index=index, delta=delta)
            yield event("content_block_stop", index=index)
        end = {"stop_reason": stop, "stop_sequence": None}
        yield event("message_delta", delta=end, usage={"output_tokens": 5})
        yield event("message_stop")

    def _message(self, body: Json) -> dict[str, Json]:
        head = {"id": f"msg_scripted{self.number()}", "type": "message", "role": "assistant"}
        head["model"] = body.get("model") or ""
        usage = {"input_tokens": 100, "output_tokens": 1}
        return {**head, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
