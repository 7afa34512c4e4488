-- Small documents beside rollouts and spans: runs, releases, keys, cursors.
CREATE TABLE documents (
	kind TEXT NOT NULL,
	id TEXT NOT NULL,
	parent TEXT NOT NULL,             -- the series that it belongs to
	sequence INTEGER NOT NULL,        -- its place there
	version INTEGER NOT NULL,
	update_time REAL NOT NULL,
	body BLOB NOT NULL,
	crc INTEGER NOT NULL,             -- CRC-32C of the body
	PRIMARY KEY (kind, id)
);
CREATE INDEX documents_series ON documents (kind, parent, sequence, id);
