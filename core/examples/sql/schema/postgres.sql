-- One row for each intent (a step of one generation of a claim). It lies in the database of the business data,
-- because it has to commit with it.
CREATE TABLE IF NOT EXISTS keyclaim_effects (
    downstream_key text PRIMARY KEY,          -- claim.downstream_key(step): the same on every attempt of the intent
    token          bigint NOT NULL,           -- the highest token seen: attempts with a lower one are refused
    state          text NOT NULL DEFAULT 'open'
                   CHECK (state IN ('open', 'done', 'refused')),
    result         bytea,                     -- what the step answered; none while it is open
    noted_at       timestamptz NOT NULL DEFAULT now(),
    CHECK ((state = 'open') = (result IS NULL))
);

-- The business data of the example. Any tables do.
CREATE TABLE IF NOT EXISTS orders (
    id      bigserial PRIMARY KEY,
    request text NOT NULL,
    item    text NOT NULL
);
