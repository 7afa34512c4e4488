-- When the sequence of a rollout that does not exist was used last, for retention;
-- null when the rollout exists.
ALTER TABLE sequences ADD COLUMN unknown_since float8;
CREATE INDEX sequences_unknown ON sequences (unknown_since) WHERE unknown_since IS NOT NULL;
