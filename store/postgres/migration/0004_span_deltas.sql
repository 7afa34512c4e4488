-- The span whose document the payload is a delta from; null if the payload is the document.
ALTER TABLE spans ADD COLUMN base text COLLATE "C";
