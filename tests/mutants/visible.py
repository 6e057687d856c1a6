"""Everything is visible offline, to its readers, and to nobody else."""

from __future__ import annotations

from typing import Final

from tests.mutants.patches import mutant

VISIBLE: Final = (
    mutant(
        "tail-begins-one-later",
        "What memory holds is given only to a reader who misses nothing of it.",
        (
            "test_every_number_gives_the_next_ones_of_what_memory_holds",
            "test_every_number_gives_the_next_ones_while_the_run_goes_on",
        ),
        ("EventLog.since", "self._tail[0][0] > after + 1", "self._tail[0][0] > after + 2"),
        quick=True,
    ),
    mutant(
        "tail-repeats-the-last",
        "A reader does not get again what he has seen.",
        ("test_every_number_gives_the_next_ones_of_what_memory_holds",),
        ("EventLog.since", "entry[0] > after]", "entry[0] >= after]"),
        quick=True,
    ),
    mutant(
        "pages-repeat-the-last",
        "A reader of pages does not get again what he has seen.",
        ("test_every_number_gives_the_next_ones_after_the_end",),
        ("events_after", "if start + i > after]", "if start + i >= after]"),
    ),
    mutant(
        "pages-numbered-wrong",
        "An event has one number, whichever page it is in.",
        ("test_every_number_gives_the_next_ones_after_the_end",),
        ("events_after", "- len(page) + 1", "- len(page) + 2"),
    ),
    mutant(
        "tail-numbered-wrong",
        "An event has the same number in memory and on disk.",
        ("test_every_number_gives_the_next_ones_while_the_run_goes_on",),
        ("EventLog._write", "enumerate(new, first)", "enumerate(new, first + 1)"),
    ),
    mutant(
        "told-before-it-is-written",
        "An event that a reader has seen is in the database.",
        ("test_readers_are_told_of_nothing_that_is_not_written",),
        (
            "EventLog._write",
            "await streams.run_and_tell(thread, streams.append, self.row, last, new, status)",
            "self._tail.extend(enumerate(new, first))\n        self._announce()\n"
            "        await streams.run_and_tell("
            "thread, streams.append, self.row, last, new, status)",
        ),
    ),
    mutant(
        "run-reads-the-next-one",
        "A run's stream ends where the next run begins.",
        ("test_a_run_s_stream_ends_where_the_next_run_begins",),
        ("last_number", "else row[0] - 1", "else row[0] + 3"),
        ("events_after", 'elif page[-1][1]["event"] in TERMINAL:', "elif False:"),
    ),
    mutant(
        "reader-begins-one-later",
        "Last-Event-ID: N gives N+1 first.",
        ("test_every_way_to_ask_again_takes_every_number",),
        ("_again", "row.first <= int(last) + 1", "row.first <= int(last)"),
    ),
    mutant(
        "unknown-number-is-no-gap",
        "A reader who names an event that never was is told of a gap.",
        ("test_D33_a_number_that_no_event_has_is_a_gap",),
        ("follow", "ahead > begin and ahead > await", "False and ahead > await"),
    ),
    mutant(
        "two-ends",
        "A run that another server ended is not ended again.",
        ("test_a_run_has_one_end",),
        ("ServerRuns.append", "if now not in UNFINISHED:", "if False:"),
    ),
    mutant(
        "journal-not-masked",
        "No secret reaches the journal.",
        ("test_no_canary_reaches_the_file",),
        ("Mask._masked", "self.regex.sub(lambda found: self._hidden(found[0]), text)", "text"),
        quick=True,
    ),
    mutant(
        "environment-not-secret",
        "What the environment holds under a secret name is hidden.",
        ("test_no_canary_reaches_the_file",),
        ("_secrets_among", "if _SECRET_NAME.fullmatch(name)", "if False"),
    ),
    mutant(
        "named-fields-not-masked",
        "A text under a name such as password is hidden.",
        ("test_what_is_hidden",),
        ("Mask._field", "_SECRET_NAME.fullmatch(name)", "False"),
    ),
    mutant(
        "export-forgets-marks",
        "An export hides what only the recording process knew.",
        ("test_no_form_shows_what_only_the_recording_process_knew",),
        ("Hider.of", "secrets |= set(Mask(key).marked(_texts_in(journal), marks))", "pass"),
    ),
    mutant(
        "errors-not-redacted",
        "An error of a tool shows no key.",
        ("test_an_error_shows_no_secret",),
        ("failure", "REDACTOR.text(_describe(error))", "_describe(error)"),
    ),
    mutant(
        "redactor-forgets-keys",
        "What is learnt to be a secret is hidden from then on.",
        ("test_an_error_shows_no_secret",),
        ("Redactor.learn", "if new != self.known:", "if False:"),
    ),
    mutant(
        "spans-tell-errors",
        "Spans have lengths and hashes where content is not wanted.",
        ("test_the_words_of_an_error_leave_only_where_content_is_wanted[False]",),
        ("_exported", "if content or key not in _TEXTS:", "if True:"),
    ),
    mutant(
        "journal-numbers-phases-anew",
        "A number on disk stands for what it stood for when it was written.",
        ("test_a_file_of_an_earlier_release_is_read_to_what_it_held[schema-2-moments.db]",),
        ("PHASE_CODES", '"modify_request": 1', '"modify_request": 2'),
        ("PHASE_CODES", '"wrap_model_call": 2', '"wrap_model_call": 1'),
    ),
    mutant(
        "journal-guesses-numbers",
        "A number that no table has reads as a gap.",
        ("test_an_unknown_number_reads_as_a_gap_and_hides_nothing_else[a kind]",),
        ("entry_of", "KIND_OF[raw[0]]", 'KIND_OF.get(raw[0], ("tool", "call"))'),
    ),
    mutant(
        "journal-branch-goes-on",
        "A fork is a branch of its own.",
        ("test_a_fork_is_a_branch_that_counts_on_from_where_it_left",),
        (
            "Opening._branch_off",
            "max(row.branch for row in rows) + 1",
            "max(row.branch for row in rows)",
        ),
    ),
    mutant(
        "branch-counts-what-came-after",
        "A branch counts on from where it begins.",
        ("test_a_fork_is_a_branch_that_counts_on_from_where_it_left",),
        ("Opening._branch_off", "if place[2] < checkpoint)", "if True)"),
    ),
    mutant(
        "blame-names-the-agent",
        "Each part of a request names the hook that put it there.",
        ("test_blame_names_the_hook_behind_each_part",),
        ("BlameReader._system", "source or AGENT if owner is None else owner.by", "AGENT"),
    ),
    mutant(
        "lost-moments-untold",
        "What was open when a process died is told as lost.",
        ("test_what_was_open_is_lost_innermost_first",),
        (
            "UnfinishedRun.closing",
            "sorted(self.is_open.items(), reverse=True)",
            "sorted(self.is_open.items())",
        ),
    ),
    mutant(
        "replay-calls-a-tool",
        "A replay calls no tool.",
        ("test_a_replay_makes_no_model_and_no_tool_call",),
        ("ReplayListener.at", "else Skip(result)", "else None"),
    ),
    mutant(
        "replay-hides-a-divergence",
        "A replay ends where the code of today asks something else.",
        ("test_a_call_that_was_not_recorded_is_not_made",),
        (
            "Tape.result",
            'call_key(moment.call_id or "", moment.name, args)',
            "next(iter(self._results))",
        ),
    ),
    mutant(
        "fork-asks-nobody",
        "A fork asks before it runs a tool with effects that was not recorded.",
        ("test_a_tool_with_effects_that_was_not_recorded_is_asked_about",),
        ("Policy", 'missing: Missing = "ask"', 'missing: Missing = "live"'),
    ),
    mutant(
        "replay-goes-live",
        "A replay executes nothing, and stops where it would have to.",
        ("test_a_replay_stops_where_the_code_of_today_asks_something_else",),
        (
            "Policy.of_replay",
            'missing="stop", missing_model="stop"',
            'missing="live", missing_model="live"',
        ),
    ),
    mutant(
        "fork-runs-recorded-tools",
        "A fork takes the recorded answer of a tool by default.",
        ("test_each_tool_is_treated_by_its_policy",),
        ("Policy", 'other: Choice = "recorded"', 'other: Choice = "live"'),
    ),
    mutant(
        "parallel-visits-in-order",
        "Parallel calls are compared call by call, whichever began first.",
        ("test_parallel_visits_are_compared_call_by_call",),
        ("_pairs", "_ALIKE if len(one) > 1 or len(other) > 1 else _ALIKE[-1:]", "_ALIKE[-1:]"),
    ),
    mutant(
        "edited-call-told-as-recorded",
        "The preview of a fork says which calls its own edits make.",
        ("test_a_fork_of_a_parallel_step_runs_no_sibling_again",),
        ("Forker._will_execute", "yield one if edit is None else _edited(one, edit)", "yield one"),
    ),
)
