"""Messages: LangChain's own classes, with constructors, chains, checks and data forms.

A thread may hold seven roles; `lower` turns its chain into the four that a model reads.
"""

from wick_graph.messages.build import (
    agent_call,
    agent_response,
    ai,
    error_message,
    human,
    is_failure,
    message,
    system,
    tool_msg,
)
from wick_graph.messages.calls import ToolCall, ToolResult
from wick_graph.messages.chain import Messages, new_messages
from wick_graph.messages.check import (
    PrefixValidator,
    check_message,
    validate,
    validate_message,
    validate_tool_response,
    validate_user_input,
)
from wick_graph.messages.codec import (
    dumps,
    from_wick,
    loads,
    messages_from_wick,
    messages_to_wick,
    to_wick,
)
from wick_graph.messages.content import Content, clean_text, clean_value, has_content, text_of
from wick_graph.messages.copies import copy_message, metadata_of
from wick_graph.messages.estimate import PrefixEstimate, estimate_tokens, message_tokens
from wick_graph.messages.failures import errors_as_messages, refuse_agent_call
from wick_graph.messages.jsontext import json_text, parse_json
from wick_graph.messages.lowering import Lowering, lower
from wick_graph.messages.marsys import (
    MessageChain,
    Processors,
    filter_messages,
    forward,
    from_response_dict,
    process_for_llm,
    process_llm_response,
    to_llm_dict,
)
from wick_graph.messages.names import sanitise_tool_name
from wick_graph.messages.record import from_record, to_record
from wick_graph.messages.roles import (
    LLM_ROLES,
    RECORD_ROLES,
    ROLE_AGENT_CALL,
    ROLE_AGENT_RESPONSE,
    ROLE_ASSISTANT,
    ROLE_ERROR,
    ROLE_SYSTEM,
    ROLE_TOOL,
    ROLE_USER,
    VALID_ROLES,
    role_of,
    user_input_role,
    valid_role,
)
from wick_graph.messages.show import go_value, pretty_print, role_label
from wick_graph.messages.stamps import new_call_id, new_message_id, timestamp_of

__all__ = [
    "LLM_ROLES",
    "RECORD_ROLES",
    "ROLE_AGENT_CALL",
    "ROLE_AGENT_RESPONSE",
    "ROLE_ASSISTANT",
    "ROLE_ERROR",
    "ROLE_SYSTEM",
    "ROLE_TOOL",
    "ROLE_USER",
    "VALID_ROLES",
    "Content",
    "Lowering",
    "MessageChain",
    "Messages",
    "PrefixEstimate",
    "PrefixValidator",
    "Processors",
    "ToolCall",
    "ToolResult",
    "agent_call",
    "agent_response",
    "ai",
    "check_message",
    "clean_text",
    "clean_value",
    "copy_message",
    "dumps",
    "error_message",
    "errors_as_messages",
    "estimate_tokens",
    "filter_messages",
    "forward",
    "from_record",
    "from_response_dict",
    "from_wick",
    "go_value",
    "has_content",
    "human",
    "is_failure",
    "json_text",
    "loads",
    "lower",
    "message",
    "message_tokens",
    "messages_from_wick",
    "messages_to_wick",
    "metadata_of",
    "new_call_id",
    "new_message_id",
    "new_messages",
    "parse_json",
    "pretty_print",
    "process_for_llm",
    "process_llm_response",
    "refuse_agent_call",
    "role_label",
    "role_of",
    "sanitise_tool_name",
    "system",
    "text_of",
    "timestamp_of",
    "to_llm_dict",
    "to_record",
    "to_wick",
    "tool_msg",
    "user_input_role",
    "valid_role",
    "validate",
    "validate_message",
    "validate_tool_response",
    "validate_user_input",
]
