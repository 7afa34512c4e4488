-- Everything that a store keeps. Texts compare by their bytes, whatever the
-- database's collation; documents are the bytes that came in.
--
-- There are no foreign keys: whoever writes holds the lock of the rollout, and a
-- check of every row would cost more than the write.

-- What there is one of.
CREATE TABLE store (
	one              boolean PRIMARY KEY DEFAULT true CHECK (one),
	identity         text    NOT NULL,                       -- of the database, in the ids of events
	queue_closed     boolean NOT NULL DEFAULT false,
	latest_resources text    COLLATE "C",
	event_floor      bigint  NOT NULL DEFAULT 0              -- events up to this number are forgotten
);
INSERT INTO store (identity) VALUES (left(replace(gen_random_uuid()::text, '-', ''), 12));

-- The number of the newest event. Whoever writes events holds this row until its
-- commit, so that numbers become visible in their order.
CREATE TABLE event_counter (
	one  boolean PRIMARY KEY DEFAULT true CHECK (one),
	last bigint  NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO event_counter DEFAULT VALUES;

-- A batch takes one number and adds the index of each rollout that it queues.
CREATE SEQUENCE queue_back  INCREMENT  1048576 MINVALUE 0 START 0;
CREATE SEQUENCE queue_front INCREMENT -1048576 MAXVALUE -1048576 START -1048576;

CREATE TABLE rollouts (
	ordinal      bigint  GENERATED ALWAYS AS IDENTITY,       -- the order of creation
	rollout_id   text    COLLATE "C" PRIMARY KEY,
	start_time   float8  NOT NULL,
	end_time     float8,
	mode         text    COLLATE "C",
	resources_id text    COLLATE "C",
	status       text    COLLATE "C" NOT NULL,
	place        bigint,                                     -- in the queue, null outside of it
	attempts     integer NOT NULL DEFAULT 0,
	evicted      boolean NOT NULL DEFAULT false,
	config       text    NOT NULL,
	input        bytea   NOT NULL,
	metadata     bytea
) WITH (fillfactor = 80);
CREATE UNIQUE INDEX rollouts_by_ordinal ON rollouts (ordinal);
CREATE INDEX rollouts_by_start ON rollouts (start_time);
CREATE INDEX rollouts_queued ON rollouts (place) WHERE place IS NOT NULL;
CREATE INDEX rollouts_live ON rollouts (ordinal) WHERE status IN ('preparing', 'running');

CREATE TABLE attempts (
	ordinal             bigint  GENERATED ALWAYS AS IDENTITY,
	rollout_id          text    COLLATE "C",
	attempt_id          text    COLLATE "C",
	sequence_id         integer NOT NULL,
	start_time          float8  NOT NULL,
	end_time            float8,
	status              text    COLLATE "C" NOT NULL,
	worker_id           text    COLLATE "C",
	last_heartbeat_time float8,
	span_count          bigint  NOT NULL DEFAULT 0,
	span_bytes          bigint  NOT NULL DEFAULT 0,          -- of the payloads as they came
	metadata            bytea,
	PRIMARY KEY (rollout_id, attempt_id)
) WITH (fillfactor = 70);
CREATE INDEX attempts_live ON attempts (worker_id) WHERE status IN ('preparing', 'running');

-- A batch takes one number and adds the index of each worker that it makes.
CREATE SEQUENCE workers_made INCREMENT 1048576 MINVALUE 0 START 0;

CREATE TABLE workers (
	ordinal             bigint NOT NULL,
	worker_id           text   COLLATE "C" PRIMARY KEY,
	status              text   COLLATE "C" NOT NULL,
	last_heartbeat_time float8,
	last_dequeue_time   float8,
	last_busy_time      float8,
	last_idle_time      float8,
	current_rollout_id  text   COLLATE "C",
	current_attempt_id  text   COLLATE "C",
	heartbeat_stats     bytea
) WITH (fillfactor = 50);

CREATE TABLE resources (
	ordinal      bigint  GENERATED ALWAYS AS IDENTITY,
	resources_id text    COLLATE "C" PRIMARY KEY,
	create_time  float8  NOT NULL,
	update_time  float8  NOT NULL,
	version      integer NOT NULL,
	resources    bytea   NOT NULL
);

-- The last number that a rollout's spans were given, whether it exists or not.
CREATE TABLE sequences (
	rollout_id text   COLLATE "C" PRIMARY KEY,
	last       bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE spans (
	ordinal     bigint  GENERATED ALWAYS AS IDENTITY,
	rollout_id  text    COLLATE "C",
	attempt_id  text    COLLATE "C",
	span_id     text    COLLATE "C",
	sequence_id bigint  NOT NULL,
	trace_id    text    COLLATE "C" NOT NULL,
	parent_id   text    COLLATE "C",
	name        text    COLLATE "C" NOT NULL,
	start_time  float8,
	end_time    float8,
	checksum    integer NOT NULL,                            -- CRC32C of the payload
	payload     bytea   NOT NULL,
	-- In this order the key and the index below have no beginning in common, so
	-- that no plan takes one for the other.
	PRIMARY KEY (attempt_id, span_id, rollout_id)
);
CREATE INDEX spans_in_order ON spans (rollout_id, sequence_id);

CREATE TABLE idempotency (
	scope        text   COLLATE "C" PRIMARY KEY,
	fingerprint  text   COLLATE "C" NOT NULL,
	create_time  float8 NOT NULL,
	made         text   NOT NULL,                            -- a JSON array: rollout, attempt, rollout, …
	resources_id text   COLLATE "C" NOT NULL
);
CREATE INDEX idempotency_by_time ON idempotency (create_time);

CREATE TABLE events (
	id           bigint PRIMARY KEY,
	at           float8 NOT NULL,
	kind         text   COLLATE "C" NOT NULL,
	rollout_id   text   COLLATE "C" NOT NULL,
	attempt_id   text   COLLATE "C" NOT NULL,
	resources_id text   COLLATE "C" NOT NULL,
	worker_id    text   COLLATE "C" NOT NULL,
	status       text   COLLATE "C" NOT NULL
);

-- What is too long for its row is compressed by the faster way, where the server
-- was built with it.
DO $$
BEGIN
	ALTER TABLE spans    ALTER COLUMN payload  SET COMPRESSION lz4;
	ALTER TABLE rollouts ALTER COLUMN input    SET COMPRESSION lz4;
	ALTER TABLE rollouts ALTER COLUMN metadata SET COMPRESSION lz4;
EXCEPTION WHEN feature_not_supported THEN
	NULL;
END $$;
