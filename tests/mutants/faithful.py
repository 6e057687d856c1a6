"""It is still LangGraph: messages, models, files and forks mean what they say."""

from __future__ import annotations

from typing import Final

from tests.mutants.patches import mutant

FAITHFUL: Final = (
    mutant(
        "tool-message-at-the-end",
        "An answer stands behind its call, whenever it comes.",
        ("test_answers_stand_in_call_order_whenever_they_come",),
        (
            "reduce_messages",
            "_file_answer(out, dated(message, _held(gone, message.id)))",
            "out.push(message)",
        ),
    ),
    mutant(
        "second-answer-is-added",
        "A second answer to a call replaces the first.",
        ("test_a_second_answer_to_a_call_replaces_the_first",),
        ("_file_answer", "if other.tool_call_id == answer.tool_call_id:", "if False:"),
    ),
    mutant(
        "oldest-call-of-an-id",
        "An answer goes to the latest call of its id.",
        ("test_an_answer_goes_to_the_latest_call_of_its_id",),
        ("_asker", "range(len(out) - 1, -1, -1)", "range(len(out))"),
    ),
    mutant(
        "branches-share-an-index",
        "Lists that grew from one another do not mislead each other.",
        ("test_a_message_of_another_branch_replaces_nothing",),
        ("MessageList.find", "and self[at].id == message_id", ""),
    ),
    mutant(
        "stale-overlay-is-sent",
        "An overlay that was made for another moment is not used.",
        ("test_a_stale_overlay_is_not_used",),
        ("from_overlay", 'list(overlay.get("stamp") or ()) != stamp(state)', "False"),
    ),
    mutant(
        "stamp-without-iteration",
        "An overlay is for one iteration.",
        ("test_a_stale_overlay_is_not_used",),
        ("stamp", 'state.get("iteration", 0)', "0"),
    ),
    mutant(
        "hooks-inside-out",
        "The first hook is the outermost layer.",
        ("test_two_hooks_and_three_parallel_tools_make_an_onion",),
        ("Hooks.layers", "return found", "return found[::-1]"),
        (
            "compile_hooks",
            "for hook in hooks:\n        name",
            "for hook in reversed(hooks):\n        name",
        ),
    ),
    mutant(
        "unlisted-phase-is-silent",
        "A method whose phase is not listed is a mistake of the configuration.",
        ("test_a_wrong_hook_is_refused_when_the_agent_is_made",),
        ("compile_hooks", "if phase not in listed:", "if False:"),
    ),
    mutant(
        "interrupt-swallowed",
        "A hook cannot swallow an interrupt.",
        ("test_a_hook_cannot_swallow_an_interrupt",),
        ("Onion.run", "if isinstance(swallowed, GraphBubbleUp):", "if False:"),
    ),
    mutant(
        "prompt-is-stored",
        "What hooks inject is never stored.",
        ("test_what_hooks_inject_is_never_stored",),
        (
            "modify_request",
            '("request", to_overlay(request, ctx.spec.system_prompt))',
            '("request", to_overlay(request, ctx.spec.system_prompt)), '
            '("messages", request.to_messages())',
        ),
    ),
    mutant(
        "named-model-becomes-auto",
        "A named model is never the demo.",
        ("test_a_named_model_is_never_the_demo",),
        (
            "resolve_model",
            "return _resolve(parse(spec), base_dir or Path(), surroundings)",
            "try:\n        return _resolve(parse(spec), base_dir or Path(), surroundings)\n"
            "    except ModelError:\n"
            "        return _resolve(parse(DEMO), base_dir or Path(), surroundings)",
        ),
    ),
    mutant(
        "retry-after-ignored",
        "A wait that a provider asks for is kept to.",
        ("test_the_wait_that_a_provider_asks_for_is_kept_to",),
        ("retry_delay", "asked = _asked_wait(error, now)", "asked = None"),
    ),
    mutant(
        "lasting-faults-retried",
        "A lasting fault is not tried again.",
        ("test_lasting_faults_are_not_tried_again",),
        ("_status_passes", "status >= 500 or status in _RETRY_STATUS", "status >= 400"),
    ),
    mutant(
        "cut-stream-is-a-reply",
        "A stream that was cut is no reply.",
        ("test_a_reply_whose_end_never_came_is_worth_another_attempt",),
        ("ensure_whole", "and not any(map(metadata.get, _FINISH))", "and False"),
    ),
    mutant(
        "assistant-input-believed",
        "What a client says of a tool or of the model is not believed.",
        ("test_a_clients_tool_calls_are_not_believed",),
        ("_from_dict", '{"role": role, "content": content}', "dict(item)"),
    ),
    mutant(
        "duplicate-keys-taken",
        "A key that stands twice in a file of agents is a mistake.",
        ("test_refuses_with_line_and_key_path",),
        ("_Builder._key", "if full in self.lines:", "if False:"),
    ),
    mutant(
        "yaml-words",
        "`no` and `on` stay text.",
        ("test_plain_scalars_mean_only_what_they_show",),
        ("_WORDS", '"false": False', '"false": False, "no": False'),
    ),
    mutant(
        "aliases-taken",
        "Aliases and anchors are refused.",
        ("test_refuses_with_line_and_key_path",),
        ("_Builder.feed", "self._refuse_sharing(event)", "pass"),
    ),
    mutant(
        "prune-drops-ancestors",
        "Pruning keeps what a delta channel is rebuilt from.",
        ("test_keeping_the_latest_checkpoints_of_a_delta_channel_keeps_its_value",),
        (
            "_drop_checkpoints",
            "row.rid not in kept and row.rid not in needed",
            "row.rid not in kept",
        ),
    ),
    mutant(
        "prune-drops-items",
        "Pruning keeps every item that a checkpoint refers to.",
        ("test_keeping_the_latest_checkpoints_keeps_the_state",),
        ("_garbage", "if at >= 0 and rid <= ends[at]:", "if at >= 0 and rid < ends[at]:"),
    ),
    mutant(
        "prune-drops-bases",
        "Pruning keeps the row that another row points to.",
        ("test_pruning_keeps_what_other_rows_point_to",),
        ("_garbage", "[rid for rid in unused if rid not in used]", "unused"),
    ),
    mutant(
        "fork-without-ledger",
        "A fork knows which calls have run.",
        ("test_a_fork_does_again_what_came_behind_it_and_nothing_that_came_before",),
        ("_Copy.run", "self._calls()", "pass"),
    ),
    mutant(
        "fork-takes-later-writes",
        "A fork does again what came behind it.",
        ("test_a_fork_does_again_what_came_behind_it_and_nothing_that_came_before",),
        ("fork_thread", "if followed:", "if False:"),
    ),
    mutant(
        "new-message-drops-updates",
        "A new message keeps what the finished calls of a half-done step wrote.",
        ("test_a_new_message_keeps_the_state_updates_of_finished_calls",),
        ("keep_finished_results", "if not finished:", "if True:"),
    ),
    mutant(
        "a-stop-tells-nothing",
        "A run that is stopped gives its whole conversation.",
        ("test_a_run_that_is_stopped_gives_the_whole_conversation",),
        ("LeanLoop._suppress_interrupt", "elif isinstance(error[1], STOPS):", "elif False:"),
    ),
    mutant(
        "invoke-past-its-wrapper",
        "What a library puts around LangGraph's invoke is called.",
        ("test_an_invoke_that_a_library_has_replaced_is_called",),
        ("serves_invoke", 'return now == _found.get("invokes")', "return True"),
    ),
    mutant(
        "agent-in-a-call-ends-the-run-around-it",
        "An agent inside a call has an end of its own.",
        ("test_a_guardrail_of_an_agent_inside_a_call_ends_that_agent_alone",),
        (
            "_inside",
            'run.inner(around.get(langgraph_config.CHECKPOINT_NS, ""))',
            "run",
        ),
    ),
    mutant(
        "call-again-knows-nothing",
        "Each call of the model within a step is told what the ones before wrote.",
        ("test_a_hook_that_asks_again_does_not_get_beyond_the_budget",),
        ("_onion", "if new else asked", "if False else asked"),
    ),
)
