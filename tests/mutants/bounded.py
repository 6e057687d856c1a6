"""Cost does not grow with history, and what is bounded stays within its bounds."""

from __future__ import annotations

from typing import Final

from tests.mutants.patches import mutant

BOUNDED: Final = (
    mutant(
        "limit-one-more",
        "A run makes as many model calls as it may, and no further one.",
        ("test_invented_calls_end_at_the_limit_without_any_tool",),
        ("model", "iteration >= ctx.spec.max_iterations", "iteration > ctx.spec.max_iterations"),
        quick=True,
    ),
    mutant(
        "tools-on-the-last-call",
        "The last model call of a run is made without tools.",
        ("test_the_limit_is_a_polite_end",),
        ("initial", "+ 1 >= ctx.spec.max_iterations", "+ 1 > ctx.spec.max_iterations"),
    ),
    mutant(
        "iteration-goes-on-counting",
        "Each input has the whole limit.",
        ("test_each_input_has_the_whole_limit",),
        ("before_agent", '("iteration", 0), ', ""),
    ),
    mutant(
        "recursion-limit-too-small",
        "LangGraph's own limit never ends a run.",
        ("test_langgraphs_own_limit_never_ends_a_run",),
        ("limits", "STEPS_PER_ITERATION * spec.max_iterations + 2", "spec.max_iterations + 2"),
    ),
    mutant(
        "calls-without-number",
        "Of one reply 32 calls are run.",
        ("test_more_than_32_calls_are_refused_one_by_one",),
        ("settle", "elif i >= MAX_CALLS:", "elif i > MAX_CALLS:"),
    ),
    mutant(
        "refused-calls-unanswered",
        "A call that the limit refuses is answered.",
        ("test_the_limit_is_a_polite_end",),
        (
            "settle",
            'messages.append(_refusal(call_id, call["name"], why))\n        elif i',
            "pass\n        elif i",
        ),
    ),
    mutant(
        "empty-reply-is-stored",
        "An empty reply is not stored.",
        ("test_an_empty_reply_is_not_stored",),
        ("_turn", "if is_empty(reply):", "if False:"),
    ),
    mutant(
        "calls-run-beside-an-output",
        "Calls beside a valid output are refused.",
        ("test_other_calls_run_beside_an_invalid_output_only",),
        ("_accepting", "for call in turn.reply.tool_calls", "for call in ()"),
    ),
    mutant(
        "output-tool-is-withheld",
        "The last model call of a run has its output tool.",
        ("test_the_last_step_can_still_give_the_output",),
        ("asking", "*output.by_name)", "*(() if request.withheld else output.by_name))"),
    ),
    mutant(
        "tool-timeout-ignored",
        "A tool that takes too long is answered for.",
        ("test_a_late_tool_is_answered",),
        ("_once", "default_timeout if tool.timeout is UNSET else tool.timeout", "None"),
    ),
    mutant(
        "deadline-ignored",
        "A deadline ends a run.",
        ("test_a_deadline_ends_a_run_politely",),
        ("start_deadline", "call.undo.callback(alarm(limit,", "(lambda *_: None)((limit,"),
    ),
    mutant(
        "output-not-cut",
        "A result that is longer than the model may see is cut.",
        ("test_without_the_hook_a_long_result_is_cut_all_the_same",),
        ("_fitting", "limit is None or", "True or"),
    ),
    mutant(
        "cap-one-more",
        "The first character too many cuts.",
        ("test_the_cap_at_its_default",),
        ("cap", "len(text) <= limit", "len(text) <= limit + 1"),
    ),
    mutant(
        "budget-one-more",
        "A budget that is used up ends the run before the next call.",
        ("test_a_budget_that_is_exactly_used_up_is_used_up",),
        ("Budget.spent_up", "tokens >= self.tokens", "tokens > self.tokens"),
    ),
    mutant(
        "budget-in-dollars-one-more",
        "A budget in dollars that is exactly used up ends the run.",
        ("test_a_budget_that_is_exactly_used_up_is_used_up",),
        ("Budget.spent_up", "cost.usd >= Decimal", "cost.usd > Decimal"),
    ),
    mutant(
        "budget-of-a-run-is-the-threads",
        "A budget per run begins anew with each input.",
        ("test_the_next_run_has_its_own_budget_or_the_threads",),
        ("BudgetHook.before_agent", '{"cost": _RESET}', "None"),
    ),
    mutant(
        "quota-of-threads-one-more",
        "A tenant has as many threads as it may have.",
        ("test_D37_a_tenant_has_so_many_threads_and_runs",),
        ("ServerRuns._is_full", "row[0] >= most", "row[0] > most"),
    ),
    mutant(
        "quota-of-runs-one-more",
        "A tenant has as many runs as it may have.",
        ("test_D37_a_tenant_has_so_many_threads_and_runs",),
        (
            "Runs._start",
            "self.count >= self._limits.runs_per_tenant",
            "self.count > self._limits.runs_per_tenant",
        ),
    ),
    mutant(
        "runs-that-begin-not-counted",
        "Runs that are about to begin are among those that a tenant may have.",
        ("test_of_many_at_the_same_moment_no_more_are_let_in",),
        ("Runs.count", "len(self.live) + self._coming", "len(self.live)"),
    ),
    mutant(
        "each-repetition-counted",
        "Of the same requests at the same moment, one is counted.",
        ("test_of_many_at_the_same_moment_no_more_are_let_in",),
        ("Runs.start", "if key is not None:", "if False:"),
    ),
    mutant(
        "the-last-opens-first",
        "Runs open in the order in which they came.",
        ("test_few_open_at_a_time_in_the_order_in_which_they_came",),
        ("Openings._next", "self._waiting.popleft()", "self._waiting.pop()"),
    ),
    mutant(
        "later-ones-open-first",
        "A run waits for those that had come when it said its first word, not for later ones.",
        ("test_who_has_said_a_word_waits_for_those_that_had_come_and_no_later_ones",),
        ("Openings.ended", "self._told[0][0] < oldest", "not self._under_way"),
    ),
    mutant(
        "the-first-word-waits-not",
        "All say their first word before one goes on.",
        ("test_all_say_their_first_word_before_one_calls_a_tool",),
        ("DetachedRun._open", "self._pause.hold()", "pass"),
    ),
    mutant(
        "the-pause-counts",
        "A run's deadline does not approach while others open.",
        ("test_the_pause_at_the_first_word_counts_for_no_deadline",),
        ("DetachedRun._open", "self._clock.hold()", "pass"),
    ),
    mutant(
        "a-thinking-model-keeps-others",
        "A run no longer opens once it waits for its model.",
        ("test_a_model_that_thinks_keeps_nobody",),
        ("DetachedRun._open", "opening.end()", "pass"),
    ),
    mutant(
        "hooks-keep-others",
        "Runs whose hooks wait leave the processor to others.",
        ("test_runs_that_wait_in_hooks_keep_nobody",),
        ("Openings._look", "BUSY * (here - then)", "0"),
    ),
    mutant(
        "rate-not-counted",
        "A caller who asks too often is told to wait.",
        ("test_D37_a_tenant_s_requests_have_a_limit",),
        ("RateLimiter.take", "self._left -= amount", "pass"),
    ),
    mutant(
        "limit-of-one-server",
        "What another server has let through counts here too.",
        ("test_a_server_pays_for_what_others_have_let_through",),
        ("RateLimiter.owe", "self._left - amount", "self._left"),
    ),
    mutant(
        "readers-poll-apart",
        "Readers of a silent run at another server cost no queries.",
        ("test_a_hundred_readers_of_a_silent_run_share_its_query",),
        ("FollowedRun._work", "_NOTIFIED if", "0.02 if"),
    ),
    mutant(
        "files-of-another-machine",
        "A run starts only where the files of its thread are.",
        ("test_a_thread_stays_with_its_files",),
        ("Runs._files", "row.machine != here", "False"),
    ),
    mutant(
        "sweep-takes-running",
        "The thread of a live run is not swept.",
        ("test_running_waiting_and_pinned_threads_are_never_swept",),
        ("expired", '("running", "waiting"', '("waiting"'),
        quick=True,
    ),
    mutant(
        "sweep-takes-waiting",
        "A thread that waits for an answer is not swept.",
        ("test_running_waiting_and_pinned_threads_are_never_swept",),
        ("expired", '"waiting", ', ""),
    ),
    mutant(
        "sweep-takes-pinned",
        "A pinned thread is not swept.",
        ("test_running_waiting_and_pinned_threads_are_never_swept",),
        ("expired", "own.pinned == 0,", ""),
    ),
    mutant(
        "sweep-takes-other-tenants",
        "A sweep takes the threads of its own tenant alone.",
        ("test_a_sweep_takes_its_own_tenants_threads_alone",),
        ("expired", "own.tenant == core.tenant,", ""),
    ),
    mutant(
        "sweep-too-early",
        "A thread is kept for its whole time to live.",
        ("test_a_thread_is_kept_for_its_whole_time_and_no_longer",),
        ("expired", "own.expires_at <= now", "own.expires_at <= now + 120.0"),
    ),
    mutant(
        "run-does-not-extend-life",
        "A thread's time begins anew when its run ends.",
        ("test_a_thread_is_kept_for_its_whole_time_and_no_longer",),
        ("Threads._ending", "(status, now, now,", "(status, now, 0.0,"),
    ),
    mutant(
        "removal-without-batches",
        "A deletion holds the database for a bounded number of rows at a time.",
        ("test_a_deletion_takes_a_bounded_number_of_rows_at_a_time",),
        ("_remove_some", ", BATCH", ", 10**9"),
    ),
    mutant(
        "history-copied-into-the-overlay",
        "The overlay names ranges of messages and copies none.",
        ("test_an_overlay_is_small_and_does_not_repeat_the_prompt",),
        ("to_overlay", "[base[s[0]].id, base[s[1] - 1].id]", "[*base[s[0] : s[1]]]"),
    ),
    mutant(
        "items-written-again",
        "What was in the last list is not written again.",
        ("test_appending_writes_one_row",),
        ("_prefix", "return known", "return None"),
        ("_index", "return index", "return {}"),
        ("ItemWriter._place", "if found is not None:", "if False:"),
    ),
    mutant(
        "blobs-written-again",
        "A long text is stored once for the thread.",
        ("test_what_a_hook_injects_at_each_step_is_stored_once",),
        (
            "ItemWriter._blob",
            "hashed = cache.texts_apart.get(text)",
            "import os; hashed = None; text = text + os.urandom(4).hex()",
        ),
    ),
    mutant(
        "ended-runs-are-held-by-their-leases",
        "A run that has ended is freed at once.",
        ("test_an_agents_run",),
        ("Leases.note_released", "lease.on_stop = None", "pass"),
    ),
    mutant(
        "ended-runs-are-held-by-their-executors",
        "A run that has ended is freed at once.",
        ("test_a_graphs_run",),
        ("AsyncExecutor.__aexit__", "self._known.clear()", "pass"),
        ("SyncExecutor.__exit__", "self._known.clear()", "pass"),
    ),
)
