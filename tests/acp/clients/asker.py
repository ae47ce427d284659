"""An ACP agent that asks its client for things, and for a login. Its prompt is a list of steps in JSON.

{"hello": 1}                     say what the client said at initialize
{"opened": 1}                    say the params of session/new
{"ask": method, "params": {…}}   a request; wait for the answer and say it. "$" as terminalId: the one made last
{"start": name, "ask": …}        the same without waiting
{"answer": name}                 wait for the answer of that one and say it
{"cancel": name}                 withdraw it
{"log": 1}                       say the methods that the client called, in order
{"die": 1}                       end at once

Flags: --methods A,B its login methods; --needs new|prompt: -32000 for these until it is logged in, in this process;
--logout: it can be logged out; --v2: it speaks version 2; --key KEY: the login needs this in its _meta.
Standard library only.
"""

import json
import os
import sys
from typing import Any

Json = dict[str, Any]
OWN = "asker-1"


class Asker:
    def __init__(self, flags: Json) -> None:
        self.flags = flags
        self.hello: Json = {}
        self.opened: Json = {}
        self.called: list[str] = []
        self.logged_in = ""
        self.next = 100
        self.started: dict[str, int] = {}
        self.answers: dict[int, Json] = {}
        self.terminal = ""
        self.words = 0

    def send(self, message: Json) -> None:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()

    def say(self, value: Any) -> None:
        self.words += 1
        content = {"type": "text", "text": json.dumps(value) + "\n"}
        chunk = {"sessionUpdate": "agent_message_chunk", "messageId": f"m{self.words}", "content": content}
        self.send({"method": "session/update", "params": {"sessionId": OWN, "update": chunk}})

    def read(self) -> Json:
        line = sys.stdin.readline()
        if not line:
            os._exit(0)
        message: Json = json.loads(line)
        if "method" not in message:
            self.answers[message["id"]] = message
        else:
            self.called.append(message["method"])
        return message

    def request(self, step: Json) -> int:
        self.next += 1
        params = {"sessionId": OWN, **step.get("params", {})}
        if params.get("terminalId") == "$":
            params["terminalId"] = self.terminal
        self.send({"id": self.next, "method": step["ask"], "params": params})
        return self.next

    def answer(self, number: int) -> Any:
        while number not in self.answers:
            self.serve(self.read())
        message = self.answers.pop(number)
        result = message.get("result", message.get("error"))
        if isinstance(result, dict) and "terminalId" in result:
            self.terminal = result["terminalId"]
        return result

    def perform(self, step: Json) -> None:
        if "start" in step:
            self.started[step["start"]] = self.request(step)
        elif "ask" in step:
            self.say(self.answer(self.request(step)))
        elif "answer" in step:
            self.say(self.answer(self.started[step["answer"]]))
        elif "cancel" in step:
            self.send({"method": "$/cancel_request", "params": {"requestId": self.started[step["cancel"]]}})
        elif "hello" in step:
            self.say(self.hello)
        elif "opened" in step:
            self.say(self.opened)
        elif "log" in step:
            self.say(self.called)
        elif "die" in step:
            os._exit(3)

    def serve(self, message: Json) -> None:
        method, number, params = message.get("method"), message.get("id"), message.get("params") or {}
        if method is None or number is None:
            return
        try:
            result = self.handle(method, params)
        except Refused as refused:
            self.send({"id": number, "error": refused.args[0]})
        else:
            self.send({"id": number, "result": result})

    def handle(self, method: str, params: Json) -> Json:
        login, logout = ("auth/login", "auth/logout") if self.flags["v2"] else ("authenticate", "logout")
        if method == "initialize":
            self.hello = params
            return self.initialize()
        if method == login:
            key = (params.get("_meta") or {}).get("key")
            if params["methodId"] not in self.flags["methods"] or (self.flags["key"] and key != self.flags["key"]):
                raise Refused({"code": -32603, "message": "This key is not right"})
            self.logged_in = params["methodId"]
            return {}
        if method == logout and (self.flags["logout"] or self.flags["v2"]):
            self.logged_in = ""
            return {}
        if method == "session/new":
            self.login_for("new")
            self.opened = params
            return {"sessionId": OWN}
        if method == "session/prompt":
            self.login_for("prompt")
            for step in json.loads(params["prompt"][0]["text"]):
                self.perform(step)
            return {"stopReason": "end_turn"}
        raise Refused({"code": -32601, "message": f"Method not found: {method}"})

    def login_for(self, what: str) -> None:
        if self.flags["needs"] == what and not self.logged_in:
            raise Refused({"code": -32000, "message": "Gemini API key is missing or not configured."})

    def initialize(self) -> Json:
        names = self.flags["methods"]
        if self.flags["v2"]:
            methods = [{"type": "agent", "methodId": name, "name": name.title()} for name in names]
            return {"protocolVersion": 2, "info": {"name": "asker", "version": "1"}, "authMethods": methods}
        methods = [{"id": name, "name": name.title(), "description": f"By {name}"} for name in names]
        can: Json = {"auth": {"logout": {}}} if self.flags["logout"] else {}
        return {"protocolVersion": 1, "agentCapabilities": can, "authMethods": methods}


class Refused(Exception):
    pass


def main(argv: list[str]) -> None:
    def after(flag: str) -> str:
        return argv[argv.index(flag) + 1] if flag in argv else ""

    asker = Asker(
        {
            "methods": [name for name in after("--methods").split(",") if name],
            "needs": after("--needs"),
            "key": after("--key"),
            "logout": "--logout" in argv,
            "v2": "--v2" in argv,
        }
    )
    while True:
        asker.serve(asker.read())


if __name__ == "__main__":
    main(sys.argv[1:])
