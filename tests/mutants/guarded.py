"""What nobody allowed does not happen, whoever asks for it."""

from __future__ import annotations

from typing import Final

from tests.mutants.patches import mutant

GUARDED: Final = (
    mutant(
        "memories-of-all-tenants",
        "A namespace never leads to items of another tenant.",
        ("test_store_memories::test_tenants_do_not_see_each_other[sqlite]",),
        ("SqlStore.from_url", "dialect, tenant=tenant,", 'dialect, tenant="local",'),
    ),
    mutant(
        "expired-items-are-returned",
        "An expired item is never returned.",
        ("test_an_expired_item_is_never_returned_and_a_sweep_deletes_it[sqlite]",),
        ("_live", '_m.expires > _b("n")', '_m.expires <= _b("n")'),
    ),
    mutant(
        "a-read-shortens-a-new-item",
        "A read changes no item that was put again meanwhile.",
        ("test_a_read_shortens_no_item_that_was_put_again_meanwhile[sqlite]",),
        ("_TOUCH", '_m.expires == _b("o")', '_b("o") == _b("o")'),
    ),
    mutant(
        "vectors-beside-their-seals",
        "The vectors of an encrypted store are sealed, and nowhere else.",
        ("test_sealed_vectors_are_opened_and_scanned",),
        ("SqlStore._row", "is_plain = self._core.sealing.keys is None", "is_plain = True"),
    ),
    mutant(
        "vectors-that-are-not-finite",
        "A vector with a number that is not finite is stored nowhere.",
        ("test_what_is_no_vector_is_refused_and_nothing_is_stored[sqlite-vectors0-not finite]",),
        ("VectorIndex._known", "not np.isfinite(made).all()", "False"),
    ),
    mutant(
        "vectors-of-another-size",
        "An item with vectors of another size has no score, whoever computes it.",
        ("test_pgvector_finds_what_numpy_finds",),
        ("VectorIndex.near", "WHEN dims <> {dims} THEN NULL ", ""),
    ),
    mutant(
        "notes-of-nobody",
        "Without the fact that names their owner, no notes are read or written.",
        ("test_nobody_gets_the_notes_of_nobody",),
        ("_value", 'or value == ""', "and False"),
    ),
    mutant(
        "approval-hash-ignored",
        "A decision is for the call that was shown.",
        ("test_a_decision_is_bound_to_the_call_that_was_shown",),
        ("misfit", 'decision.hash != question["hash"]', "False"),
    ),
    mutant(
        "approval-not-bound",
        "A decision that names no call is for the call that the person was shown.",
        ("test_a_decision_that_names_no_call_is_for_what_was_shown",),
        ("_bound", 'answer.get("hash") or asked["hash"]', 'answer.get("hash")'),
    ),
    mutant(
        "approval-without-arguments",
        "The hash of a call covers its arguments.",
        ("test_the_hash_tells_every_call_from_every_other",),
        ("call_hash", "call.args, ", ""),
    ),
    mutant(
        "approval-without-the-tools-word",
        "The hash of a call covers what the tool says of itself.",
        ("test_a_decision_is_bound_to_what_the_tool_said_of_itself",),
        ("call_hash", ", call.ctx.told()", ""),
    ),
    mutant(
        "approval-without-the-thread",
        "The hash of a call covers its thread.",
        ("test_a_copy_of_the_thread_needs_a_decision_of_its_own",),
        ("call_hash", "call.ctx.thread_id", "None"),
    ),
    mutant(
        "waiting-call-runs",
        "A call that waits for approval waits for every agent.",
        ("test_another_agent_waits_again_and_does_not_pay",),
        ("unless_it_waits", "if why is None", "if True"),
        quick=True,
    ),
    mutant(
        "no-word-approves",
        "A decision over HTTP is said, or nothing is decided.",
        ("test_what_is_no_decision_is_no_response",),
        (
            "_decision",
            "if isinstance(problem := read_decision(answer), str):",
            "answer, problem = answer or {'decision': 'approve'}, ''\n    if problem:",
        ),
        ("_decision", '"response" not in form.model_fields_set', "False"),
    ),
    mutant(
        "answered-question-again",
        "A question is asked once: one that has its answer is not shown again.",
        ("test_a_key_shows_the_open_questions_alone",),
        ("unanswered", "if one.id in ids", "if True"),
    ),
    mutant(
        "a-file-runs-anywhere",
        "A recording from elsewhere runs nothing on a thread that only has its id.",
        ("test_a_file_runs_nothing_on_another_thread_of_its_id",),
        ("has_thread_of", "return runs[-1].run_id in", "return runs[-1].run_id not in"),
    ),
    mutant(
        "plan-keeps-its-policy",
        "What is said last about a tool holds for the prepared fork.",
        ("test_what_is_said_last_holds_for_the_prepared_fork",),
        ("_decide", "if shell.plan is not None:", "if False:"),
    ),
    mutant(
        "task-unbound",
        "A task is bound by the rules of the agent that gives it.",
        ("test_a_child_is_bound_and_cannot_loosen",),
        ("brought", "if one.inherit_approvals", "if not one.inherit_approvals"),
    ),
    mutant(
        "runner-approves",
        "Who may run may not approve.",
        ("test_who_may_run_may_not_approve",),
        ("includes", "wanted in scopes or", 'wanted in scopes or "run" in scopes or'),
    ),
    mutant(
        "failing-rule-allows",
        "A rule that fails asks.",
        ("test_a_rule_that_fails_asks_and_says_why",),
        ("_asks", 'return f"the rule {rule.text} failed ({error})"', "return None"),
    ),
    mutant(
        "bare-text-approves",
        "A bare text is no decision.",
        ("test_a_text_that_sounds_like_one_is_no_decision[yes]",),
        (
            "read_decision",
            "if not isinstance(answer, Mapping) or",
            "if answer == 'yes':\n        return Approve()\n"
            "    if not isinstance(answer, Mapping) or",
        ),
    ),
    mutant(
        "rejected-call-runs",
        "A rejected call is not run.",
        ("test_each_decision_does_what_it_says",),
        (
            "decided",
            "case Reject(message=message):\n            return",
            "case Reject(message=message):\n            await next(call)\n            return",
        ),
    ),
    mutant(
        "one-answer-for-all",
        "One answer to several questions is refused.",
        ("test_a_bare_answer_to_several_questions_is_refused_and_they_wait_on",),
        ("_by_id", "if len(waiting) > 1:", "if False:"),
    ),
    mutant(
        "level-falls-back",
        "A level that does not work here is refused, not replaced.",
        ("test_without_bubblewrap_the_next_level_is_said",),
        (
            "choose",
            "names = [setting] if setting in _MAKERS else list(_MAKERS)",
            "names = list(_MAKERS)",
        ),
    ),
    mutant(
        "level-is-not-tried",
        "A level counts only after a command was confined in it.",
        ("test_a_level_that_confines_nothing_is_not_taken",),
        ("choose", "if not (wrong := works(found)):", "if not (wrong := ''):"),
    ),
    mutant(
        "links-lead-outside",
        "The kernel confines a path below its folder.",
        ("test_files::test_attack",),
        ("Openat2.open", "_RESOLVE_BENEATH | _RESOLVE_NO_MAGICLINKS", "_RESOLVE_NO_MAGICLINKS"),
    ),
    mutant(
        "dots-lead-outside",
        "The walk does not leave its folder.",
        ("test_files::test_attack",),
        ("_up", "if len(held) == 1:", "if False:"),
    ),
    mutant(
        "foreign-hard-links-read",
        "A hard link to somebody else's file is refused.",
        ("test_files::test_attack",),
        ("Root._must_be_own_file", "status.st_nlink > 1 and status.st_uid != self._owner", "False"),
    ),
    mutant(
        "loopback-is-public",
        "No spelling of loopback is reached.",
        ("test_no_spelling_of_loopback_is_reached",),
        ("Client.address", "for address in addresses:", "for address in ():"),
    ),
    mutant(
        "one-address-checked",
        "Every address of a name is checked.",
        ("test_a_name_with_one_private_address_is_refused",),
        ("Client.address", "for address in addresses:", "for address in addresses[:1]:"),
    ),
    mutant(
        "mapped-addresses-pass",
        "An IPv4 address inside of an IPv6 one decides.",
        ("test_what_is_not_the_public_internet_is_refused",),
        ("_kind", "if address in _MAPPED:", "if False:"),
        ("_embedded", "if address in _6TO4:", "if False:"),
    ),
    mutant(
        "credentials-follow-redirects",
        "Credentials do not follow a redirect to another origin.",
        ("test_another_origin_gets_no_credentials",),
        ("Client._follow", "if target.origin != before.origin:", "if False:"),
    ),
    mutant(
        "redirect-unchecked",
        "A redirect leads through the same checks.",
        ("test_each_redirect_is_checked",),
        (
            "Client._refusal",
            "if target.at(address) in self.allow:",
            "if target.at(address) in self.allow or target.path != '/start':",
        ),
    ),
    mutant(
        "scope-reversed",
        "A token does no more than its scope allows.",
        ("test_callers::test_scopes",),
        ("Caller.allows", "includes(self.scope, wanted)", "True"),
    ),
    mutant(
        "expired-token-passes",
        "An expired token is refused.",
        ("test_a_token_ends",),
        ("_is_valid", "info.expires.timestamp() > now", "True"),
    ),
    mutant(
        "revoked-token-passes",
        "A revoked token is refused.",
        ("test_a_token_ends",),
        ("_is_valid", "info.revoked is None and", ""),
    ),
    mutant(
        "secret-not-compared",
        "A token is refused whose secret is another one.",
        ("test_a_token_is_its_secret",),
        (
            "Tokens.check",
            "not hmac.compare_digest(_hash(secret), expected) or info is None",
            "info is None",
        ),
    ),
    mutant(
        "run-of-another-tenant",
        "A tenant finds its own runs alone.",
        ("test_a_tenant_finds_its_own_runs_alone",),
        (
            "server_runs",
            "threads.c.tenant == tenant",
            "(threads.c.tenant == tenant) | (threads.c.id > 0)",
        ),
    ),
    mutant(
        "thread-of-another-tenant",
        "The same id is another thread for another tenant.",
        ("test_a_tenant_finds_its_own_threads_alone",),
        ("Threads.list", "(self._core.tenant, *given", "(b'', *given"),
    ),
    mutant(
        "foreign-hosts-served",
        "A request under another host name is refused.",
        ("test_D31_pages_of_other_origins",),
        ("Guard._check_origin", "if (origin is not None and not same) or foreign:", "if False:"),
    ),
    mutant(
        "key-of-another-request",
        "An idempotency key is for one request.",
        ("test_D36_a_key_is_for_one_request",),
        ("Runs._known", "if row.asked != request.as_asked(row).to_dict() or there:", "if False:"),
    ),
    mutant(
        "check-value-not-checked",
        "A flipped bit is found.",
        ("test_a_row_that_was_tampered_with_is_found",),
        ("unseal", "if body[:CHECK_BYTES] != check.digest():", "if False:"),
    ),
    mutant(
        "check-without-context",
        "A row fits its own place alone.",
        ("test_a_row_that_was_tampered_with_is_found",),
        ("unseal", "ormsgpack.packb(context)", "ormsgpack.packb(())"),
        ("seal", "ormsgpack.packb(context)", "ormsgpack.packb(())"),
    ),
    mutant(
        "encrypted-without-context",
        "An encrypted row fits its own place alone.",
        ("test_a_threads_own_texts_are_bound_to_it",),
        ("_Thread.seal", "ormsgpack.packb(context)", "b''"),
        ("_Thread.unseal", "head + ormsgpack.packb(context)", "head"),
    ),
    mutant(
        "one-key-for-all-threads",
        "Each thread has a key of its own.",
        ("test_a_thread_does_not_go_by_another_name",),
        ("_Thread.__init__", "_THREAD + name))", "_THREAD))"),
    ),
    mutant(
        "result-for-any-arguments",
        "An encrypted result is that of its arguments.",
        ("test_a_result_is_that_of_its_arguments",),
        ("place_of", "if seals.hides else", "if False else"),
    ),
    mutant(
        "keys-for-everybody",
        "A file of keys that others may read is refused.",
        ("test_a_file_that_others_may_use_is_refused",),
        ("Keys.from_file", "status.st_mode & _OTHERS", "False"),
    ),
    mutant(
        "every-class-allowed",
        "No class is found by a name from the database.",
        ("test_a_loaded_class_is_not_found_by_its_name",),
        (
            "AllowList.find",
            "found = self._classes.get(key)",
            "module, _, name = key.partition(':')\n"
            "        loaded = sys.modules.get(module)\n"
            "        found = self._classes.get(key) or getattr(loaded, name, None)",
        ),
    ),
    mutant(
        "depth-unbounded",
        "Sub-agents are bounded in depth.",
        ("test_depth_and_number_are_bounded",),
        ("delegation", "if len(path) >= max_depth:", "if False:"),
    ),
    mutant(
        "trusted-without-lock",
        "Files that are trusted at the same moment are all trusted.",
        ("test_files_that_are_trusted_at_once_are_all_trusted",),
        ("trust", "with _alone(folder):", "if True:"),
    ),
)
