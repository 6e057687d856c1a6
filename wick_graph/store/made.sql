-- What a store asks its database, by the names of the statements in Python, as SQLAlchemy makes it:
-- `python -m tests.support.sql` writes it here, so that no process takes the time for it again. No
-- process takes it from here once it or a module that makes it has changed: b7f3ed2b3a8cdb556cb712d618d1c72a

--: sqlite schema
CREATE TABLE blobs (
	rid INTEGER NOT NULL, 
	thread INTEGER NOT NULL, 
	hash BLOB NOT NULL, 
	size BIGINT NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (rid), 
	UNIQUE (thread, hash)
)
;
CREATE TABLE calls (
	rid INTEGER NOT NULL, 
	thread INTEGER NOT NULL, 
	"key" BLOB NOT NULL, 
	name BLOB NOT NULL, 
	args BLOB NOT NULL, 
	state TEXT NOT NULL, 
	epoch BIGINT NOT NULL, 
	tries INTEGER NOT NULL, 
	started FLOAT NOT NULL, 
	ended FLOAT, 
	body BLOB, 
	PRIMARY KEY (rid), 
	UNIQUE (thread, "key")
)
;
CREATE TABLE checkpoints (
	rid INTEGER NOT NULL, 
	thread INTEGER NOT NULL, 
	ns INTEGER NOT NULL, 
	id BLOB NOT NULL, 
	parent BLOB, 
	source TEXT, 
	step BIGINT, 
	run BLOB, 
	hidden SMALLINT NOT NULL, 
	meta BLOB, 
	body BLOB NOT NULL, 
	seq BIGINT, 
	PRIMARY KEY (rid), 
	UNIQUE (thread, ns, id)
)
;
CREATE UNIQUE INDEX checkpoints_head ON checkpoints (thread, ns, seq)
;
CREATE INDEX checkpoints_hidden ON checkpoints (thread) WHERE hidden = 1
;
CREATE UNIQUE INDEX checkpoints_seq ON checkpoints (thread, seq)
;
CREATE TABLE clock (
	rid INTEGER NOT NULL, 
	boot BLOB NOT NULL, 
	wall FLOAT NOT NULL, 
	steady FLOAT NOT NULL, 
	since FLOAT NOT NULL, 
	checksum BIGINT, 
	PRIMARY KEY (rid)
)
;
CREATE TABLE digests (
	rid INTEGER NOT NULL, 
	names BIGINT NOT NULL, 
	checkpoints BIGINT NOT NULL, 
	writes BIGINT NOT NULL, 
	items BIGINT NOT NULL, 
	blobs BIGINT NOT NULL, 
	calls BIGINT NOT NULL, 
	runs BIGINT NOT NULL, 
	moments BIGINT NOT NULL, 
	streams BIGINT NOT NULL, 
	events BIGINT NOT NULL, 
	PRIMARY KEY (rid)
)
;
CREATE TABLE events (
	rid INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (rid)
)
;
CREATE TABLE facts (
	rid INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	tenant BLOB NOT NULL, 
	"key" BLOB NOT NULL, 
	changed FLOAT NOT NULL, 
	body BLOB NOT NULL, 
	checksum BIGINT, 
	UNIQUE (tenant, "key")
)
;
CREATE TABLE inbox (
	rid INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	tenant BLOB NOT NULL, 
	"key" BLOB NOT NULL, 
	chat BLOB NOT NULL, 
	state TEXT NOT NULL, 
	server BLOB NOT NULL, 
	tries INTEGER NOT NULL, 
	received FLOAT NOT NULL, 
	ended FLOAT, 
	body BLOB NOT NULL, 
	checksum BIGINT, 
	UNIQUE (tenant, "key")
)
;
CREATE INDEX inbox_state ON inbox (tenant, state, chat)
;
CREATE TABLE items (
	rid INTEGER NOT NULL, 
	base INTEGER, 
	body BLOB NOT NULL, 
	PRIMARY KEY (rid)
)
;
CREATE TABLE leases (
	thread INTEGER NOT NULL, 
	owner BLOB NOT NULL, 
	epoch BIGINT NOT NULL, 
	until FLOAT NOT NULL, 
	tries INTEGER NOT NULL, 
	head BLOB, 
	checksum BIGINT, 
	PRIMARY KEY (thread)
)
;
CREATE TABLE memories (
	rid INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	tenant BLOB NOT NULL, 
	"key" BLOB NOT NULL, 
	created FLOAT NOT NULL, 
	updated FLOAT NOT NULL, 
	ttl FLOAT, 
	expires FLOAT, 
	body BLOB NOT NULL, 
	vectors BLOB, 
	checksum BIGINT, 
	UNIQUE (tenant, "key")
)
;
CREATE INDEX memories_expires ON memories (tenant, expires)
;
CREATE TABLE moments (
	rid INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (rid)
)
;
CREATE TABLE names (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	thread INTEGER NOT NULL, 
	scope INTEGER NOT NULL, 
	text BLOB NOT NULL, 
	UNIQUE (thread, scope, text)
)
;
CREATE TABLE outbox (
	rid INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	tenant BLOB NOT NULL, 
	"key" BLOB NOT NULL, 
	chat BLOB NOT NULL, 
	turn BLOB, 
	state TEXT NOT NULL, 
	server BLOB NOT NULL, 
	tries INTEGER NOT NULL, 
	due FLOAT NOT NULL, 
	created FLOAT NOT NULL, 
	ended FLOAT, 
	body BLOB NOT NULL, 
	checksum BIGINT, 
	UNIQUE (tenant, "key")
)
;
CREATE INDEX outbox_state ON outbox (tenant, state, chat)
;
CREATE INDEX outbox_turn ON outbox (turn)
;
CREATE TABLE runs (
	rid INTEGER NOT NULL, 
	thread INTEGER NOT NULL, 
	number INTEGER NOT NULL, 
	run BLOB NOT NULL, 
	branch INTEGER NOT NULL, 
	status TEXT NOT NULL, 
	started FLOAT NOT NULL, 
	ended FLOAT, 
	body BLOB NOT NULL, 
	PRIMARY KEY (rid), 
	UNIQUE (thread, number)
)
;
CREATE TABLE streams (
	rid INTEGER NOT NULL, 
	thread INTEGER NOT NULL, 
	run BLOB NOT NULL, 
	status TEXT NOT NULL, 
	started FLOAT NOT NULL, 
	ended FLOAT, 
	first BIGINT NOT NULL, 
	"key" BLOB, 
	body BLOB NOT NULL, 
	tenant BLOB, 
	placed FLOAT, 
	PRIMARY KEY (rid), 
	UNIQUE (thread, run), 
	UNIQUE ("key")
)
;
CREATE TABLE threads (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT, 
	tenant BLOB NOT NULL, 
	thread BLOB NOT NULL, 
	agent BLOB, 
	status TEXT NOT NULL, 
	title BLOB, 
	parent BLOB, 
	pinned SMALLINT NOT NULL, 
	created FLOAT NOT NULL, 
	last_access FLOAT NOT NULL, 
	ttl FLOAT, 
	expires_at FLOAT, 
	generation BIGINT NOT NULL, 
	run BLOB, 
	stopped_because TEXT, 
	last_error BLOB, 
	checksum BIGINT, 
	UNIQUE (tenant, thread)
)
;
CREATE INDEX threads_expiry ON threads (tenant, expires_at)
;
CREATE INDEX threads_recent ON threads (tenant, last_access, id)
;
CREATE TABLE tokens (
	rid INTEGER NOT NULL, 
	tenant BLOB NOT NULL, 
	token BLOB NOT NULL, 
	hash BLOB NOT NULL, 
	name BLOB NOT NULL, 
	scopes TEXT NOT NULL, 
	created FLOAT NOT NULL, 
	expires FLOAT, 
	revoked FLOAT, 
	checksum BIGINT, 
	PRIMARY KEY (rid), 
	UNIQUE (token)
)
;
CREATE TABLE writes (
	rid INTEGER NOT NULL, 
	thread INTEGER NOT NULL, 
	ns INTEGER NOT NULL, 
	checkpoint BLOB NOT NULL, 
	task BLOB NOT NULL, 
	path BLOB NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (rid), 
	UNIQUE (thread, ns, checkpoint, task)
)

--: sqlite digests.CALL_ROW
SELECT calls."key", calls.name, calls.args, calls.state, calls.epoch, calls.tries, calls.started, calls.ended, calls.body 
FROM calls 
WHERE calls.thread = ? AND calls."key" = ?

--: postgresql digests.CALL_ROW
SELECT calls.key, calls.name, calls.args, calls.state, calls.epoch, calls.tries, calls.started, calls.ended, calls.body 
FROM calls 
WHERE calls.thread = %s AND calls.key = %s

--: sqlite digests.RUN_ROW
SELECT runs.number, runs.run, runs.branch, runs.status, runs.started, runs.ended, runs.body 
FROM runs 
WHERE runs.thread = ? AND runs.number = ?

--: postgresql digests.RUN_ROW
SELECT runs.number, runs.run, runs.branch, runs.status, runs.started, runs.ended, runs.body 
FROM runs 
WHERE runs.thread = %s AND runs.number = %s

--: sqlite digests.STREAM_ROW
SELECT streams.run, streams.status, streams.started, streams.ended, streams.first, streams."key", streams.body 
FROM streams 
WHERE streams.thread = ? AND streams.run = ?

--: postgresql digests.STREAM_ROW
SELECT streams.run, streams.status, streams.started, streams.ended, streams.first, streams.key, streams.body 
FROM streams 
WHERE streams.thread = %s AND streams.run = %s

--: sqlite digests._ADD
INSERT INTO digests (rid, names, checkpoints, writes, items, blobs, calls, runs, moments, streams, events) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (rid) DO UPDATE SET names = ((digests.names + excluded.names) & 4611686018427387903), checkpoints = ((digests.checkpoints + excluded.checkpoints) & 4611686018427387903), writes = ((digests.writes + excluded.writes) & 4611686018427387903), items = ((digests.items + excluded.items) & 4611686018427387903), blobs = ((digests.blobs + excluded.blobs) & 4611686018427387903), calls = ((digests.calls + excluded.calls) & 4611686018427387903), runs = ((digests.runs + excluded.runs) & 4611686018427387903), moments = ((digests.moments + excluded.moments) & 4611686018427387903), streams = ((digests.streams + excluded.streams) & 4611686018427387903), events = ((digests.events + excluded.events) & 4611686018427387903)

--: postgresql digests._ADD
INSERT INTO digests (rid, names, checkpoints, writes, items, blobs, calls, runs, moments, streams, events) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (rid) DO UPDATE SET names = ((digests.names + excluded.names) & 4611686018427387903), checkpoints = ((digests.checkpoints + excluded.checkpoints) & 4611686018427387903), writes = ((digests.writes + excluded.writes) & 4611686018427387903), items = ((digests.items + excluded.items) & 4611686018427387903), blobs = ((digests.blobs + excluded.blobs) & 4611686018427387903), calls = ((digests.calls + excluded.calls) & 4611686018427387903), runs = ((digests.runs + excluded.runs) & 4611686018427387903), moments = ((digests.moments + excluded.moments) & 4611686018427387903), streams = ((digests.streams + excluded.streams) & 4611686018427387903), events = ((digests.events + excluded.events) & 4611686018427387903)

--: sqlite statements.ADD_NAME
INSERT INTO names (thread, scope, text) VALUES (?, ?, ?)

--: postgresql statements.ADD_NAME
INSERT INTO names (thread, scope, text) VALUES (%s, %s, %s)

--: sqlite statements.BLOB
SELECT blobs.body 
FROM blobs 
WHERE blobs.thread = ? AND blobs.hash = ?

--: postgresql statements.BLOB
SELECT blobs.body 
FROM blobs 
WHERE blobs.thread = %s AND blobs.hash = %s

--: sqlite statements.BLOBS
SELECT blobs.hash, blobs.size, blobs.body 
FROM blobs 
WHERE blobs.thread = ?

--: postgresql statements.BLOBS
SELECT blobs.hash, blobs.size, blobs.body 
FROM blobs 
WHERE blobs.thread = %s

--: sqlite statements.BLOB_BYTES
SELECT sum(length(blobs.body)) AS sum_1 
FROM blobs 
WHERE blobs.thread = ?

--: postgresql statements.BLOB_BYTES
SELECT sum(length(blobs.body)) AS sum_1 
FROM blobs 
WHERE blobs.thread = %s

--: sqlite statements.CALL
SELECT calls.args, calls.state, calls.tries, calls.body 
FROM calls 
WHERE calls.thread = ? AND calls."key" = ?

--: postgresql statements.CALL
SELECT calls.args, calls.state, calls.tries, calls.body 
FROM calls 
WHERE calls.thread = %s AND calls.key = %s

--: sqlite statements.CALLS_IN
SELECT calls."key", calls.args, calls.state, calls.tries, calls.body 
FROM calls 
WHERE calls.thread = ? AND calls.state = ? ORDER BY calls.rid

--: postgresql statements.CALLS_IN
SELECT calls.key, calls.args, calls.state, calls.tries, calls.body 
FROM calls 
WHERE calls.thread = %s AND calls.state = %s ORDER BY calls.rid

--: sqlite statements.CALL_STATE
UPDATE calls SET state=?, epoch=?, tries=? WHERE calls.thread = ? AND calls."key" = ?

--: postgresql statements.CALL_STATE
UPDATE calls SET state=%s, epoch=%s, tries=%s WHERE calls.thread = %s AND calls.key = %s

--: sqlite statements.CLOSE
UPDATE threads SET status=?1, last_access=?2, expires_at=(?3 + threads.ttl), stopped_because=?4, last_error=?5, checksum=wick_checksum(threads.tenant, threads.thread, threads.agent, ?1, threads.title, threads.parent, threads.pinned, CAST(threads.created AS FLOAT), CAST(?2 AS FLOAT), CAST(threads.ttl AS FLOAT), CAST(?3 + threads.ttl AS FLOAT), threads.generation, threads.run, ?4, ?5) WHERE threads.tenant = ?6 AND threads.thread = ?7

--: postgresql statements.CLOSE
UPDATE threads SET status=%s, last_access=%s, expires_at=(%s + threads.ttl), stopped_because=%s, last_error=%s, checksum=NULL WHERE threads.tenant = %s AND threads.thread = %s

--: sqlite statements.COUNT_STEPS
SELECT count(*) AS count_1 
FROM checkpoints 
WHERE checkpoints.thread = ? AND checkpoints.hidden = ?

--: postgresql statements.COUNT_STEPS
SELECT count(*) AS count_1 
FROM checkpoints 
WHERE checkpoints.thread = %s AND checkpoints.hidden = %s

--: sqlite statements.END_LEASE
UPDATE leases SET until=?1, tries=?2, checksum=wick_checksum(leases.thread, leases.owner, leases.epoch, CAST(?1 AS FLOAT), ?2, leases.head) WHERE leases.thread = ?3 AND leases.epoch = ?4

--: postgresql statements.END_LEASE
UPDATE leases SET until=%s, tries=%s, checksum=NULL WHERE leases.thread = %s AND leases.epoch = %s

--: sqlite statements.END_RUN
UPDATE streams SET status=?, ended=? WHERE streams.thread = ? AND streams.run = ?

--: postgresql statements.END_RUN
UPDATE streams SET status=%s, ended=%s WHERE streams.thread = %s AND streams.run = %s

--: sqlite statements.END_WAITING
UPDATE threads SET status=?1, stopped_because=?2, checksum=wick_checksum(threads.tenant, threads.thread, threads.agent, ?1, threads.title, threads.parent, threads.pinned, CAST(threads.created AS FLOAT), CAST(threads.last_access AS FLOAT), CAST(threads.ttl AS FLOAT), CAST(threads.expires_at AS FLOAT), threads.generation, threads.run, ?2, threads.last_error) WHERE threads.id = ?3 AND threads.status = ?4

--: postgresql statements.END_WAITING
UPDATE threads SET status=%s, stopped_because=%s, checksum=NULL WHERE threads.id = %s AND threads.status = %s

--: sqlite statements.EPOCH
SELECT leases.epoch 
FROM leases 
WHERE leases.thread = ?

--: postgresql statements.EPOCH
SELECT leases.epoch 
FROM leases 
WHERE leases.thread = %s

--: sqlite statements.EVENTS
SELECT events.rid, events.body 
FROM events 
WHERE events.rid BETWEEN ? AND ? ORDER BY events.rid
 LIMIT ? OFFSET ?

--: postgresql statements.EVENTS
SELECT events.rid, events.body 
FROM events 
WHERE events.rid BETWEEN %s AND %s ORDER BY events.rid 
 LIMIT %s OFFSET %s

--: sqlite statements.EXACT
SELECT checkpoints.rid, checkpoints.thread, checkpoints.ns, checkpoints.id, checkpoints.parent, checkpoints.source, checkpoints.step, checkpoints.run, checkpoints.meta, checkpoints.body, checkpoints.seq 
FROM checkpoints 
WHERE checkpoints.thread = ? AND checkpoints.ns = ? AND checkpoints.id = ? AND checkpoints.hidden <= ?

--: postgresql statements.EXACT
SELECT checkpoints.rid, checkpoints.thread, checkpoints.ns, checkpoints.id, checkpoints.parent, checkpoints.source, checkpoints.step, checkpoints.run, checkpoints.meta, checkpoints.body, checkpoints.seq 
FROM checkpoints 
WHERE checkpoints.thread = %s AND checkpoints.ns = %s AND checkpoints.id = %s AND checkpoints.hidden <= %s

--: sqlite statements.GENERATION
UPDATE threads SET generation=(threads.generation + ?1), checksum=wick_checksum(threads.tenant, threads.thread, threads.agent, threads.status, threads.title, threads.parent, threads.pinned, CAST(threads.created AS FLOAT), CAST(threads.last_access AS FLOAT), CAST(threads.ttl AS FLOAT), CAST(threads.expires_at AS FLOAT), threads.generation + ?1, threads.run, threads.stopped_because, threads.last_error) WHERE threads.id = ?2

--: postgresql statements.GENERATION
UPDATE threads SET generation=(threads.generation + %s), checksum=NULL WHERE threads.id = %s

--: sqlite statements.HEAD
SELECT checkpoints.id, checkpoints.seq 
FROM checkpoints 
WHERE checkpoints.thread = ? AND checkpoints.ns = ? AND checkpoints.hidden = ? ORDER BY checkpoints.seq DESC
 LIMIT ? OFFSET ?

--: postgresql statements.HEAD
SELECT checkpoints.id, checkpoints.seq 
FROM checkpoints 
WHERE checkpoints.thread = %s AND checkpoints.ns = %s AND checkpoints.hidden = %s ORDER BY checkpoints.seq DESC 
 LIMIT %s OFFSET %s

--: sqlite statements.HEAD_OF_ALL
SELECT (SELECT checkpoints.id 
FROM checkpoints 
WHERE checkpoints.thread = ? ORDER BY checkpoints.seq DESC
 LIMIT ? OFFSET ?) AS anon_1

--: postgresql statements.HEAD_OF_ALL
SELECT (SELECT checkpoints.id 
FROM checkpoints 
WHERE checkpoints.thread = %s ORDER BY checkpoints.seq DESC 
 LIMIT %s OFFSET %s) AS anon_1

--: sqlite statements.HOLDER
SELECT leases.owner, leases.until 
FROM leases 
WHERE leases.thread = ?

--: postgresql statements.HOLDER
SELECT leases.owner, leases.until 
FROM leases 
WHERE leases.thread = %s

--: sqlite statements.INFO
SELECT threads.thread, threads.agent, threads.status, threads.title, threads.parent, threads.created, threads.last_access, threads.expires_at, threads.pinned, threads.stopped_because, threads.last_error, (SELECT count(*) AS count_1 
FROM checkpoints 
WHERE checkpoints.thread = threads.id) - (SELECT count(*) AS count_1 
FROM checkpoints 
WHERE checkpoints.thread = threads.id AND checkpoints.hidden = 1) AS anon_1 
FROM threads 
WHERE threads.tenant = ? AND threads.thread = ?

--: postgresql statements.INFO
SELECT threads.thread, threads.agent, threads.status, threads.title, threads.parent, threads.created, threads.last_access, threads.expires_at, threads.pinned, threads.stopped_because, threads.last_error, (SELECT count(*) AS count_1 
FROM checkpoints 
WHERE checkpoints.thread = threads.id) - (SELECT count(*) AS count_1 
FROM checkpoints 
WHERE checkpoints.thread = threads.id AND checkpoints.hidden = 1) AS anon_1 
FROM threads 
WHERE threads.tenant = %s AND threads.thread = %s

--: sqlite statements.ITEMS
SELECT items.rid, items.base, items.body, based.body AS body_1 
FROM items LEFT OUTER JOIN items AS based ON based.rid = items.base 
WHERE items.rid BETWEEN ? AND ? ORDER BY items.rid

--: postgresql statements.ITEMS
SELECT items.rid, items.base, items.body, based.body AS body_1 
FROM items LEFT OUTER JOIN items AS based ON based.rid = items.base 
WHERE items.rid BETWEEN %s AND %s ORDER BY items.rid

--: sqlite statements.JOURNAL_RUNS
SELECT runs.number, runs.run, runs.branch, runs.status, runs.started, runs.ended, runs.body 
FROM runs 
WHERE runs.thread = ? ORDER BY runs.number

--: postgresql statements.JOURNAL_RUNS
SELECT runs.number, runs.run, runs.branch, runs.status, runs.started, runs.ended, runs.body 
FROM runs 
WHERE runs.thread = %s ORDER BY runs.number

--: sqlite statements.LAST_ACCESS
SELECT max(threads.last_access) AS max_1 
FROM threads

--: postgresql statements.LAST_ACCESS
SELECT max(threads.last_access) AS max_1 
FROM threads

--: sqlite statements.LAST_EVENT
SELECT max(events.rid) AS max_1 
FROM events 
WHERE events.rid BETWEEN ? AND ?

--: postgresql statements.LAST_EVENT
SELECT max(events.rid) AS max_1 
FROM events 
WHERE events.rid BETWEEN %s AND %s

--: sqlite statements.LAST_ITEM
SELECT max(items.rid) AS max_1 
FROM items 
WHERE items.rid BETWEEN ? AND ?

--: postgresql statements.LAST_ITEM
SELECT max(items.rid) AS max_1 
FROM items 
WHERE items.rid BETWEEN %s AND %s

--: sqlite statements.LAST_OF_RUN
SELECT (SELECT checkpoints.id 
FROM checkpoints 
WHERE checkpoints.thread = ? AND checkpoints.run = ? ORDER BY checkpoints.seq DESC
 LIMIT ? OFFSET ?) AS anon_1

--: postgresql statements.LAST_OF_RUN
SELECT (SELECT checkpoints.id 
FROM checkpoints 
WHERE checkpoints.thread = %s AND checkpoints.run = %s ORDER BY checkpoints.seq DESC 
 LIMIT %s OFFSET %s) AS anon_1

--: sqlite statements.LAST_PAGE
SELECT max(moments.rid) AS max_1 
FROM moments 
WHERE moments.rid BETWEEN ? AND ?

--: postgresql statements.LAST_PAGE
SELECT max(moments.rid) AS max_1 
FROM moments 
WHERE moments.rid BETWEEN %s AND %s

--: sqlite statements.LAST_RUN
SELECT runs.number, runs.run, runs.branch, runs.status, runs.started, runs.ended, runs.body 
FROM runs 
WHERE runs.thread = ? ORDER BY runs.number DESC
 LIMIT ? OFFSET ?

--: postgresql statements.LAST_RUN
SELECT runs.number, runs.run, runs.branch, runs.status, runs.started, runs.ended, runs.body 
FROM runs 
WHERE runs.thread = %s ORDER BY runs.number DESC 
 LIMIT %s OFFSET %s

--: sqlite statements.LAST_SEQ
SELECT max(checkpoints.seq) AS max_1 
FROM checkpoints 
WHERE checkpoints.thread = ?

--: postgresql statements.LAST_SEQ
SELECT max(checkpoints.seq) AS max_1 
FROM checkpoints 
WHERE checkpoints.thread = %s

--: sqlite statements.LAST_USE
SELECT clock.boot, clock.wall, clock.steady, clock.since 
FROM clock 
WHERE clock.rid = ?

--: postgresql statements.LAST_USE
SELECT clock.boot, clock.wall, clock.steady, clock.since 
FROM clock 
WHERE clock.rid = %s

--: sqlite statements.LATEST
SELECT checkpoints.rid, checkpoints.thread, checkpoints.ns, checkpoints.id, checkpoints.parent, checkpoints.source, checkpoints.step, checkpoints.run, checkpoints.meta, checkpoints.body, checkpoints.seq 
FROM checkpoints 
WHERE checkpoints.thread = ? AND checkpoints.ns = ? AND checkpoints.hidden = ? ORDER BY checkpoints.seq DESC
 LIMIT ? OFFSET ?

--: postgresql statements.LATEST
SELECT checkpoints.rid, checkpoints.thread, checkpoints.ns, checkpoints.id, checkpoints.parent, checkpoints.source, checkpoints.step, checkpoints.run, checkpoints.meta, checkpoints.body, checkpoints.seq 
FROM checkpoints 
WHERE checkpoints.thread = %s AND checkpoints.ns = %s AND checkpoints.hidden = %s ORDER BY checkpoints.seq DESC 
 LIMIT %s OFFSET %s

--: sqlite statements.LEASE
SELECT leases.owner, leases.epoch, leases.until, leases.tries, leases.head 
FROM leases 
WHERE leases.thread = ?

--: postgresql statements.LEASE
SELECT leases.owner, leases.epoch, leases.until, leases.tries, leases.head 
FROM leases 
WHERE leases.thread = %s

--: sqlite statements.LIST
SELECT threads.thread, threads.agent, threads.status, threads.title, threads.parent, threads.created, threads.last_access, threads.expires_at, threads.pinned, threads.stopped_because, threads.last_error, (SELECT count(*) AS count_1 
FROM checkpoints 
WHERE checkpoints.thread = threads.id) - (SELECT count(*) AS count_1 
FROM checkpoints 
WHERE checkpoints.thread = threads.id AND checkpoints.hidden = 1) AS anon_1 
FROM threads 
WHERE threads.tenant = ? AND threads.last_access < ? ORDER BY threads.last_access DESC, threads.id DESC
 LIMIT ? OFFSET 0

--: postgresql statements.LIST
SELECT threads.thread, threads.agent, threads.status, threads.title, threads.parent, threads.created, threads.last_access, threads.expires_at, threads.pinned, threads.stopped_because, threads.last_error, (SELECT count(*) AS count_1 
FROM checkpoints 
WHERE checkpoints.thread = threads.id) - (SELECT count(*) AS count_1 
FROM checkpoints 
WHERE checkpoints.thread = threads.id AND checkpoints.hidden = 1) AS anon_1 
FROM threads 
WHERE threads.tenant = %s AND threads.last_access < %s ORDER BY threads.last_access DESC, threads.id DESC 
 LIMIT %s OFFSET 0

--: sqlite statements.LOCK_NUMBER
SELECT threads.id 
FROM threads 
WHERE threads.id = ?

--: postgresql statements.LOCK_NUMBER
SELECT threads.id 
FROM threads 
WHERE threads.id = %s FOR UPDATE

--: sqlite statements.NAMES
SELECT names.id, names.scope, names.text 
FROM names 
WHERE names.thread = ?

--: postgresql statements.NAMES
SELECT names.id, names.scope, names.text 
FROM names 
WHERE names.thread = %s

--: sqlite statements.NAMESPACE
SELECT checkpoints.ns 
FROM checkpoints 
WHERE checkpoints.thread = ? AND checkpoints.id = ?

--: postgresql statements.NAMESPACE
SELECT checkpoints.ns 
FROM checkpoints 
WHERE checkpoints.thread = %s AND checkpoints.id = %s

--: sqlite statements.NEW_BLOB
INSERT INTO blobs (thread, hash, size, body) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING

--: postgresql statements.NEW_BLOB
INSERT INTO blobs (thread, hash, size, body) VALUES (%s, %s, %s, %s) ON CONFLICT DO NOTHING

--: sqlite statements.NEW_ITEM
INSERT INTO items (rid, base, body) VALUES (?, ?, ?)

--: postgresql statements.NEW_ITEM
INSERT INTO items (rid, base, body) VALUES (%s, %s, %s)

--: sqlite statements.NEW_NAME
INSERT INTO names (thread, scope, text) VALUES (?, ?, ?) RETURNING id

--: postgresql statements.NEW_NAME
INSERT INTO names (thread, scope, text) VALUES (%s, %s, %s) RETURNING names.id

--: sqlite statements.NEW_THREAD
INSERT INTO threads (tenant, thread, status, pinned, created, last_access, ttl, expires_at, generation, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, wick_checksum(?1, ?2, NULL, ?3, NULL, NULL, ?4, CAST(?5 AS FLOAT), CAST(?6 AS FLOAT), CAST(?7 AS FLOAT), CAST(?8 AS FLOAT), ?9, NULL, NULL, NULL)) RETURNING id

--: postgresql statements.NEW_THREAD
INSERT INTO threads (tenant, thread, status, pinned, created, last_access, ttl, expires_at, generation, checksum) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, NULL) RETURNING threads.id

--: sqlite statements.NEW_THREAD_OR_NONE
INSERT INTO threads (tenant, thread, status, pinned, created, last_access, ttl, expires_at, generation, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, wick_checksum(?1, ?2, NULL, ?3, NULL, NULL, ?4, CAST(?5 AS FLOAT), CAST(?6 AS FLOAT), CAST(?7 AS FLOAT), CAST(?8 AS FLOAT), ?9, NULL, NULL, NULL)) ON CONFLICT DO NOTHING RETURNING id

--: postgresql statements.NEW_THREAD_OR_NONE
INSERT INTO threads (tenant, thread, status, pinned, created, last_access, ttl, expires_at, generation, checksum) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, NULL) ON CONFLICT DO NOTHING RETURNING threads.id

--: sqlite statements.NEW_WRITES
INSERT INTO writes (thread, ns, checkpoint, task, path, body) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING

--: postgresql statements.NEW_WRITES
INSERT INTO writes (thread, ns, checkpoint, task, path, body) VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT DO NOTHING

--: sqlite statements.NOTE_USE
INSERT INTO clock (rid, boot, wall, steady, since, checksum) VALUES (?1, ?2, ?3, ?4, ?5, wick_checksum(?2, CAST(?3 AS FLOAT), CAST(?4 AS FLOAT), CAST(?5 AS FLOAT))) ON CONFLICT (rid) DO UPDATE SET boot = excluded.boot, wall = excluded.wall, steady = excluded.steady, since = excluded.since, checksum = excluded.checksum

--: postgresql statements.NOTE_USE
INSERT INTO clock (rid, boot, wall, steady, since, checksum) VALUES (%s, %s, %s, %s, %s, NULL) ON CONFLICT (rid) DO UPDATE SET boot = excluded.boot, wall = excluded.wall, steady = excluded.steady, since = excluded.since, checksum = excluded.checksum

--: sqlite statements.OPEN
UPDATE threads SET agent=?1, status=?2, title=coalesce(threads.title, ?3), last_access=?4, ttl=?5, expires_at=?6, run=?7, stopped_because=NULL, last_error=NULL, checksum=wick_checksum(threads.tenant, threads.thread, ?1, ?2, coalesce(threads.title, ?3), threads.parent, threads.pinned, CAST(threads.created AS FLOAT), CAST(?4 AS FLOAT), CAST(?5 AS FLOAT), CAST(?6 AS FLOAT), threads.generation, ?7, NULL, NULL) WHERE threads.tenant = ?8 AND threads.thread = ?9

--: postgresql statements.OPEN
UPDATE threads SET agent=%s, status=%s, title=coalesce(threads.title, %s), last_access=%s, ttl=%s, expires_at=%s, run=%s, stopped_because=NULL, last_error=NULL, checksum=NULL WHERE threads.tenant = %s AND threads.thread = %s

--: sqlite statements.PAGES_FROM
SELECT moments.rid, moments.body 
FROM moments 
WHERE moments.rid BETWEEN ? AND ? ORDER BY moments.rid
 LIMIT ? OFFSET ?

--: postgresql statements.PAGES_FROM
SELECT moments.rid, moments.body 
FROM moments 
WHERE moments.rid BETWEEN %s AND %s ORDER BY moments.rid 
 LIMIT %s OFFSET %s

--: sqlite statements.PAGES_TO
SELECT moments.rid, moments.body 
FROM moments 
WHERE moments.rid BETWEEN ? AND ? ORDER BY moments.rid DESC
 LIMIT ? OFFSET ?

--: postgresql statements.PAGES_TO
SELECT moments.rid, moments.body 
FROM moments 
WHERE moments.rid BETWEEN %s AND %s ORDER BY moments.rid DESC 
 LIMIT %s OFFSET %s

--: sqlite statements.PAGE_BYTES
SELECT sum(length(moments.body)) AS sum_1 
FROM moments 
WHERE moments.rid BETWEEN ? AND ?

--: postgresql statements.PAGE_BYTES
SELECT sum(length(moments.body)) AS sum_1 
FROM moments 
WHERE moments.rid BETWEEN %s AND %s

--: sqlite statements.PARENT
SELECT checkpoints.parent 
FROM checkpoints 
WHERE checkpoints.thread = ? AND checkpoints.id = ?

--: postgresql statements.PARENT
SELECT checkpoints.parent 
FROM checkpoints 
WHERE checkpoints.thread = %s AND checkpoints.id = %s

--: sqlite statements.PUT
INSERT INTO checkpoints (thread, ns, id, parent, source, step, run, hidden, meta, body, seq) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (thread, ns, id) DO NOTHING

--: postgresql statements.PUT
INSERT INTO checkpoints (thread, ns, id, parent, source, step, run, hidden, meta, body, seq) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (thread, ns, id) DO NOTHING

--: sqlite statements.PUT_BODY
UPDATE streams SET body=? WHERE streams.thread = ? AND streams.run = ?

--: postgresql statements.PUT_BODY
UPDATE streams SET body=%s WHERE streams.thread = %s AND streams.run = %s

--: sqlite statements.PUT_CALL
INSERT INTO calls (thread, "key", name, args, state, epoch, tries, started, ended, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (thread, "key") DO UPDATE SET name = excluded.name, args = excluded.args, state = excluded.state, epoch = excluded.epoch, tries = excluded.tries, started = excluded.started, ended = excluded.ended, body = excluded.body

--: postgresql statements.PUT_CALL
INSERT INTO calls (thread, key, name, args, state, epoch, tries, started, ended, body) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (thread, key) DO UPDATE SET name = excluded.name, args = excluded.args, state = excluded.state, epoch = excluded.epoch, tries = excluded.tries, started = excluded.started, ended = excluded.ended, body = excluded.body

--: sqlite statements.PUT_EVENTS
INSERT INTO events (rid, body) VALUES (?, ?)

--: postgresql statements.PUT_EVENTS
INSERT INTO events (rid, body) VALUES (%s, %s)

--: sqlite statements.PUT_JOURNAL_RUN
INSERT INTO runs (thread, number, run, branch, status, started, ended, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (thread, number) DO UPDATE SET branch = excluded.branch, status = excluded.status, ended = excluded.ended, body = excluded.body

--: postgresql statements.PUT_JOURNAL_RUN
INSERT INTO runs (thread, number, run, branch, status, started, ended, body) VALUES (%s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (thread, number) DO UPDATE SET branch = excluded.branch, status = excluded.status, ended = excluded.ended, body = excluded.body

--: sqlite statements.PUT_LEASE
INSERT INTO leases (thread, owner, epoch, until, tries, head, checksum) VALUES (?1, ?2, ?3, ?4, ?5, ?6, wick_checksum(?1, ?2, ?3, CAST(?4 AS FLOAT), ?5, ?6)) ON CONFLICT (thread) DO UPDATE SET owner = excluded.owner, epoch = excluded.epoch, until = excluded.until, tries = excluded.tries, head = excluded.head, checksum = excluded.checksum

--: postgresql statements.PUT_LEASE
INSERT INTO leases (thread, owner, epoch, until, tries, head, checksum) VALUES (%s, %s, %s, %s, %s, %s, NULL) ON CONFLICT (thread) DO UPDATE SET owner = excluded.owner, epoch = excluded.epoch, until = excluded.until, tries = excluded.tries, head = excluded.head, checksum = excluded.checksum

--: sqlite statements.PUT_PAGE
INSERT INTO moments (rid, body) VALUES (?, ?) ON CONFLICT DO NOTHING

--: postgresql statements.PUT_PAGE
INSERT INTO moments (rid, body) VALUES (%s, %s) ON CONFLICT DO NOTHING

--: sqlite statements.PUT_SERVER_RUN
INSERT INTO streams (thread, run, status, started, first, "key", body, tenant, placed) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)

--: postgresql statements.PUT_SERVER_RUN
INSERT INTO streams (thread, run, status, started, first, key, body, tenant, placed) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)

--: sqlite statements.PUT_WRITES
INSERT INTO writes (thread, ns, checkpoint, task, path, body) VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (thread, ns, checkpoint, task) DO UPDATE SET path = excluded.path, body = excluded.body

--: postgresql statements.PUT_WRITES
INSERT INTO writes (thread, ns, checkpoint, task, path, body) VALUES (%s, %s, %s, %s, %s, %s) ON CONFLICT (thread, ns, checkpoint, task) DO UPDATE SET path = excluded.path, body = excluded.body

--: sqlite statements.REPLACE
INSERT INTO checkpoints (thread, ns, id, parent, source, step, run, hidden, meta, body, seq) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (thread, ns, id) DO UPDATE SET parent = excluded.parent, source = excluded.source, step = excluded.step, run = excluded.run, hidden = excluded.hidden, meta = excluded.meta, body = excluded.body

--: postgresql statements.REPLACE
INSERT INTO checkpoints (thread, ns, id, parent, source, step, run, hidden, meta, body, seq) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s) ON CONFLICT (thread, ns, id) DO UPDATE SET parent = excluded.parent, source = excluded.source, step = excluded.step, run = excluded.run, hidden = excluded.hidden, meta = excluded.meta, body = excluded.body

--: sqlite statements.RUN
SELECT threads.thread, streams.run, streams.status, streams.started, streams.ended, streams.first, streams.thread AS thread_1, streams.body 
FROM streams JOIN threads ON threads.id = streams.thread 
WHERE threads.tenant = ? AND streams.run = ?

--: postgresql statements.RUN
SELECT threads.thread, streams.run, streams.status, streams.started, streams.ended, streams.first, streams.thread AS thread_1, streams.body 
FROM streams JOIN threads ON threads.id = streams.thread 
WHERE threads.tenant = %s AND streams.run = %s

--: sqlite statements.RUNS_IN
SELECT threads.thread, streams.run, streams.status, streams.started, streams.ended, streams.first, streams.thread AS thread_1, streams.body 
FROM streams JOIN threads ON threads.id = streams.thread 
WHERE threads.tenant = ? AND streams.thread = ? AND streams.status = ?

--: postgresql statements.RUNS_IN
SELECT threads.thread, streams.run, streams.status, streams.started, streams.ended, streams.first, streams.thread AS thread_1, streams.body 
FROM streams JOIN threads ON threads.id = streams.thread 
WHERE threads.tenant = %s AND streams.thread = %s AND streams.status = %s

--: sqlite statements.RUN_OF_KEY
SELECT threads.thread, streams.run, streams.status, streams.started, streams.ended, streams.first, streams.thread AS thread_1, streams.body 
FROM streams JOIN threads ON threads.id = streams.thread 
WHERE threads.tenant = ? AND streams."key" = ?

--: postgresql statements.RUN_OF_KEY
SELECT threads.thread, streams.run, streams.status, streams.started, streams.ended, streams.first, streams.thread AS thread_1, streams.body 
FROM streams JOIN threads ON threads.id = streams.thread 
WHERE threads.tenant = %s AND streams.key = %s

--: sqlite statements.SEEN
UPDATE threads SET last_access=?1, expires_at=?2, checksum=wick_checksum(threads.tenant, threads.thread, threads.agent, threads.status, threads.title, threads.parent, threads.pinned, CAST(threads.created AS FLOAT), CAST(?1 AS FLOAT), CAST(threads.ttl AS FLOAT), CAST(?2 AS FLOAT), threads.generation, threads.run, threads.stopped_because, threads.last_error) WHERE threads.id = ?3

--: postgresql statements.SEEN
UPDATE threads SET last_access=%s, expires_at=%s, checksum=NULL WHERE threads.id = %s

--: sqlite statements.SEQ
SELECT checkpoints.seq 
FROM checkpoints 
WHERE checkpoints.thread = ? AND checkpoints.ns = ? AND checkpoints.id = ?

--: postgresql statements.SEQ
SELECT checkpoints.seq 
FROM checkpoints 
WHERE checkpoints.thread = %s AND checkpoints.ns = %s AND checkpoints.id = %s

--: sqlite statements.SPARE_LEASE
UPDATE leases SET tries=?1, checksum=wick_checksum(leases.thread, leases.owner, leases.epoch, CAST(leases.until AS FLOAT), ?1, leases.head) WHERE leases.thread = ?2 AND leases.epoch = ?3 AND leases.until > 0

--: postgresql statements.SPARE_LEASE
UPDATE leases SET tries=%s, checksum=NULL WHERE leases.thread = %s AND leases.epoch = %s AND leases.until > 0

--: sqlite statements.STATE
SELECT streams.thread, streams.status 
FROM streams JOIN threads ON threads.id = streams.thread 
WHERE threads.tenant = ? AND threads.thread = ? AND streams.run = ?

--: postgresql statements.STATE
SELECT streams.thread, streams.status 
FROM streams JOIN threads ON threads.id = streams.thread 
WHERE threads.tenant = %s AND threads.thread = %s AND streams.run = %s

--: sqlite statements.STRAY
SELECT writes.rid 
FROM writes 
WHERE writes.thread = ? AND writes.ns = ? AND writes.checkpoint = ? AND NOT (EXISTS (SELECT * 
FROM checkpoints 
WHERE checkpoints.thread = writes.thread AND checkpoints.ns = writes.ns AND checkpoints.id = writes.checkpoint))

--: postgresql statements.STRAY
SELECT writes.rid 
FROM writes 
WHERE writes.thread = %s AND writes.ns = %s AND writes.checkpoint = %s AND NOT (EXISTS (SELECT * 
FROM checkpoints 
WHERE checkpoints.thread = writes.thread AND checkpoints.ns = writes.ns AND checkpoints.id = writes.checkpoint))

--: sqlite statements.TASK
SELECT writes.path, writes.body 
FROM writes 
WHERE writes.thread = ? AND writes.ns = ? AND writes.checkpoint = ? AND writes.task = ?

--: postgresql statements.TASK
SELECT writes.path, writes.body 
FROM writes 
WHERE writes.thread = %s AND writes.ns = %s AND writes.checkpoint = %s AND writes.task = %s

--: sqlite statements.THREAD
SELECT threads.id, threads.generation, threads.last_access, threads.ttl, leases.epoch 
FROM threads LEFT OUTER JOIN leases ON leases.thread = threads.id 
WHERE threads.tenant = ? AND threads.thread = ?

--: postgresql statements.THREAD
SELECT threads.id, threads.generation, threads.last_access, threads.ttl, leases.epoch 
FROM threads LEFT OUTER JOIN leases ON leases.thread = threads.id 
WHERE threads.tenant = %s AND threads.thread = %s

--: sqlite statements.THREADS
SELECT count(*) AS count_1 
FROM threads 
WHERE threads.tenant = ?

--: postgresql statements.THREADS
SELECT count(*) AS count_1 
FROM threads 
WHERE threads.tenant = %s

--: sqlite statements.TOKEN
SELECT tokens.token, tokens.tenant, tokens.name, tokens.scopes, tokens.created, tokens.expires, tokens.revoked, tokens.hash 
FROM tokens 
WHERE tokens.token = ?

--: postgresql statements.TOKEN
SELECT tokens.token, tokens.tenant, tokens.name, tokens.scopes, tokens.created, tokens.expires, tokens.revoked, tokens.hash 
FROM tokens 
WHERE tokens.token = %s

--: sqlite statements.TOUCH
UPDATE threads SET last_access=?1, expires_at=(?2 + threads.ttl), checksum=wick_checksum(threads.tenant, threads.thread, threads.agent, threads.status, threads.title, threads.parent, threads.pinned, CAST(threads.created AS FLOAT), CAST(?1 AS FLOAT), CAST(threads.ttl AS FLOAT), CAST(?2 + threads.ttl AS FLOAT), threads.generation, threads.run, threads.stopped_because, threads.last_error) WHERE threads.tenant = ?3 AND threads.thread = ?4

--: postgresql statements.TOUCH
UPDATE threads SET last_access=%s, expires_at=(%s + threads.ttl), checksum=NULL WHERE threads.tenant = %s AND threads.thread = %s

--: sqlite statements.WRITES
SELECT writes.task, writes.path, writes.body 
FROM writes 
WHERE writes.thread = ? AND writes.ns = ? AND writes.checkpoint = ?

--: postgresql statements.WRITES
SELECT writes.task, writes.path, writes.body 
FROM writes 
WHERE writes.thread = %s AND writes.ns = %s AND writes.checkpoint = %s
