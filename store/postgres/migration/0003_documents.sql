-- Small documents beside rollouts and spans: runs, releases, keys, cursors.
CREATE TABLE documents (
	kind        text    COLLATE "C",
	id          text    COLLATE "C",
	parent      text    COLLATE "C" NOT NULL,                -- the series that it belongs to
	sequence    bigint  NOT NULL,                            -- its place there
	version     bigint  NOT NULL,
	update_time float8  NOT NULL,
	checksum    integer NOT NULL,                            -- CRC32C of the body
	body        bytea   NOT NULL,
	PRIMARY KEY (kind, id)
) WITH (fillfactor = 70);
CREATE INDEX documents_series ON documents (kind, parent, sequence, id);
ALTER TABLE events ADD COLUMN document text COLLATE "C" NOT NULL DEFAULT '';
