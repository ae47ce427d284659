"""A scripted model that speaks OpenAI's streaming chat completions. The script: ``scripted_server``."""

import json
from collections.abc import Iterator

from tests.scripted_server import Asked, Call, Json, Scripted, Words, text_of


class Model(Scripted):
    def read(self, body: Json) -> Asked:
        messages = body["messages"]
        users = [text_of(message["content"]) for message in messages if message["role"] == "user"]
        result = text_of(messages[-1]["content"]) if messages[-1]["role"] == "tool" else None
        return Asked(users, result, [tool["function"]["name"] for tool in body.get("tools") or ()], body["model"])

    def answer(self, body: Json, steps: list[Words | Call]) -> Iterator[tuple[str, Json]]:
        head = {"id": f"chat-{self.number()}", "object": "chat.completion.chunk", "created": 0, "model": "scripted"}
        finish = "stop"

        def chunk(delta: Json, finish: str | None = None) -> tuple[str, Json]:
            return "", {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

        yield chunk({"role": "assistant", "content": ""})
        for step in steps:
            if isinstance(step, Words):
                for text in step.chunks():
                    yield chunk({"content": text})
            else:
                finish = "tool_calls"
                arguments = json.dumps({"command": step.argument, "description": "a scripted command"})
                call = {"index": 0, "id": f"call_{self.number()}", "type": "function"}
                yield chunk({"tool_calls": [{**call, "function": {"name": step.tool, "arguments": arguments}}]})
        yield chunk({}, finish)
        usage = {"prompt_tokens": 100, "completion_tokens": 5, "total_tokens": 105}
        yield "", {**head, "choices": [], "usage": usage}
        yield "", "[DONE]"
