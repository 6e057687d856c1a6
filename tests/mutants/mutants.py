"""The mutants: what each breaks, and the tests that must notice.

They stand under the promises of the product. A patch names a symbol by its qualified name, in
whatever module it is, and a fragment that the symbol has once; keep fragments short.
"""

from __future__ import annotations

from typing import Final

from tests.mutants.patches import Mutant, Patch

Change = tuple[str, str, str]


def _mutant(
    name: str, promise: str, tests: tuple[str, ...], *changes: Change, quick: bool = False
) -> Mutant:
    return Mutant(name, promise, tests, tuple(Patch(*change) for change in changes), quick)


DURABLE: Final = (
    _mutant(
        "fence-not-called",
        "A checkpoint of a run that lost its thread is not stored.",
        ("test_the_fence_alone_stops_a_run_that_lost_its_thread",),
        ("Saving._step", "fence(self.core, db, lease, cache.id, at.thread_id)", "pass"),
    ),
    _mutant(
        "epoch-not-compared",
        "A lease holds for its own epoch alone.",
        ("test_the_fence_alone_stops_a_run_that_lost_its_thread",),
        ("holds", "row[0] == lease.epoch", "True"),
        quick=True,
    ),
    _mutant(
        "epoch-and-fence-together",
        "Without the comparison and without the fence nothing stops a run that lost its thread.",
        ("test_the_fence_alone_stops_a_run_that_lost_its_thread",),
        ("holds", "row[0] == lease.epoch", "True"),
        ("Saving._step", "fence(self.core, db, lease, cache.id, at.thread_id)", "pass"),
        quick=True,
    ),
    _mutant(
        "fence-lets-strangers-in",
        "A writer without a lease is refused while a run goes on.",
        ("test_nothing_changes_a_thread_while_a_run_goes_on_in_it",),
        ("fence", "check_free(core, db, thread, thread_id)", "pass"),
    ),
    _mutant(
        "head-not-checked",
        "A checkpoint continues the thread's head unless a fork was asked for.",
        ("test_the_second_of_two_runs_is_refused",),
        ("MeantForks.check", "if not meant:", "if False:"),
    ),
    _mutant(
        "ledger-finish-unfenced",
        "A run that lost its thread records no result.",
        ("test_a_lost_lease_finishes_no_call",),
        ("Ledger.finish", "check(db, self._lease)", "pass"),
        quick=True,
    ),
    _mutant(
        "ledger-begin-unfenced",
        "A run that lost its thread begins no call.",
        ("test_a_lost_lease_begins_no_call",),
        ("Ledger.begin", "check(db, self._lease)", "pass"),
        quick=True,
    ),
    _mutant(
        "ledger-wait-unfenced",
        "A run that lost its thread marks no call as waiting.",
        ("test_a_lost_lease_marks_no_call_as_waiting",),
        ("Ledger.wait", "check(db, self._lease)", "pass"),
    ),
    _mutant(
        "no-intent",
        "The intent of a call is on disk before the call starts.",
        ("test_a_call_that_was_under_way_is_unknown_for_good",),
        ("Ledger.begin", 'self._put(db, key, name, hashed, "intent", 1)', "pass"),
    ),
    _mutant(
        "unknown-is-run-again",
        "A call of a `never` tool that was under way is not run again.",
        ("test_a_call_that_was_under_way_is_unknown_for_good",),
        ("Ledger._known", 'if replay == "never" or state == "unknown":', "if False:"),
    ),
    _mutant(
        "done-is-run-again",
        "A finished call is not run again.",
        ("test_a_result_that_was_told_is_not_made_again[sqlite-never]",),
        ("Ledger._known", 'if state == "done":', "if False:"),
    ),
    _mutant(
        "arguments-not-hashed",
        "A call with other arguments is another call.",
        ("test_a_finished_call_is_found_under_its_own_arguments_alone",),
        ("Ledger._hash", "json.dumps([name, args]", "json.dumps([name]"),
    ),
    _mutant(
        "poison-one-later",
        "A call that took the process down three times is not tried a fourth time.",
        ("test_a_call_that_kills_is_not_tried_a_fourth_time",),
        ("Ledger._known", "tries >= MAX_TRIES", "tries > MAX_TRIES"),
    ),
    _mutant(
        "result-told-before-it-is-kept",
        "The result of a call is committed before anybody is told of it.",
        ("test_whoever_reads_of_a_reply_or_a_result_finds_it_on_disk",),
        ("_repeatable", "if ctx.run.told:", "if False:"),
    ),
    _mutant(
        "safe-calls-forget",
        "A resumed run takes the recorded result of a repeatable call that somebody was told of.",
        ("test_a_result_that_was_told_is_not_made_again[sqlite-safe]",),
        ("_repeatable", "if ctx.run.resumed:", "if False:"),
    ),
    _mutant(
        "interrupt-counts-as-unknown",
        "A call that asked runs once its answer is there.",
        ("test_a_call_that_waits_is_run_by_right", "test_a_call_that_asks_runs_once_for_its_answer",),
        ("Ledger._known", 'if state == "waiting":', "if False:"),
    ),
    _mutant(
        "ledger-key-without-step",
        "The ledger key of a call names the step that made it.",
        ("test_ledger_keys_survive_a_resume_and_differ_after_a_fork",),
        ("sent_for", "mark.get('step') or reply.id", "'step'"),
    ),
    _mutant(
        "ledger-key-without-index",
        "Two calls of one reply have two ledger keys.",
        ("test_two_equal_calls_of_one_reply_both_run",),
        ("sent_for", "}:{index}", "}:0"),
    ),
    _mutant(
        "busy-thread-is-taken",
        "A thread that a live owner holds is not taken.",
        ("test_a_second_run_on_a_thread_is_told_that_it_is_busy",),
        ("Leases._turn", "raise ThreadBusyError(_BUSY.format(thread_id))", "pass"),
    ),
    _mutant(
        "same-epoch-again",
        "Each owner has an epoch of its own.",
        ("test_the_fence_alone_stops_a_run_that_lost_its_thread",),
        ("_after", "(epoch if epoch < _MOST else 0) + 1 + secrets.randbelow(_APART)", "1"),
    ),
    _mutant(
        "dead-owner-holds",
        "The thread of a dead process is free at once.",
        ("test_a_dead_owners_thread_is_free_at_once",),
        ("_holds", "_CREDIBLE and is_alive(holder)", "_CREDIBLE"),
    ),
    _mutant(
        "expired-lease-holds",
        "A lease that was not renewed ends.",
        ("test_a_lease_that_is_not_renewed_ends",),
        ("_holds", "0 < until - core.now()", "until - core.now()"),
    ),
    _mutant(
        "lease-not-renewed",
        "The keeper renews the lease of a long run before its end.",
        ("test_a_lease_that_is_renewed_stays",),
        ("Leases.renew", "(until, lease.thread", "(lease.until, lease.thread"),
    ),
    _mutant(
        "keeper-comes-too-late",
        "The keeper renews a lease well before its end.",
        ("test_the_keeper_renews_often_enough",),
        ("Leases._keep", "LEASE_SECONDS / 3", "LEASE_SECONDS * 1"),
    ),
    _mutant(
        "keeper-does-not-look",
        "The keeper ends a run whose thread another one took.",
        ("test_the_keepers_look_alone_ends_a_run_that_lost_its_thread",),
        ("Leases.look", "lease.lose()", "pass"),
    ),
    _mutant(
        "lost-lease-is-released",
        "Giving back a lost lease leaves the new owner's alone.",
        ("test_a_lost_lease_given_back_leaves_the_new_owners_alone",),
        ("END_LEASE", "*_held", "_held[0], _held[1] | (leases.c.until > literal_column('0'))"),
    ),
    _mutant(
        "lost-run-closes-the-thread",
        "A run that lost its thread does not write down how it ended.",
        ("test_a_run_that_lost_its_thread_does_not_say_how_it_ended",),
        ("Threads.close", "not holds(db, lease)", "False"),
    ),
    _mutant(
        "lost-run-opens-the-thread",
        "A run that lost its thread before it opened it leaves it alone.",
        ("test_a_run_that_lost_its_thread_before_it_opened_it_leaves_it_alone",),
        ("Threads.open", "check(db, lease)", "pass"),
    ),
    _mutant(
        "lease-checked-once-per-commit",
        "Each writer of a shared commit is checked by itself.",
        ("test_a_lease_is_checked_anew_by_each_writer_of_a_commit",),
        ("Saving._step", "of = (self.core.member, id(lease)", "of = (0, 0"),
    ),
    _mutant(
        "poisoned-thread-goes-on",
        "A thread at whose step three runs died goes on with a new message alone.",
        ("test_three_deaths_at_one_step_poison_it",),
        ("_refuse_poison", "lease.tries >= MAX_TRIES", "lease.tries > MAX_TRIES"),
    ),
    _mutant(
        "interrupts-may-wait",
        "Interrupts, errors and answers are committed at once.",
        ("test_which_writes_may_wait[sqlite-an interrupt]", "test_which_writes_may_wait[sqlite-an error]"),
        ("Pending.writes_can_wait", "step.others = True\n                return False", "step.others = True\n                return True"),
    ),
    _mutant(
        "parallel-writes-wait",
        "Of parallel nodes only the first one's writes wait.",
        ("test_of_parallel_nodes_only_the_first_waits_and_only_for_the_second",),
        ("Pending.writes_can_wait", "step.pulls == 1 and not step.pushes", "True"),
    ),
    _mutant(
        "every-checkpoint-waits",
        "A checkpoint waits only where the run says that a crash loses nothing.",
        ("test_which_checkpoints_may_wait",),
        ("Pending.checkpoint_can_wait", "bool(getattr(run, \"may_wait\", False))", "True"),
    ),
    _mutant(
        "reply-waits-for-safe-calls",
        "A reply is on disk before a call that needs no intent runs.",
        ("test_a_reply_is_durable_before_anything_that_it_calls_runs",),
        ("Router._commits_next", 'tool.replay != "safe"', "True"),
    ),
    _mutant(
        "told-replies-wait",
        "A reply is on disk before somebody is told of it.",
        ("test_whoever_reads_of_a_reply_or_a_result_finds_it_on_disk",),
        ("Router.invoke", "not run.told and (run.ended", "(run.ended"),
    ),
    _mutant(
        "flusher-sleeps",
        "Nothing waits longer than a moment.",
        ("test_nothing_waits_longer_than_a_moment",),
        ("WAIT_SECONDS", "0.01", "3600.0"),
    ),
    _mutant(
        "readers-miss-what-waits",
        "A reader finds what waits.",
        ("test_a_reader_finds_what_waits",),
        ("Pending.holds", "return thread_id is None or thread_id in self._waiting", "return False"),
    ),
    _mutant(
        "what-waits-changes",
        "What waits is written as it was given.",
        ("test_what_waits_is_as_it_was_given",),
        ("_frozen", "value.copy()", "value"),
    ),
    _mutant(
        "dangling-calls-stay",
        "A call without an answer is answered before the next model call.",
        ("test_a_new_message_after_a_crash_says_so_too",),
        ("before_agent", "updates += await _repaired(reply, index, ctx)", "pass"),
    ),
    _mutant(
        "repair-forgets-the-ledger",
        "A new message takes the recorded results of a crashed step.",
        ("test_a_new_message_takes_what_only_the_ledger_holds",),
        ("_repaired", "if isinstance(known, Recorded):", "if False:"),
    ),
    _mutant(
        "unfinished-step-dropped",
        "A new message takes what an unfinished step had written.",
        ("test_a_new_message_takes_what_only_the_steps_writes_hold",),
        ("begin", "if news and (threads is None or opened.unfinished):", "if False:"),
    ),
    _mutant(
        "never-is-retried",
        "A tool that may not be repeated is not retried.",
        ("test_only_what_may_be_repeated_is_tried_again[never-1]",),
        ("execute", 'if tool.replay != "never" else 0', "if True else 0"),
    ),
    _mutant(
        "cancel-meets-a-later-run",
        "A cancel ends the run that was there, and no later one.",
        ("test_a_thread_is_wrested_from_the_owner_that_was_meant_alone",),
        ("Leases.wrest", "if self._holding(db, thread_id) != epoch:", "if False:"),
    ),
    _mutant(
        "stop-asks-any-epoch",
        "Only the run that took the thread with this epoch is asked to stop.",
        ("test_a_request_to_stop_is_for_one_epoch",),
        ("Leases.ask_to_stop", "epoch in (None, lease.epoch)", "True"),
    ),
    _mutant(
        "queue-without-order",
        "Queued runs come in the order of their coming.",
        ("test_queued_runs_come_one_after_the_other_in_their_order",),
        ("_queue", "line.append(run)", "line.appendleft(run)"),
    ),
    _mutant(
        "key-without-thread",
        "An idempotency key belongs to its thread.",
        ("test_one_key_in_two_threads_is_two_runs",),
        ("run_id_of", '{thread_id}\\0{key}', '{key}'),
    ),
    _mutant(
        "key-takes-other-input",
        "A key that was used for another input is refused.",
        ("test_another_input_under_the_same_key_is_refused",),
        ("look_back", "if saved.metadata.get(INPUT) !=", "if False and saved.metadata.get(INPUT) !="),
    ),
    _mutant(
        "key-runs-twice",
        "A run that has ended gives its result again.",
        ("test_the_same_key_is_the_same_run",),
        ("look_back", "if run.key is None or saver is None", "if True or saver is None"),
    ),
)
"""Nothing acknowledged is lost, nothing finished is run twice."""


BOUNDED: Final = (
    _mutant(
        "limit-one-more",
        "A run makes as many model calls as it may, and no further one.",
        ("test_invented_calls_end_at_the_limit_without_any_tool",),
        ("model", "iteration >= ctx.spec.max_iterations", "iteration > ctx.spec.max_iterations"),
        quick=True,
    ),
    _mutant(
        "tools-on-the-last-call",
        "The last model call of a run is made without tools.",
        ("test_the_limit_is_a_polite_end",),
        ("initial", "+ 1 >= ctx.spec.max_iterations", "+ 1 > ctx.spec.max_iterations"),
    ),
    _mutant(
        "iteration-goes-on-counting",
        "Each input has the whole limit.",
        ("test_each_input_has_the_whole_limit",),
        ("before_agent", '("iteration", 0), ', ""),
    ),
    _mutant(
        "recursion-limit-too-small",
        "LangGraph's own limit never ends a run.",
        ("test_langgraphs_own_limit_never_ends_a_run",),
        ("limits", "STEPS_PER_ITERATION * spec.max_iterations + 2", "spec.max_iterations + 2"),
    ),
    _mutant(
        "calls-without-number",
        "Of one reply 32 calls are run.",
        ("test_more_than_32_calls_are_refused_one_by_one",),
        ("settle", "elif i >= MAX_CALLS:", "elif i > MAX_CALLS:"),
    ),
    _mutant(
        "refused-calls-unanswered",
        "A call that the limit refuses is answered.",
        ("test_the_limit_is_a_polite_end",),
        ("settle", 'messages.append(_refusal(call_id, call["name"], why))\n        elif i', "pass\n        elif i"),
    ),
    _mutant(
        "empty-reply-is-stored",
        "An empty reply is not stored.",
        ("test_an_empty_reply_is_not_stored",),
        ("model", "if is_empty(reply):", "if False:"),
    ),
    _mutant(
        "tool-timeout-ignored",
        "A tool that takes too long is answered for.",
        ("test_a_late_tool_is_answered",),
        ("_once", "default_timeout if tool.timeout is UNSET else tool.timeout", "None"),
    ),
    _mutant(
        "deadline-ignored",
        "A deadline ends a run.",
        ("test_a_deadline_ends_a_run_politely",),
        ("set_limits", "opened.leave.callback(alarm(seconds,", "(lambda *_: None)((seconds,"),
    ),
    _mutant(
        "output-not-cut",
        "A result that is longer than the model may see is cut.",
        ("test_without_the_hook_a_long_result_is_cut_all_the_same",),
        ("_fitting", "limit is None or", "True or"),
    ),
    _mutant(
        "cap-one-more",
        "The first character too many cuts.",
        ("test_the_cap_at_its_default",),
        ("cap", "len(text) <= limit", "len(text) <= limit + 1"),
    ),
    _mutant(
        "budget-one-more",
        "A budget that is used up ends the run before the next call.",
        ("test_a_budget_that_is_exactly_used_up_is_used_up",),
        ("Budget.spent_up", "tokens >= self.tokens", "tokens > self.tokens"),
    ),
    _mutant(
        "budget-in-dollars-one-more",
        "A budget in dollars that is exactly used up ends the run.",
        ("test_a_budget_that_is_exactly_used_up_is_used_up",),
        ("Budget.spent_up", "cost.usd >= Decimal", "cost.usd > Decimal"),
    ),
    _mutant(
        "budget-of-a-run-is-the-threads",
        "A budget per run begins anew with each input.",
        ("test_the_next_run_has_its_own_budget_or_the_threads",),
        ("BudgetHook.before_agent", '{"cost": _RESET}', "None"),
    ),
    _mutant(
        "quota-of-threads-one-more",
        "A tenant has as many threads as it may have.",
        ("test_D37_a_tenant_has_so_many_threads_and_runs",),
        ("Streams._is_full", "row[0] >= most", "row[0] > most"),
    ),
    _mutant(
        "quota-of-runs-one-more",
        "A tenant has as many runs as it may have.",
        ("test_D37_a_tenant_has_so_many_threads_and_runs",),
        ("Runs._start", "len(self.live) >= self._limits.runs_per_tenant", "len(self.live) > self._limits.runs_per_tenant"),
    ),
    _mutant(
        "rate-not-counted",
        "A caller who asks too often is told to wait.",
        ("test_D37_a_tenant_s_requests_have_a_limit",),
        ("Bucket.take", "self._left -= 1", "pass"),
    ),
    _mutant(
        "sweep-takes-running",
        "The thread of a live run is not swept.",
        ("test_running_waiting_and_pinned_threads_are_never_swept",),
        ("_KEPT", '"running", ', ""),
        quick=True,
    ),
    _mutant(
        "sweep-takes-waiting",
        "A thread that waits for an answer is not swept.",
        ("test_running_waiting_and_pinned_threads_are_never_swept",),
        ("_KEPT", '"waiting", ', ""),
    ),
    _mutant(
        "sweep-takes-pinned",
        "A pinned thread is not swept.",
        ("test_running_waiting_and_pinned_threads_are_never_swept",),
        ("expired", "threads.c.pinned == 0,", ""),
    ),
    _mutant(
        "sweep-takes-other-tenants",
        "A sweep takes the threads of its own tenant alone.",
        ("test_a_sweep_takes_its_own_tenants_threads_alone",),
        ("expired", "threads.c.tenant == core.tenant,", ""),
    ),
    _mutant(
        "sweep-too-early",
        "A thread is kept for its whole time to live.",
        ("test_a_thread_is_kept_for_its_whole_time_and_no_longer",),
        ("expired", "threads.c.expires_at <= Now()", "threads.c.expires_at <= Now() + 120.0"),
    ),
    _mutant(
        "run-does-not-extend-life",
        "A thread's time begins anew when its run ends.",
        ("test_a_thread_is_kept_for_its_whole_time_and_no_longer",),
        ("CLOSE", 'expires_at=_b("at") + threads.c.ttl', 'expires_at=threads.c.expires_at + 0 * _b("at")'),
    ),
    _mutant(
        "removal-without-batches",
        "A deletion holds the database for a bounded number of rows at a time.",
        ("test_a_deletion_takes_a_bounded_number_of_rows_at_a_time",),
        ("_remove_range", ".limit(BATCH)", ""),
    ),
    _mutant(
        "history-copied-into-the-overlay",
        "The overlay names ranges of messages and copies none.",
        ("test_an_overlay_is_small_and_does_not_repeat_the_prompt",),
        ("to_overlay", "[base[s[0]].id, base[s[1] - 1].id]", "[*base[s[0] : s[1]]]"),
    ),
    _mutant(
        "items-written-again",
        "What was in the last list is not written again.",
        ("test_appending_writes_one_row",),
        ("_prefix", "return known", "return None"),
        ("_index", "return index", "return {}"),
        ("Writer._place", "if found is not None:", "if False:"),
    ),
    _mutant(
        "blobs-written-again",
        "A long text is stored once for the thread.",
        ("test_what_a_hook_injects_at_each_step_is_stored_once",),
        ("Writer._blob", "hashed = cache.texts_apart.get(text)", "import os; hashed = None; text = text + os.urandom(4).hex()"),
    ),
)
"""Cost does not grow with history, and what is bounded stays within its bounds."""

VISIBLE: Final = (
    _mutant(
        "tail-begins-one-later",
        "What memory holds is given only to a reader who misses nothing of it.",
        ("test_every_number_gives_the_next_ones_of_what_memory_holds", "test_every_number_gives_the_next_ones_while_the_run_goes_on"),
        ("Channel.since", "self._tail[0][0] > after + 1", "self._tail[0][0] > after + 2"),
        quick=True,
    ),
    _mutant(
        "tail-repeats-the-last",
        "A reader does not get again what he has seen.",
        ("test_every_number_gives_the_next_ones_of_what_memory_holds",),
        ("Channel.since", "entry[0] > after]", "entry[0] >= after]"),
        quick=True,
    ),
    _mutant(
        "pages-repeat-the-last",
        "A reader of pages does not get again what he has seen.",
        ("test_every_number_gives_the_next_ones_after_the_end",),
        ("behind", "if start + i > after]", "if start + i >= after]"),
    ),
    _mutant(
        "pages-numbered-wrong",
        "An event has one number, whichever page it is in.",
        ("test_every_number_gives_the_next_ones_after_the_end",),
        ("behind", "- len(page) + 1", "- len(page) + 2"),
    ),
    _mutant(
        "tail-numbered-wrong",
        "An event has the same number in memory and on disk.",
        ("test_every_number_gives_the_next_ones_while_the_run_goes_on",),
        ("Channel._write", "enumerate(new, first)", "enumerate(new, first + 1)"),
    ),
    _mutant(
        "told-before-it-is-written",
        "An event that a reader has seen is in the database.",
        ("test_readers_are_told_of_nothing_that_is_not_written",),
        ("Channel._write", "await streams.run(streams.append, self.row, last, new, status)\n        self._tail.extend(enumerate(new, first))", "self._tail.extend(enumerate(new, first))\n        self._announce()\n        await streams.run(streams.append, self.row, last, new, status)"),
    ),
    _mutant(
        "run-reads-the-next-one",
        "A run's stream ends where the next run begins.",
        ("test_a_run_s_stream_ends_where_the_next_run_begins",),
        ("bound", "else row[0] - 1", "else row[0] + 3"),
        ("events_after", "if event[\"event\"] in TERMINAL:\n                return", "pass"),
    ),
    _mutant(
        "reader-begins-one-later",
        "Last-Event-ID: N gives N+1 first.",
        ("test_every_way_to_ask_again_takes_every_number",),
        ("_again", "row.first <= int(last) + 1", "row.first <= int(last)"),
    ),
    _mutant(
        "unknown-number-is-no-gap",
        "A reader who names an event that never was is told of a gap.",
        ("test_D33_a_number_that_no_event_has_is_a_gap",),
        ("follow", "ahead > begin and ahead > await", "False and ahead > await"),
    ),
    _mutant(
        "two-ends",
        "A run that another server ended is not ended again.",
        ("test_a_run_has_one_end",),
        ("Streams.append", "if not going_on:", "if False:"),
    ),
    _mutant(
        "journal-not-masked",
        "No secret reaches the journal.",
        ("test_no_canary_reaches_the_file",),
        ("Mask.text", "self._regex.sub(lambda found: self._hidden(found[0]), text)", "text"),
        quick=True,
    ),
    _mutant(
        "environment-not-secret",
        "What the environment holds under a secret name is hidden.",
        ("test_no_canary_reaches_the_file",),
        ("known_secrets", "if _SECRET_NAME.fullmatch(name)", "if False"),
    ),
    _mutant(
        "named-fields-not-masked",
        "A text under a name such as password is hidden.",
        ("test_what_is_hidden",),
        ("Mask._field", "_SECRET_NAME.fullmatch(name)", "False"),
    ),
    _mutant(
        "export-forgets-marks",
        "An export hides what only the recording process knew.",
        ("test_no_form_shows_what_only_the_recording_process_knew",),
        ("Hider.of", "secrets |= set(Mask(key).marked(_texts_in(journal), marks))", "pass"),
    ),
    _mutant(
        "errors-not-redacted",
        "An error of a tool shows no key.",
        ("test_failures",),
        ("failure", "REDACTOR.text(_describe(error))", "_describe(error)"),
    ),
    _mutant(
        "redactor-forgets-keys",
        "Every key of a configuration is known as a secret.",
        ("test_every_key_of_a_configuration_is_known_as_a_secret",),
        ("Redactor.learn", "if new != self.known:", "if False:"),
    ),
    _mutant(
        "spans-tell-errors",
        "Spans have lengths and hashes where content is not wanted.",
        ("test_opentelemetry_is_told_of_failures_and_events",),
        ("_told", "if content or key not in _TEXTS:", "if True:"),
    ),
    _mutant(
        "journal-branch-goes-on",
        "A fork is a branch of its own.",
        ("test_a_fork_is_a_branch_that_counts_on_from_where_it_left",),
        ("_Opening._branch_off", "max(row.branch for row in rows) + 1", "max(row.branch for row in rows)"),
    ),
    _mutant(
        "branch-counts-what-came-after",
        "A branch counts on from where it begins.",
        ("test_a_fork_is_a_branch_that_counts_on_from_where_it_left",),
        ("_Opening._branch_off", "if place[2] < checkpoint)", "if True)"),
    ),
    _mutant(
        "blame-names-the-agent",
        "Each part of a request names the hook that put it there.",
        ("test_blame_names_the_hook_behind_each_part",),
        ("Blaming._system", "source or AGENT if owner is None else owner.by", "AGENT"),
    ),
    _mutant(
        "lost-moments-untold",
        "What was open when a process died is told as lost.",
        ("test_what_was_open_is_lost_innermost_first",),
        ("Trail.closing", "sorted(self.is_open.items(), reverse=True)", "sorted(self.is_open.items())"),
    ),
    _mutant(
        "replay-calls-a-tool",
        "A replay calls no tool.",
        ("test_a_replay_makes_no_model_and_no_tool_call",),
        ("ReplayPort.at", "return Skip(self.result(moment))", "self.result(moment)"),
    ),
    _mutant(
        "replay-hides-a-divergence",
        "A replay ends where the code of today asks something else.",
        ("test_a_call_that_was_not_recorded_is_not_made",),
        ("Tape.result", "call_key(moment.call_id or \"\", moment.name, args)", "next(iter(self._results))"),
    ),
    _mutant(
        "fork-asks-nobody",
        "A fork asks before it runs a tool with effects that was not recorded.",
        ("test_a_tool_with_effects_that_was_not_recorded_is_asked_about",),
        ("Policy", 'missing: Missing = "ask"', 'missing: Missing = "live"'),
    ),
    _mutant(
        "replay-goes-live",
        "A replay executes nothing, and stops where it would have to.",
        ("test_a_replay_stops_where_the_code_of_today_asks_something_else",),
        ("Policy.of_replay", 'missing="stop", missing_model="stop"', 'missing="live", missing_model="live"'),
    ),
    _mutant(
        "fork-runs-recorded-tools",
        "A fork takes the recorded answer of a tool by default.",
        ("test_each_tool_is_treated_by_its_policy",),
        ("Policy", 'other: Choice = "recorded"', 'other: Choice = "live"'),
    ),
)
"""Everything is visible offline, to its readers, and to nobody else."""

FAITHFUL: Final = (
    _mutant(
        "tool-message-at-the-end",
        "An answer stands behind its call, whenever it comes.",
        ("test_answers_stand_in_call_order_whenever_they_come",),
        ("reduce_messages", "_file_answer(out, message)", "out.push(message)"),
    ),
    _mutant(
        "second-answer-is-added",
        "A second answer to a call replaces the first.",
        ("test_a_second_answer_to_a_call_replaces_the_first",),
        ("_file_answer", "if other.tool_call_id == answer.tool_call_id:", "if False:"),
    ),
    _mutant(
        "oldest-call-of-an-id",
        "An answer goes to the latest call of its id.",
        ("test_an_answer_goes_to_the_latest_call_of_its_id",),
        ("_asker", "range(len(out) - 1, -1, -1)", "range(len(out))"),
    ),
    _mutant(
        "branches-share-an-index",
        "Lists that grew from one another do not mislead each other.",
        ("test_branches_that_grew_from_one_list_do_not_mislead_each_other",),
        ("MessageList.find", "and self[at].id == message_id", ""),
    ),
    _mutant(
        "stale-overlay-is-sent",
        "An overlay that was made for another moment is not used.",
        ("test_a_stale_overlay_is_not_used",),
        ("from_overlay", "list(overlay.get(\"stamp\") or ()) != stamp(state)", "False"),
    ),
    _mutant(
        "stamp-without-iteration",
        "An overlay is for one iteration.",
        ("test_a_stale_overlay_is_not_used",),
        ("stamp", 'state.get("iteration", 0)', "0"),
    ),
    _mutant(
        "hooks-inside-out",
        "The first hook is the outermost layer.",
        ("test_two_hooks_and_three_parallel_tools_make_an_onion",),
        ("Hooks.layers", "return found", "return found[::-1]"),
        ("compile_hooks", "for hook in hooks:\n        name", "for hook in reversed(hooks):\n        name"),
    ),
    _mutant(
        "unlisted-phase-is-silent",
        "A method whose phase is not listed is a mistake of the configuration.",
        ("test_a_wrong_hook_is_refused_when_the_agent_is_made",),
        ("compile_hooks", "if phase not in listed:", "if False:"),
    ),
    _mutant(
        "interrupt-swallowed",
        "A hook cannot swallow an interrupt.",
        ("test_a_hook_cannot_swallow_an_interrupt",),
        ("Onion.run", "if isinstance(swallowed, GraphBubbleUp):", "if False:"),
    ),
    _mutant(
        "prompt-is-stored",
        "What hooks inject is never stored.",
        ("test_what_hooks_inject_is_never_stored",),
        ("modify_request", '("request", to_overlay(request, ctx.spec.system_prompt))', '("request", to_overlay(request, ctx.spec.system_prompt)), ("messages", request.to_messages())'),
    ),
    _mutant(
        "named-model-becomes-auto",
        "A named model is never the demo.",
        ("test_a_named_model_is_never_the_demo",),
        ("resolve_model", "return _resolve(parse(spec), base_dir or Path(), surroundings)", "import contextlib\n    with contextlib.suppress(ModelError):\n        return _resolve(parse(spec), base_dir or Path(), surroundings)\n    return _resolve(parse(DEMO), base_dir or Path(), surroundings)"),
    ),
    _mutant(
        "retry-after-ignored",
        "A wait that a provider asks for is kept to.",
        ("test_the_wait_that_a_provider_asks_for_is_kept_to",),
        ("retry_delay", "asked = _asked_wait(error, now)", "asked = None"),
    ),
    _mutant(
        "lasting-faults-retried",
        "A lasting fault is not tried again.",
        ("test_lasting_faults_are_not_tried_again",),
        ("_status_passes", "status >= 500 or status in _RETRY_STATUS", "status >= 400"),
    ),
    _mutant(
        "cut-stream-is-a-reply",
        "A stream that was cut is no reply.",
        ("test_a_reply_whose_end_never_came_is_worth_another_attempt",),
        ("ensure_whole", "and not any(map(metadata.get, _FINISH))", "and False"),
    ),
    _mutant(
        "assistant-input-believed",
        "What a client says of a tool or of the model is not believed.",
        ("test_a_clients_tool_calls_are_not_believed",),
        ("_from_dict", '{"role": role, "content": content}', "dict(item)"),
    ),
    _mutant(
        "duplicate-keys-taken",
        "A key that stands twice in a file of agents is a mistake.",
        ("test_refuses_with_line_and_key_path",),
        ("_Builder._key", "if full in self.lines:", "if False:"),
    ),
    _mutant(
        "yaml-words",
        "`no` and `on` stay text.",
        ("test_plain_scalars_mean_only_what_they_show",),
        ("_WORDS", '"false": False', '"false": False, "no": False'),
    ),
    _mutant(
        "aliases-taken",
        "Aliases and anchors are refused.",
        ("test_refuses_with_line_and_key_path",),
        ("_Builder.feed", "self._refuse_sharing(event)", "pass"),
    ),
    _mutant(
        "prune-drops-ancestors",
        "Pruning keeps what a delta channel is rebuilt from.",
        ("test_keeping_the_latest_checkpoints_of_a_delta_channel_keeps_its_value",),
        ("_drop_checkpoints", "row.rid not in kept and row.rid not in needed", "row.rid not in kept"),
    ),
    _mutant(
        "prune-drops-items",
        "Pruning keeps every item that a checkpoint refers to.",
        ("test_keeping_the_latest_checkpoints_keeps_the_state",),
        ("_garbage", "if at >= 0 and rid <= ends[at]:", "if at >= 0 and rid < ends[at]:"),
    ),
    _mutant(
        "prune-drops-bases",
        "Pruning keeps the row that another row points to.",
        ("test_pruning_keeps_what_other_rows_point_to",),
        ("_garbage", "[rid for rid in unused if rid not in used]", "unused"),
    ),
    _mutant(
        "fork-without-ledger",
        "A fork knows which calls have run.",
        ("test_a_copy_of_a_crashed_thread_runs_nothing_again",),
        ("_Copy.run", "self._calls()", "pass"),
    ),
    _mutant(
        "fork-takes-later-writes",
        "A fork does again what came behind it.",
        ("test_a_fork_does_again_what_came_behind_it_and_nothing_that_came_before",),
        ("fork_thread", "if followed:", "if False:"),
    ),
)
"""It is still LangGraph: messages, models, files and forks mean what they say."""

GUARDED: Final = (
    _mutant(
        "approval-hash-ignored",
        "A decision is for the call that was shown.",
        ("test_a_decision_is_bound_to_the_call_that_was_shown",),
        ("_misfit", 'decision.hash != question["hash"]', "False"),
        quick=True,
    ),
    _mutant(
        "approval-not-bound",
        "A decision that names no call is for the call that the person was shown.",
        ("test_an_answer_to_an_older_question_is_no_answer_to_a_newer_one",),
        ("_bound", 'return {**answer, "hash": question["hash"]}', "return answer"),
    ),
    _mutant(
        "approval-without-arguments",
        "The hash of a call covers its arguments.",
        ("test_the_hash_tells_every_call_from_every_other",),
        ("call_hash", "call.args, ", ""),
    ),
    _mutant(
        "approval-without-the-tools-word",
        "The hash of a call covers what the tool says of itself.",
        ("test_a_decision_is_bound_to_what_the_tool_said_of_itself",),
        ("call_hash", ", call.ctx.told()", ""),
    ),
    _mutant(
        "failing-rule-allows",
        "A rule that fails asks.",
        ("test_a_rule_that_fails_asks_and_says_why",),
        ("_asks", 'return f"the rule {rule.text} failed ({error})"', "return None"),
    ),
    _mutant(
        "bare-text-approves",
        "A bare text is no decision.",
        ("test_what_is_no_fitting_decision_is_asked_again",),
        ("read_decision", "if not isinstance(answer, Mapping) or", "if answer == 'yes':\n        return Approve()\n    if not isinstance(answer, Mapping) or"),
    ),
    _mutant(
        "rejected-call-runs",
        "A rejected call is not run.",
        ("test_each_decision_does_what_it_says",),
        ("ApprovalHook.wrap_tool_call", "case Reject(message=message):\n                return", "case Reject(message=message):\n                await next(call)\n                return"),
    ),
    _mutant(
        "one-answer-for-all",
        "One answer to several questions is refused.",
        ("test_a_bare_answer_to_several_questions_is_refused_and_they_wait_on",),
        ("_by_id", "if len(waiting) > 1:", "if False:"),
    ),
    _mutant(
        "level-falls-back",
        "A level that does not work here is refused, not replaced.",
        ("test_without_bubblewrap_the_next_level_is_said",),
        ("choose", "names = [setting] if setting in _MAKERS else list(_MAKERS)", "names = list(_MAKERS)"),
    ),
    _mutant(
        "level-is-not-tried",
        "A level counts only after a command was confined in it.",
        ("test_a_level_that_confines_nothing_is_not_taken",),
        ("choose", "if not (wrong := works(found)):", "if not (wrong := ''):"),
    ),
    _mutant(
        "links-lead-outside",
        "The kernel confines a path below its folder.",
        ("test_files::test_attack",),
        ("Openat2.open", "_RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS", "_RESOLVE_NO_MAGICLINKS"),
    ),
    _mutant(
        "dots-lead-outside",
        "The walk does not leave its folder.",
        ("test_files::test_attack",),
        ("_up", "if len(held) == 1:", "if False:"),
    ),
    _mutant(
        "foreign-hard-links-read",
        "A hard link to somebody else's file is refused.",
        ("test_files::test_attack",),
        ("Root._must_be_own_file", "status.st_nlink > 1 and status.st_uid != self._owner", "False"),
    ),
    _mutant(
        "loopback-is-public",
        "No spelling of loopback is reached.",
        ("test_no_spelling_of_loopback_is_reached",),
        ("Client._address", "for address in addresses:", "for address in ():"),
    ),
    _mutant(
        "one-address-checked",
        "Every address of a name is checked.",
        ("test_a_name_with_one_private_address_is_refused",),
        ("Client._address", "for address in addresses:", "for address in addresses[:1]:"),
    ),
    _mutant(
        "mapped-addresses-pass",
        "An IPv4 address inside of an IPv6 one decides.",
        ("test_what_is_not_the_public_internet_is_refused",),
        ("_kind", "if address in _MAPPED:", "if False:"),
        ("_embedded", "if address in _6TO4:", "if False:"),
    ),
    _mutant(
        "credentials-follow-redirects",
        "Credentials do not follow a redirect to another origin.",
        ("test_another_origin_gets_no_credentials",),
        ("Client._follow", "if target.origin != before.origin:", "if False:"),
    ),
    _mutant(
        "redirect-unchecked",
        "A redirect leads through the same checks.",
        ("test_each_redirect_is_checked",),
        ("Client._refusal", "if target.at(address) in self.allow:", "if target.at(address) in self.allow or target.path != '/start':"),
    ),
    _mutant(
        "scope-reversed",
        "A token does no more than its scope allows.",
        ("test_scopes",),
        ("Caller.allows", "SCOPES.index(self.scope) >= SCOPES.index(wanted)", "True"),
    ),
    _mutant(
        "expired-token-passes",
        "An expired token is refused.",
        ("test_a_token_ends",),
        ("Tokens.check", "info.expires.timestamp() <= now", "False"),
    ),
    _mutant(
        "revoked-token-passes",
        "A revoked token is refused.",
        ("test_a_token_ends",),
        ("Tokens.check", "if info.revoked is not None:", "if False:"),
    ),
    _mutant(
        "secret-not-compared",
        "A token is refused whose secret is another one.",
        ("test_a_token_is_its_secret",),
        ("Tokens.check", "not hmac.compare_digest(_hash(secret), expected) or info is None", "info is None"),
    ),
    _mutant(
        "run-of-another-tenant",
        "A tenant finds its own runs alone.",
        ("test_a_tenant_finds_its_own_runs_alone",),
        ("RUNS", '.where(threads.c.tenant == _b("tenant"))', '.where((threads.c.tenant == _b("tenant")) | (threads.c.tenant != _b("tenant")))'),
    ),
    _mutant(
        "thread-of-another-tenant",
        "The same id is another thread for another tenant.",
        ("test_a_tenant_finds_its_own_threads_alone",),
        ("Threads._query", ".where(threads.c.tenant == self._core.tenant)", ""),
    ),
    _mutant(
        "foreign-hosts-served",
        "A request under another host name is refused.",
        ("test_D31_pages_of_other_origins",),
        ("Guard._check_origin", "if (origin is not None and not same) or foreign:", "if False:"),
    ),
    _mutant(
        "key-of-another-request",
        "An idempotency key is for one request.",
        ("test_D36_idempotency_keys",),
        ("Runs._known", "if row.asked != request or there:", "if False:"),
    ),
    _mutant(
        "check-value-not-checked",
        "A flipped bit is found.",
        ("test_a_row_that_was_tampered_with_is_found",),
        ("unseal", "if not body.startswith(_check(payload, context)):", "if False:"),
    ),
    _mutant(
        "check-without-context",
        "A row fits its own place alone.",
        ("test_a_row_that_was_tampered_with_is_found",),
        ("unseal", "_check(payload, context)", "_check(payload, ())"),
        ("seal", "_check(payload, context)", "_check(payload, ())"),
    ),
    _mutant(
        "encrypted-without-context",
        "An encrypted row fits its own place alone.",
        ("test_a_row_that_was_changed_is_refused",),
        ("_Thread.seal", "ormsgpack.packb(context)", "b''"),
        ("_Thread.unseal", "head + ormsgpack.packb(context)", "head"),
    ),
    _mutant(
        "one-key-for-all-threads",
        "Each thread has a key of its own.",
        ("test_a_thread_does_not_go_by_another_name",),
        ("_Thread.__init__", "_THREAD + name))", "_THREAD))"),
    ),
    _mutant(
        "result-for-any-arguments",
        "An encrypted result is that of its arguments.",
        ("test_a_result_is_that_of_its_arguments",),
        ("place_of", "if seals.hides else", "if False else"),
    ),
    _mutant(
        "keys-for-everybody",
        "A file of keys that others may read is refused.",
        ("test_a_file_that_others_may_use_is_refused",),
        ("Keys.from_file", "status.st_mode & _OTHERS", "False"),
    ),
    _mutant(
        "every-class-allowed",
        "No class is found by a name from the database.",
        ("test_a_class_that_is_no_longer_allowed_is_not_rebuilt",),
        ("AllowList._loaded", "if (module, path.rpartition(\".\")[2]) not in self._names:", "if False:"),
    ),
    _mutant(
        "depth-unbounded",
        "Sub-agents are bounded in depth.",
        ("test_depth_and_number_are_bounded",),
        ("delegation", "if len(path) >= max_depth:", "if False:"),
    ),
)
"""What nobody allowed does not happen, whoever asks for it."""

MUTANTS: Final[tuple[Mutant, ...]] = (*DURABLE, *BOUNDED, *VISIBLE, *FAITHFUL, *GUARDED)
