-- The final reward of an attempt, and what decides whether a later one replaces it: its priority, null for the reward of a
-- single call, and the sequence id of its span.
ALTER TABLE attempts
	ADD COLUMN reward          float8,
	ADD COLUMN reward_priority float8,
	ADD COLUMN reward_sequence bigint;
ALTER TABLE rollouts
	ADD COLUMN reward float8,                                -- of the latest attempt
	ADD COLUMN run    text COLLATE "C",
	ADD COLUMN step   text COLLATE "C",
	ADD COLUMN labels text COLLATE "C" NOT NULL DEFAULT '';  -- all of them, a line each
CREATE INDEX rollouts_by_reward ON rollouts (reward) WHERE reward IS NOT NULL;
CREATE INDEX rollouts_by_run ON rollouts (run, step) WHERE run IS NOT NULL;
