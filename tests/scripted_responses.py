"""A scripted model that speaks OpenAI's streaming responses. The script: ``scripted_server``."""

import json
from collections.abc import Iterator

from tests.scripted_server import Asked, Call, Json, Scripted, Words, text_of


class Responses(Scripted):
    always = True

    def whole(self, path: str, body: Json) -> Json | None:
        return None if path.endswith("/responses") else {}

    def read(self, body: Json) -> Asked:
        items = body.get("input") or []
        users = [text_of(item["content"]) for item in items if item.get("role") == "user"]
        newest = items[-1] if items else {}
        output = newest.get("output") if newest.get("type") == "function_call_output" else None
        result = output if isinstance(output, str) or output is None else text_of(output)
        names = [tool.get("name") or tool["type"] for tool in body.get("tools") or ()]
        return Asked(users, result, names, body["model"])

    def answer(self, body: Json, steps: list[Words | Call]) -> Iterator[tuple[str, Json]]:
        def event(kind: str, **fields: Json) -> tuple[str, Json]:
            return kind, {"type": kind, **fields}

        response = {"id": f"resp_scripted{self.number()}", "object": "response", "output": []}
        yield event("response.created", response={**response, "status": "in_progress"})
        output: list[Json] = []
        for index, step in enumerate(steps):
            if isinstance(step, Words):
                item: dict[str, Json] = {"id": f"msg_scripted{self.number()}", "type": "message", "role": "assistant"}
                started = {**item, "status": "in_progress", "content": []}
                yield event("response.output_item.added", output_index=index, item=started)
                said = ""
                for text in step.chunks():
                    said += text
                    fields = {"item_id": item["id"], "output_index": index, "content_index": 0, "delta": text}
                    yield event("response.output_text.delta", **fields)
                item |= {"status": "completed", "content": [{"type": "output_text", "text": said, "annotations": []}]}
            else:
                number = self.number()
                item = {"id": f"fc_scripted{number}", "type": "function_call", "status": "completed"}
                item |= {"call_id": f"call_scripted{number}", "name": step.tool}
                item["arguments"] = json.dumps(_arguments(step))
                yield event("response.output_item.added", output_index=index, item=item)
            yield event("response.output_item.done", output_index=index, item=item)
            output.append(item)
        usage = {"input_tokens": 100, "input_tokens_details": {"cached_tokens": 0}}
        usage |= {"output_tokens": 5, "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 105}
        done = {**response, "status": "completed", "output": output, "usage": usage}
        yield event("response.completed", response=done)


def _arguments(call: Call) -> dict[str, Json]:
    why = {"sandbox_permissions": "require_escalated", "justification": "a scripted command"}
    return {"cmd": call.argument, **(why if call.ask else {})}
