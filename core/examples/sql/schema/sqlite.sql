-- One row for each intent (a step of one generation of a claim). It lies in the database of the business data,
-- because it has to commit with it.
CREATE TABLE IF NOT EXISTS keyclaim_effects (
    downstream_key TEXT PRIMARY KEY NOT NULL, -- claim.downstream_key(step): the same on every attempt of the intent
    token          INTEGER NOT NULL,          -- the highest token seen: attempts with a lower one are refused
    state          TEXT NOT NULL DEFAULT 'open'
                   CHECK (state IN ('open', 'done', 'refused')),
    result         BLOB,                      -- what the step answered; none while it is open
    noted_at       INTEGER NOT NULL DEFAULT (unixepoch()),
    CHECK ((state = 'open') = (result IS NULL))
) STRICT;

-- The business data of the example. Any tables do.
CREATE TABLE IF NOT EXISTS orders (
    id      INTEGER PRIMARY KEY,
    request TEXT NOT NULL,
    item    TEXT NOT NULL
) STRICT;
