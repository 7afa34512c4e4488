-- The final reward of an attempt, and what decides whether a later one replaces it.
ALTER TABLE attempts ADD COLUMN reward REAL;
ALTER TABLE attempts ADD COLUMN reward_priority REAL; -- null for the reward of a single call
ALTER TABLE attempts ADD COLUMN reward_sequence INTEGER;
-- That of the latest attempt, to filter and sort by.
ALTER TABLE rollouts ADD COLUMN reward REAL;
CREATE INDEX rollouts_reward ON rollouts (reward) WHERE reward IS NOT NULL;
-- The labels of rollouts that have any.
CREATE TABLE labels (
	rollout INTEGER PRIMARY KEY,
	run TEXT,
	step TEXT,
	labels TEXT NOT NULL              -- all of them, a line each
);
CREATE INDEX labels_run ON labels (run, step) WHERE run IS NOT NULL;
