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
        ("test_a_crash_loop_ends_as_poison_and_a_new_message_goes_on",),
        ("_refuse_poison", "lease.tries >= MAX_TRIES", "lease.tries > MAX_TRIES"),
    ),
    _mutant(
        "interrupts-may-wait",
        "Interrupts, errors and answers are committed at once.",
        ("test_an_interrupt_is_durable_when_it_is_told",),
        ("Pending.writes_can_wait", "step.others = True\n                return False", "step.others = True\n                return True"),
    ),
    _mutant(
        "parallel-writes-wait",
        "Of parallel nodes only the first one's writes wait.",
        ("test_which_writes_may_wait",),
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
        ("test_a_cancel_ends_the_run_that_was_there_and_no_later_one",),
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

MUTANTS: Final[tuple[Mutant, ...]] = (*DURABLE,)
