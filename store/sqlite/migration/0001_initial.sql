-- Numbers called ordinal count in the order of creation. Times are seconds
-- since the Unix epoch.

-- What there is one of.
CREATE TABLE state (
	id INTEGER PRIMARY KEY CHECK (id = 1),
	identity TEXT NOT NULL,           -- of this file; a part of the ids of events
	boot INTEGER NOT NULL,            -- how often the file was opened to be served
	clean INTEGER NOT NULL,           -- the last one of these has ended in order
	queue_closed INTEGER NOT NULL,
	latest_resources TEXT,
	start_ordered INTEGER NOT NULL,   -- start times follow the ordinals of rollouts
	last_start REAL NOT NULL,         -- the latest start time of a rollout
	last_rollout INTEGER NOT NULL,    -- the last ordinals given
	last_attempt INTEGER NOT NULL,
	last_span INTEGER NOT NULL,
	first_place INTEGER NOT NULL,     -- the places of the queue that were given
	last_place INTEGER NOT NULL,
	last_event INTEGER NOT NULL,
	rollouts INTEGER NOT NULL,        -- how many there are
	attempts INTEGER NOT NULL,
	spans INTEGER NOT NULL,
	span_bytes INTEGER NOT NULL,      -- of their documents as they were sent
	resources INTEGER NOT NULL,
	workers INTEGER NOT NULL,
	ghosts INTEGER NOT NULL
);

-- The boots that did not end in order. They may have handed out sequence ids
-- beyond those that are written down.
CREATE TABLE crashes (boot INTEGER PRIMARY KEY);

CREATE TABLE rollouts (
	ordinal INTEGER PRIMARY KEY,
	rollout_id TEXT NOT NULL UNIQUE,
	start_time REAL NOT NULL,
	end_time REAL,
	mode TEXT,
	resources_id TEXT,
	status TEXT NOT NULL,
	place INTEGER,                    -- in the queue
	latest INTEGER,                   -- the latest attempt's ordinal
	sequence INTEGER,                 -- the last sequence id, which
	boot INTEGER NOT NULL,            -- that boot may have gone beyond; 0 is none
	holds INTEGER NOT NULL,           -- there are spans
	evicted INTEGER NOT NULL
);
CREATE INDEX rollouts_place ON rollouts (place) WHERE place IS NOT NULL;
CREATE INDEX rollouts_status ON rollouts (status);
CREATE INDEX rollouts_start ON rollouts (start_time);
CREATE INDEX rollouts_evictable ON rollouts (end_time) WHERE holds = 1 AND status IN ('failed', 'succeeded', 'cancelled');

-- What of a rollout seldom changes, apart from what often does.
CREATE TABLE bodies (
	rollout INTEGER PRIMARY KEY,
	input BLOB,
	config BLOB NOT NULL,
	metadata BLOB,
	crc INTEGER NOT NULL
);

-- How many rollouts there are of each ordinal / 1024, to find a page by.
CREATE TABLE rollout_buckets (
	bucket INTEGER PRIMARY KEY,
	rollouts INTEGER NOT NULL
);

CREATE TABLE attempts (
	ordinal INTEGER PRIMARY KEY,
	rollout INTEGER NOT NULL,
	attempt_id TEXT NOT NULL,
	sequence_id INTEGER NOT NULL,
	start_time REAL NOT NULL,
	end_time REAL,
	status TEXT NOT NULL,
	worker_id TEXT,
	last_heartbeat_time REAL,
	metadata BLOB,
	stream INTEGER NOT NULL,          -- what its spans are found by
	spans INTEGER NOT NULL,           -- how many there are
	span_bytes INTEGER NOT NULL
);
CREATE UNIQUE INDEX attempts_id ON attempts (rollout, attempt_id);
CREATE INDEX attempts_live ON attempts (ordinal) WHERE status IN ('preparing', 'running');

CREATE TABLE spans (
	ordinal INTEGER PRIMARY KEY,
	stream INTEGER NOT NULL,
	sequence_id INTEGER NOT NULL,
	start_time REAL NOT NULL,         -- infinite for null, as it is sorted
	end_time REAL NOT NULL,
	span_id TEXT NOT NULL,
	trace_id TEXT NOT NULL,
	parent_id TEXT NOT NULL,
	name TEXT NOT NULL,
	codec INTEGER NOT NULL,           -- of the payload: 0 as it is, 1 zstd
	size INTEGER NOT NULL,            -- of the document
	crc INTEGER NOT NULL,             -- CRC-32C of the document
	payload BLOB NOT NULL
);
CREATE INDEX spans_sequence ON spans (stream, sequence_id, start_time, end_time);
CREATE UNIQUE INDEX spans_id ON spans (stream, span_id);

-- How many spans a stream has of each sequence id / 1024, to find a page by;
-- bucket 0 has the rest of them.
CREATE TABLE span_buckets (
	stream INTEGER NOT NULL,
	bucket INTEGER NOT NULL,
	spans INTEGER NOT NULL,
	PRIMARY KEY (stream, bucket)
) WITHOUT ROWID;

-- Streams that no attempt has any more. Their spans are removed bit by bit.
CREATE TABLE garbage (stream INTEGER PRIMARY KEY);

-- Sequence ids of rollouts that do not exist.
CREATE TABLE ghosts (
	rollout_id TEXT PRIMARY KEY,
	sequence INTEGER NOT NULL
) WITHOUT ROWID;

CREATE TABLE workers (
	ordinal INTEGER PRIMARY KEY,
	worker_id TEXT NOT NULL UNIQUE,
	status TEXT NOT NULL,
	heartbeat_stats BLOB,
	last_heartbeat_time REAL,
	last_dequeue_time REAL,
	last_busy_time REAL,
	last_idle_time REAL,
	current_rollout_id TEXT,
	current_attempt_id TEXT
);

CREATE TABLE resources (
	ordinal INTEGER PRIMARY KEY,
	resources_id TEXT NOT NULL UNIQUE,
	create_time REAL NOT NULL,
	update_time REAL NOT NULL,
	version INTEGER NOT NULL,
	document BLOB NOT NULL,
	crc INTEGER NOT NULL
);

-- The events of one commit are one row.
CREATE TABLE events (
	first INTEGER PRIMARY KEY,        -- the number of the first
	count INTEGER NOT NULL,
	time REAL NOT NULL,
	events BLOB NOT NULL              -- a JSON array
);

CREATE TABLE keys (
	ordinal INTEGER PRIMARY KEY,
	scope TEXT NOT NULL UNIQUE,
	fingerprint TEXT NOT NULL,
	create_time REAL NOT NULL,
	made BLOB NOT NULL,               -- a JSON array of pairs
	resources_id TEXT NOT NULL
);
