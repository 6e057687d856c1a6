"""The rules that model providers document for a request: `None`, or the text of their refusal.

Each function reads the body of one request and says what the provider would say. They are written
from the providers' references (OpenAI's chat completions and responses, Anthropic's messages,
Gemini's generateContent, Ollama's chat), in their strictest reading.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

Rule = Callable[[Mapping[str, Any]], str | None]

NAME: Final = re.compile(r"[a-zA-Z0-9_-]{1,64}")
GEMINI_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")
SPEAKER: Final = re.compile(r"[^\s<|\\/>]{1,64}")
ADDRESS: Final = re.compile(r"https?://[!-~]+")
DATA: Final = re.compile(r"data:(image/[a-z0-9.+-]+);base64,([A-Za-z0-9+/]+={0,2})")
BYPASS: Final = "skip_thought_signature_validator"


class Refused(Exception):
    """A rule is broken; the text is the provider's."""


def rule(check: Callable[[Mapping[str, Any]], None]) -> Rule:
    def said(body: Mapping[str, Any]) -> str | None:
        try:
            check(body)
        except Refused as refused:
            return str(refused)
        return None

    return said


def need(holds: object, text: str) -> None:
    if not holds:
        raise Refused(text)


def sign(text: str) -> str:
    """Make the signature that a provider gives a thought; only it can tell that it fits."""
    return base64.b64encode(hashlib.sha256(f"secret {text}".encode()).digest()).decode()


def picture(url: Any, kinds: frozenset[str], where: str) -> None:
    need(isinstance(url, str), f"{where}: expected a string")
    found = DATA.fullmatch(url)
    if found is None:
        need(ADDRESS.fullmatch(url), f"{where}: expected a base64 data URL or an http(s) URL")
        return
    need(found[1] in kinds, f"{where}: unsupported image type {found[1]}")
    base64.b64decode(found[2], validate=True)


# --- OpenAI ---------------------------------------------------------------------------------------

OPENAI_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
_OPENAI_PARTS: Final = {
    "system": {"text"},
    "developer": {"text"},
    "user": {"text", "image_url", "input_audio", "file"},
    "assistant": {"text", "refusal"},
    "tool": {"text"},
}


@rule
def openai_chat(body: Mapping[str, Any]) -> None:
    """Chat completions."""
    _openai_tools([tool.get("function", {}) for tool in body.get("tools", ())])
    messages = body.get("messages")
    need(isinstance(messages, list) and messages, "[] is too short - 'messages'")
    open_: list[str] = []
    for i, message in enumerate(messages or ()):
        role, where = message.get("role"), f"messages[{i}]"
        need(role in _OPENAI_PARTS, f"Invalid value: {role!r}. Supported values are: 'system', …")
        if role == "tool":
            call = message.get("tool_call_id")
            need(
                call in open_,
                "messages with role 'tool' must be a response to a preceeding message with "
                "'tool_calls'.",
            )
            open_.remove(call)
        else:
            need(
                not open_,
                "An assistant message with 'tool_calls' must be followed by tool messages "
                f"responding to each 'tool_call_id'. Missing: {', '.join(open_)}",
            )
        _openai_message(message, role, where)
        if role == "assistant":
            open_ = [call["id"] for call in message.get("tool_calls", ())]
    need(not open_, f"tool_call_ids did not have response messages: {', '.join(open_)}")


def _openai_message(message: Mapping[str, Any], role: str, where: str) -> None:
    name, content, calls = message.get("name"), message.get("content"), message.get("tool_calls")
    need(name is None or SPEAKER.fullmatch(name), f"Invalid '{where}.name': string does not match")
    if content is None:
        need(
            role == "assistant" and calls,
            f"Invalid value for 'content': expected a string ({where})",
        )
    elif isinstance(content, list):
        need(content, f"Invalid '{where}.content': empty array")
        for part in content:
            need(
                isinstance(part, dict) and part.get("type") in _OPENAI_PARTS[role],
                f"Invalid '{where}'. A content part of type {_type(part)!r} is not allowed for "
                f"messages with role '{role}'",
            )
            if part["type"] == "image_url":
                need(isinstance(part["image_url"], dict), f"Invalid type for '{where}.image_url'")
                picture(part["image_url"].get("url"), OPENAI_IMAGES, where)
            elif part["type"] in ("text", "refusal"):
                need(isinstance(part.get(part["type"]), str), f"{where}: missing text")
                unknown = set(part) - {"type", "text", "refusal", "annotations"}
                need(
                    not unknown, f"Unknown parameter: '{where}.content.{min(unknown, default='')}'"
                )
    else:
        need(isinstance(content, str), f"Invalid type for '{where}.content'")
    need("function_call" not in message, f"'{where}.function_call' is deprecated here")
    if calls is not None:
        need(role == "assistant" and calls, f"[] is too short - '{where}.tool_calls'")
        need(len(calls) <= 128, f"Invalid '{where}.tool_calls': array too long")
    for call in calls or ():
        need(
            call.get("id") and len(call["id"]) <= 40,
            f"Invalid '{where}.tool_calls[0].id': too long",
        )
        need(call.get("type") == "function", f"Missing '{where}.tool_calls[0].type'")
        need(
            NAME.fullmatch(call["function"]["name"]),
            f"Invalid '{where}.tool_calls[0].function.name'",
        )
        need(isinstance(call["function"]["arguments"], str), f"{where}: arguments are no string")
    need(len({call["id"] for call in calls or ()}) == len(calls or ()), "Duplicate tool call ids")


def _openai_tools(functions: list[Mapping[str, Any]]) -> None:
    for function in functions:
        need(NAME.fullmatch(function.get("name", "")), "Invalid 'tools[0].function.name'")


_ITEM_IDS: Final = {"message": "msg_", "function_call": "fc_", "reasoning": "rs_"}
_ITEM_PARTS: Final = {
    "system": {"input_text"},
    "developer": {"input_text"},
    "user": {"input_text", "input_image", "input_file"},
    "assistant": {"output_text", "refusal"},
}


@rule
def openai_responses(body: Mapping[str, Any]) -> None:
    """Responses, with the whole history in the input."""
    _openai_tools([tool for tool in body.get("tools", ()) if tool["type"] == "function"])
    items = body.get("input")
    need(isinstance(items, list) and items, "Missing required parameter: 'input'.")
    calls: set[str] = set()
    answered: set[str] = set()
    thought: str | None = None
    for i, item in enumerate(items or ()):
        kind, where = item.get("type", "message"), f"input[{i}]"
        if kind in _ITEM_IDS and "id" in item:
            need(str(item["id"]).startswith(_ITEM_IDS[kind]), f"Invalid '{where}.id'")
        if kind == "reasoning":
            need(
                item.get("id") and isinstance(item.get("summary"), list),
                f"Missing '{where}.summary'",
            )
            if (sealed := item.get("encrypted_content")) is not None:
                need(sealed == sign(item["id"]), "The encrypted content could not be verified.")
            need(
                set(item) <= {"id", "type", "summary", "encrypted_content", "content", "status"},
                where,
            )
            thought = item["id"]
            continue
        if kind == "message":
            _item_message(item, where)
            own = item["role"] == "assistant"
        elif kind == "function_call":
            need(NAME.fullmatch(item.get("name", "")), f"Invalid '{where}.name'")
            need(0 < len(item.get("call_id") or "") <= 64, f"Invalid '{where}.call_id'")
            need(item["call_id"] not in calls, f"Duplicate item: {item['call_id']}")
            calls.add(item["call_id"])
            own = True
        else:
            need(kind == "function_call_output", f"Invalid value: '{kind}' ({where}.type)")
            call = item.get("call_id")
            need(call in calls - answered, f"No tool call found for function call output {call}.")
            answered.add(call)
            _item_output(item.get("output"), where)
            own = False
        need(
            thought is None or own,
            f"Item '{thought}' of type 'reasoning' was provided without its following item.",
        )
        thought = None
    need(thought is None, f"Item '{thought}' … was provided without its required following item.")
    missing = calls - answered
    need(not missing, f"No tool output found for function call {', '.join(missing)}.")


def _item_message(item: Mapping[str, Any], where: str) -> None:
    role, content = item.get("role"), item.get("content")
    need(role in _ITEM_PARTS, f"Invalid value: {role!r} ({where}.role)")
    need("name" not in item, f"Unknown parameter: '{where}.name'.")
    if isinstance(content, str):
        return
    need(isinstance(content, list) and content, f"Invalid '{where}.content'")
    for part in content or ():
        need(
            part.get("type") in _ITEM_PARTS[str(role)], f"Invalid value: '{_type(part)}' ({where})"
        )
        if part["type"] == "input_image":
            picture(part.get("image_url"), OPENAI_IMAGES, where)


def _item_output(output: Any, where: str) -> None:
    need(
        isinstance(output, str) or (isinstance(output, list) and output),
        f"Invalid '{where}.output'",
    )
    for part in output if isinstance(output, list) else ():
        need(
            part.get("type") in ("input_text", "input_image", "input_file"),
            f"Invalid value: '{_type(part)}' ({where}.output)",
        )
        if part["type"] == "input_image":
            picture(part.get("image_url"), OPENAI_IMAGES, where)


# --- Anthropic ------------------------------------------------------------------------------------

ANTHROPIC_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/webp", "image/gif"})
_ANTHROPIC_BLOCKS: Final = {
    "user": {"text", "image", "document", "tool_result"},
    "assistant": {"text", "thinking", "redacted_thinking", "tool_use"},
}


@rule
def anthropic(body: Mapping[str, Any]) -> None:
    """Messages."""
    need(type(body.get("max_tokens")) is int, "max_tokens: Field required")
    _anthropic_system(body.get("system"))
    for tool in body.get("tools", ()):
        need(NAME.fullmatch(tool["name"]), "tools.0.custom.name: String should match pattern")
    marks = sum(_marks(part) for part in (body.get("system"), body.get("tools"), body["messages"]))
    need(marks + ("cache_control" in body) <= 4, "A maximum of 4 blocks with cache_control.")
    messages = body["messages"]
    need(messages, "messages: at least one message is required")
    need(messages[0]["role"] == "user", 'messages: first message must use the "user" role')
    turns: list[tuple[str, list[dict[str, Any]]]] = []
    for i, message in enumerate(messages):
        role, content = message["role"], message["content"]
        need(role in _ANTHROPIC_BLOCKS, 'messages: Input should be "user" or "assistant"')
        need(content, f"messages.{i}: all messages must have non-empty content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for n, block in enumerate(blocks):
            _anthropic_block(block, role, f"messages.{i}.content.{n}")
        if turns and turns[-1][0] == role:  # consecutive turns of one role are one turn
            turns[-1][1].extend(blocks)
        else:
            turns.append((role, [*blocks]))
    need(turns[-1][0] == "user", "The conversation must end with a user message.")
    _anthropic_calls(turns, bool(body.get("tools")))
    if (body.get("thinking") or {}).get("type") in ("enabled", "adaptive"):
        _anthropic_thoughts(turns)


def _anthropic_system(system: Any) -> None:
    if isinstance(system, str) or system is None:
        need(system is None or system.strip(), "system: text content blocks must be non-empty")
        return
    need(system, "system: must not be empty")
    for block in system:
        need(block["type"] == "text", "system: only text blocks")
        need(block["text"].strip(), "system: text content blocks must be non-empty")


def _anthropic_block(block: Any, role: str, where: str) -> None:
    kind = _type(block)
    need(
        kind in _ANTHROPIC_BLOCKS[role], f"{where}: Input tag '{kind}' found using 'type' is wrong"
    )
    if kind == "text":
        need(block["text"], "messages: text content blocks must be non-empty")
        need(
            block["text"].strip(), "messages: text content blocks must contain non-whitespace text"
        )
    elif kind == "image":
        _anthropic_image(block["source"], where)
    elif kind == "thinking":
        need(block.get("signature"), f"{where}.thinking.signature: Field required")
        need(block["signature"] == sign(block["thinking"]), f"{where}: Invalid `signature`")
    elif kind == "redacted_thinking":
        need(block["data"] == sign("redacted"), f"{where}: Invalid `data` in `redacted_thinking`")
    elif kind == "tool_use":
        need(
            re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]),
            f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'",
        )
        need(NAME.fullmatch(block["name"]), f"{where}.tool_use.name: String should match pattern")
        need(isinstance(block["input"], dict), f"{where}.tool_use.input: should be a dictionary")
    elif kind == "tool_result":
        content = block.get("content")
        failed = block.get("is_error")
        need(content or not failed, f"{where}: content cannot be empty if `is_error` is true")
        for inner in content if isinstance(content, list) else ():
            need(_type(inner) in ("text", "image", "document"), f"{where}.content: wrong type")
            _anthropic_block(inner, "user", f"{where}.content")


def _anthropic_image(source: Mapping[str, Any], where: str) -> None:
    if source["type"] == "url":
        need(ADDRESS.fullmatch(source["url"]), f"{where}.source.url: only HTTP(S) URLs")
        return
    need(source["type"] == "base64", f"{where}.source: wrong type")
    picture(f"data:{source['media_type']};base64,{source['data']}", ANTHROPIC_IMAGES, where)


def _anthropic_calls(turns: list[tuple[str, list[dict[str, Any]]]], tools: bool) -> None:
    used: set[str] = set()
    asked: list[str] = []
    for i, (role, blocks) in enumerate(turns):
        results = [b["tool_use_id"] for b in blocks if b["type"] == "tool_result"]
        calls = [b["id"] for b in blocks if b["type"] == "tool_use"]
        if role == "user":
            missing = [call for call in asked if call not in results]
            need(
                not missing,
                f"messages.{i}: `tool_use` ids were found without `tool_result` blocks "
                f"immediately after: {', '.join(missing)}",
            )
            stray = [call for call in results if call not in asked]
            need(not stray, f"messages.{i}: unexpected `tool_use_id` found: {', '.join(stray)}")
            need(len(set(results)) == len(results), "each tool_use must have a single result.")
            first = [b["type"] for b in blocks[: len(results)]]
            need(set(first) <= {"tool_result"}, "tool_result blocks must come first")
        need(not calls or tools, "Requests which include `tool_use` blocks must define tools")
        need(not used.intersection(calls), "messages: `tool_use` ids must be unique")
        need(len(set(calls)) == len(calls), "messages: `tool_use` ids must be unique")
        used.update(calls)
        asked = calls
    need(not asked, "messages: `tool_use` ids were found without `tool_result` blocks")


def _anthropic_thoughts(turns: list[tuple[str, list[dict[str, Any]]]]) -> None:
    """In the turn that goes on, each reply that calls tools begins with its thoughts."""
    start = max(
        i for i, (r, b) in enumerate(turns) if r == "user" and b[-1]["type"] != "tool_result"
    )
    for i, (role, blocks) in enumerate(turns[start + 1 :], start + 1):
        calls = any(b["type"] == "tool_use" for b in blocks)
        need(
            role == "user" or not calls or "thinking" in blocks[0]["type"],
            f"messages.{i}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
            f"`{blocks[0]['type']}`.",
        )


def _marks(part: Any) -> int:
    return json.dumps(part).count('"cache_control"')


# --- Gemini ---------------------------------------------------------------------------------------

GEMINI_IMAGES: Final = frozenset({"image/png", "image/jpeg", "image/webp"})
_GEMINI_FILES: Final = GEMINI_IMAGES | {"application/pdf", "audio/wav"}
_CODE: Final = {"executableCode", "codeExecutionResult"}
_PARTS: Final = {"text", "inlineData", "fileData", "functionCall", "functionResponse", *_CODE}


@rule
def gemini(body: Mapping[str, Any]) -> None:
    """GenerateContent; of a model that signs its thoughts."""
    for tool in body.get("tools", ()):
        for function in tool.get("functionDeclarations", ()):
            _gemini_name(function["name"], "tools[0].function_declarations[0]")
    for part in (body.get("systemInstruction") or {}).get("parts", ()):
        need(part.get("text"), "system_instruction: must have a text parameter")
    contents = body.get("contents")
    need(contents, "GenerateContentRequest.contents: contents is not specified")
    before: list[str] | None = None
    role = ""
    for i, content in enumerate(contents or ()):
        last, role = role, content.get("role")
        need(role in ("user", "model"), "Please use a valid role: user, model.")
        need(i or role == "user", "Please ensure that multiturn requests begin with a user turn")
        parts = content.get("parts")
        need(parts, f"contents[{i}].parts must not be empty.")
        for part in parts:
            _gemini_part(part, role, f"contents[{i}]")
        calls = [part["functionCall"]["name"] for part in parts if "functionCall" in part]
        given = [p["functionResponse"]["name"] for p in parts if "functionResponse" in p]
        if before is not None:
            need(
                len(given) == len(before),
                "Please ensure that the number of function response parts is equal to the number "
                "of function call parts of the function call turn.",
            )
            need(sorted(given) == sorted(before), "function response names must match the calls")
        need(
            not given or before is not None,
            "Please ensure that function response turn comes after a function call turn.",
        )
        need(
            not calls or last == "user",
            "Please ensure that function call turn comes immediately after a user turn or after a "
            "function response turn.",
        )
        before = calls or None
    need(role == "user", "Please ensure that multiturn requests end with a user turn")
    _gemini_signatures(contents or [])


def _gemini_name(name: str, where: str) -> None:
    need(
        GEMINI_NAME.fullmatch(name),
        f"Invalid value at '{where}.name': Invalid function name. Must start with a letter or an "
        "underscore.",
    )


def _gemini_part(part: Mapping[str, Any], role: str, where: str) -> None:
    held = _PARTS.intersection(part)
    need(len(held) == 1, f"{where}: required oneof field 'data' must have one initialized field")
    if "text" in part:
        need(
            part["text"] or part.get("thoughtSignature"), f"{where}: it has an empty text parameter"
        )
    if "inlineData" in part:
        blob = part["inlineData"]
        need(
            role == "user" and _mime(blob) in _GEMINI_FILES,
            f"{where}: Unsupported MIME type",
        )
        try:
            base64.b64decode(blob["data"].replace("-", "+").replace("_", "/"), validate=True)
        except binascii.Error:
            raise Refused(f"{where}: Base64 decoding failed") from None
    need(role == "model" or not _CODE.intersection(part), f"{where}: code in a user turn")
    if "functionCall" in part:
        need(role == "model", f"{where}: function call in a user turn")
        _gemini_name(part["functionCall"]["name"], where)
        need(isinstance(part["functionCall"].get("args", {}), dict), f"{where}: args are no object")
    if "functionResponse" in part:
        need(role == "user", f"{where}: function response in a model turn")
        need(
            isinstance(part["functionResponse"].get("response"), dict),
            f"{where}: response no object",
        )
    signature = part.get("thoughtSignature")
    if signature not in (None, BYPASS):
        held_text = part.get("text", "") or json.dumps(part.get("functionCall", {}), sort_keys=True)
        fits = signature.replace("-", "+").replace("_", "/")
        need(
            fits == gemini_signature(part), f"{where}: Thought signature is not valid ({held_text})"
        )


def _mime(blob: Mapping[str, Any]) -> Any:
    return blob.get("mimeType") or blob.get("mime_type")  # either is its name in JSON


def gemini_signature(part: Mapping[str, Any]) -> str:
    call = part.get("functionCall")
    return sign(part.get("text", "") if call is None else f"{call.get('args') or {}}")


def _gemini_signatures(contents: list[Mapping[str, Any]]) -> None:
    """In the turn that goes on, the first call of each step bears its signature."""
    said = [
        i
        for i, content in enumerate(contents)
        if content["role"] == "user" and not any("functionResponse" in p for p in content["parts"])
    ]
    for i, content in enumerate(contents[max(said, default=-1) + 1 :]):
        calls = [part for part in content["parts"] if "functionCall" in part]
        need(
            not calls or calls[0].get("thoughtSignature"),
            "Function call is missing a thought_signature in functionCall parts. Additional data, "
            f"position {i}.",
        )


# --- Ollama ---------------------------------------------------------------------------------------


@rule
def ollama(body: Mapping[str, Any]) -> None:
    """Chat."""
    need(body.get("model"), "model is required")
    messages = body.get("messages")
    need(messages, "messages: must not be empty")
    system = [i for i, message in enumerate(messages or ()) if message["role"] == "system"]
    need(system in ([], [0]), "many templates show one system message, the first")
    for message in messages or ():
        role, field = message.get("role"), "json: cannot unmarshal into Go struct field ChatRequest"
        need(role in ("system", "user", "assistant", "tool"), f"invalid role: {role}")
        need(
            isinstance(message.get("content", ""), str), f"{field}.messages.content of type string"
        )
        for image in message.get("images") or ():
            try:
                base64.b64decode(image, validate=True)
            except binascii.Error:
                raise Refused(f"{field}.messages.images: illegal base64 data") from None
        for call in message.get("tool_calls") or ():
            arguments = call["function"].get("arguments")
            need(isinstance(arguments, dict), f"{field}.messages.tool_calls.function.arguments")
            need(call["function"].get("name"), f"{field}.messages.tool_calls.function.name")
        need(message.get("tool_calls") or _says(message), f"empty message of role {role}")


def _says(message: Mapping[str, Any]) -> bool:
    return message["role"] == "tool" or bool(message.get("content") or message.get("images"))


def _type(part: Any) -> str:
    return str(part.get("type")) if isinstance(part, dict) else type(part).__name__
